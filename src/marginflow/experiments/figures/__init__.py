"""Figures of the papers and beyond them, one file each."""
