"""Where the standard data files and caches live."""

import os
from pathlib import Path


def data_directory() -> Path:
    """$MARGINFLOW_DATA, else `marginflow` in the user's cache directory. It need not exist."""
    chosen = os.environ.get("MARGINFLOW_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marginflow"
