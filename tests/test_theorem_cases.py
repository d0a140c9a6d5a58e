"""The table of verdicts, row by row: every theorem holds somewhere, is vacuous, refuted, undecided where it must be."""

import dataclasses

import numpy as np
import pytest
from theorem_cases import THEOREM_CASES

from marginflow._core.status import Status
from marginflow.theorems import THEOREMS, Evidence, theorem

STATUS = pytest.mark.parametrize("case", THEOREM_CASES, ids=str)


def cells(part):
    return pytest.mark.parametrize(
        ("case", "name"),
        [pytest.param(c, name, id=f"{c}-{name}") for c in THEOREM_CASES for name in getattr(c, part)],
    )


def test_every_theorem_has_a_row():
    assert [case.theorem for case in THEOREM_CASES] == list(THEOREMS)


@STATUS
def test_holds(case):
    verdict = theorem(case.theorem).verify(case.holds())
    assert verdict.status is Status.HOLDS, verdict
    assert "every assumption holds" in verdict.summary or not verdict.assumptions


@STATUS
def test_every_assumption_is_broken_or_said_never_to_be(case):
    verdict = theorem(case.theorem).verify(case.holds())
    assert {a.name for a in verdict.assumptions} == {*case.broken, *case.never_broken}
    assert {c.name for c in verdict.claims} >= set(case.planted)


@cells("broken")
def test_a_broken_assumption_is_vacuous(case, name):
    verdict = theorem(case.theorem).verify(case.broken[name]())
    assert verdict.status is Status.VACUOUS, verdict
    assert name in [a.name for a in verdict.assumptions if a.status is Status.FAILS], verdict
    assert name.replace("_", " ") in verdict.summary or "no prediction" in verdict.summary


@cells("planted")
def test_a_planted_falsehood_fails(case, name, monkeypatch):
    claimed, plant = theorem(case.theorem), case.planted[name]
    evidence = case.holds()
    if plant.__code__.co_varnames[: plant.__code__.co_argcount] == ("v",):
        honest = claimed.predict

        def false(subject):
            prediction = honest(subject)
            return dataclasses.replace(prediction, values={**prediction.values, **plant(prediction.values)})

        monkeypatch.setattr(claimed, "predict", false)
    else:
        evidence = plant()
    verdict = claimed.verify(evidence)
    assert name in [c.name for c in verdict.claims if c.status is Status.FAILS], verdict
    assert verdict.status in (Status.FAILS, Status.VACUOUS), verdict
    assert verdict.status is Status.FAILS or "fail" in verdict.summary


@STATUS
def test_a_starved_solver_is_undecided(case):
    verdict = theorem(case.theorem).verify(case.starved())
    assert verdict.status is Status.UNDECIDED, verdict
    assert isinstance(case.starved(), Evidence)
    assert np.all([a.status is not Status.FAILS for a in verdict.assumptions])
