"""marginflow demo: the chain on one small data set."""

from marginflow.cli.common import Json, Seed, Strict


def demo(seed: Seed = 0, json: Json = False, strict: Strict = False) -> int:
    """The whole chain on phuong2021: in under a minute."""
    from marginflow._core.status import Status
    from marginflow.cli.common import emit
    from marginflow.experiments.demo import demo as run

    result = run(seed)
    emit(result, json)
    return int(strict and result.verdict is not Status.HOLDS)
