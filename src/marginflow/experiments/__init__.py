"""Experiments: frozen values that make figures. One file per figure in `figures/`; a new one is a line here."""

import importlib
from typing import Any

from marginflow._core.errors import unknown_name

# name -> (module in `figures`, class). Modules are imported when an experiment is asked for.
FIGURES: dict[str, tuple[str, str]] = {
    "phuong2021_fig1": ("phuong2021_fig1", "Figure1"),
    "phuong2021_fig2": ("phuong2021_fig2", "Figure2"),
    "frei2022_stable_rank": ("frei2022_stable_rank", "StableRank"),
    "chizat2020_boundaries": ("chizat2020_boundaries", "Boundaries"),
    "chizat2020_test_error_n": ("chizat2020_test_error", "AgainstExamples"),
    "chizat2020_test_error_d": ("chizat2020_test_error", "AgainstDimension"),
    "chizat2020_margin_m": ("chizat2020_margin_m", "MarginAgainstWidth"),
    "chizat2020_rates": ("chizat2020_rates", "Rates"),
    "baselines": ("baselines", "Baselines"),
    "log_time": ("log_time", "LogTime"),
    "basin_map": ("basin_map", "BasinMap"),
    "phase_diagram": ("phase_diagram", "PhaseDiagram"),
    "one_number": ("one_number", "OneNumber"),
    "phuong2021_fig3": ("phuong2021_fig3", "Figure3"),
    "phuong2021_fig4": ("phuong2021_fig4", "Figure4"),
    "frei2022_cifar10": ("frei2022_cifar10", "Cifar10StableRank"),
}


def experiment(name: str) -> Any:
    """The experiment of this name with the paper's parameters."""
    if name not in FIGURES:
        raise unknown_name("experiment", name, FIGURES)
    module, cls = FIGURES[name]
    return getattr(importlib.import_module(f"marginflow.experiments.figures.{module}"), cls)()
