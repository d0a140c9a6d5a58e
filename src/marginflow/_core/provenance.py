"""What is needed to repeat a result: versions, devices, options, data hash."""

import functools
import platform
import sys
from importlib import metadata
from typing import Any

from marginflow._core.version import __version__

PACKAGES = ("numpy", "scipy", "jax", "jaxlib", "equinox", "diffrax", "clarabel", "highspy")


def versions() -> dict[str, str]:
    return dict(_versions())


@functools.cache  # they do not change while a process runs, and reading them takes longer than a short training
def _versions() -> dict[str, str]:
    found = {"marginflow": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def provenance(**what: Any) -> dict[str, Any]:
    """Versions plus whatever identifies this result; the command line when there is one."""
    from datetime import UTC, datetime

    return {
        "versions": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": sys.argv[1:],
        **what,
    }
