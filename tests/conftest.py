"""What every test shares: a compilation cache and the rules for tests that need something extra."""

import os
import shutil
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "marginflow",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("marginflow")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def _missing(need: str) -> str | None:
    """Why a test with the marker `need` cannot run here, or None."""
    if need == "torch":
        from importlib.util import find_spec

        return None if find_spec("torch") else "PyTorch is not installed"
    if need == "browser":
        return None if find_browser() else f"no browser: none of {', '.join(BROWSERS)} is on the path"
    if need == "realdata":
        from marginflow._core.paths import data_directory

        folder = data_directory() / "mnist"
        return (
            None if (folder / "train-images-idx3-ubyte").exists() else f"the MNIST files are not in {folder}"
        )
    return None


def pytest_runtest_setup(item):
    """Skip, visibly, what cannot run here; fail instead when MARGINFLOW_TESTS_REQUIRE says that it must run."""
    required = os.environ.get("MARGINFLOW_TESTS_REQUIRE", "").split(",")
    for need in ("torch", "browser", "realdata"):
        if item.get_closest_marker(need) and (reason := _missing(need)):
            (pytest.fail if need in required else pytest.skip)(reason)


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of a headless-capable Chromium."""
    path = find_browser()
    if path is None:
        pytest.skip("no browser on the path")
    return path
