"""The command line: parsing only. Each command is one file that hands its options to one library call."""

from marginflow.cli.app import main as main
