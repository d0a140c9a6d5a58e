"""Two separate answers that are never mixed: what the mathematics says, and how the computation ended."""

from enum import StrEnum


class Status(StrEnum):
    """Mathematical status of a statement about this data and this net (theory §7)."""

    HOLDS = "holds"
    FAILS = "fails"
    VACUOUS = "vacuous"
    UNDECIDED = "undecided"


class Outcome(StrEnum):
    """How a numerical procedure ended. Only CONVERGED means that its own stopping test was met."""

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    STALLED = "stalled"
    DIVERGED = "diverged"
    INFEASIBLE = "infeasible"
    INTERRUPTED = "interrupted"


def conjunction(statuses) -> Status:
    """Status of "all of these": one failure decides; otherwise one open question leaves it open.

    A vacuous part makes the whole vacuous unless something else failed or is open.
    """
    seen = set(statuses)
    for status in (Status.FAILS, Status.UNDECIDED, Status.VACUOUS):
        if status in seen:
            return status
    return Status.HOLDS
