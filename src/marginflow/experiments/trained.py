"""Where trainings of hours are kept, so that they go on after an interruption and figures of one net share it."""

from marginflow._core.paths import data_directory
from marginflow.store import CheckpointFolder


def kept_trainings() -> CheckpointFolder:
    """DIR/trainings of the data folder. Files are named by all that decides them; any of them may be deleted."""
    return CheckpointFolder(data_directory() / "trainings")
