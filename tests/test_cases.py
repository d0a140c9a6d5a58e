"""The facts of the table hold by the definitions, in rational arithmetic."""

from fractions import Fraction

import pytest
from cases import having


def exact(data):
    return [[Fraction(float(v)) for v in row] for row in data.X]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("case", [c for c in having("orthogonally_separable") if c.data.n <= 40], ids=str)
def test_orthogonal_separability_by_definition(case):
    rows, y = exact(case.data), case.data.y
    bad = [
        (i, j)
        for i in range(len(rows))
        for j in range(i, len(rows))
        if (dot(rows[i], rows[j]) <= 0 if y[i] == y[j] else dot(rows[i], rows[j]) > 0)
    ]
    assert (not bad) == case.facts["orthogonally_separable"]
    if "violation" in case.facts:
        assert bad == [case.facts["violation"]]


@pytest.mark.parametrize("case", having("contradiction"), ids=str)
def test_contradictions_are_there(case):
    i, j = case.facts["contradiction"]
    assert (case.data.X[i] == case.data.X[j]).all()
    assert case.data.y[i] != case.data.y[j]
