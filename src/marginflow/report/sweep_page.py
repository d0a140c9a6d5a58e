"""The page of a sweep: how many cells are done, what differs between them, and what they show."""

from pathlib import Path

from marginflow.report.page import Page


def is_sweep(path: str | Path) -> bool:
    return (Path(path) / "sweep.json").is_file()


def sweep_page(path: str | Path) -> Page:
    raise NotImplementedError
