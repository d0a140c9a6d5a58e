"""marginflow info: what a bug report needs."""

from marginflow.cli.common import Json


def info(json: Json = False) -> None:
    """Versions, devices and precision."""
    from marginflow._core.info import info as collect
    from marginflow.cli.common import emit

    emit(collect(), json)
