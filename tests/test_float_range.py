"""Data near the ends of float range: the same answers, exactly scaled, or a refusal that names the remedy."""

import numpy as np
import pytest

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow.conditions.certificates import recheck
from marginflow.conditions.interclass_distance import interclass_distance

CONE = mf.data.phuong2021(n=30, d=4, seed=1)
SOLVE = {kind: getattr(mf.margins, kind) for kind in ("linear", "positive", "negative", "f1", "f2")}


def leaky(data: mf.Dataset):
    return mf.margins.leaky(data, 0.5, 3, 2)


def times(exponent: int) -> mf.Dataset:
    return mf.Dataset(np.ldexp(np.asarray(CONE.X), exponent), CONE.y)


@pytest.mark.parametrize("exponent", [-960, -300, 300, 960])
@pytest.mark.parametrize("kind", SOLVE)
def test_margins_scale_up_to_the_ends_of_float_range(kind, exponent):
    here, there = SOLVE[kind](CONE), SOLVE[kind](times(exponent))
    assert np.ldexp(there.value, -exponent) == pytest.approx(here.value, rel=1e-8)
    assert there.certified == here.certified
    assert 0 < there.lower_bound <= there.value <= there.upper_bound < np.inf


def test_an_objective_that_squares_scales_to_half_of_the_range_and_is_refused_past_it():
    here, there = leaky(CONE), leaky(times(300))
    assert np.ldexp(there.objective, 600) == pytest.approx(here.objective, rel=1e-8)
    assert there.ratio == pytest.approx(here.ratio, rel=1e-8)
    for exponent in (-520, 520):
        with pytest.raises(InputError, match="power of ten"):
            leaky(times(exponent))


@pytest.mark.parametrize("exponent", [-1000, -700, 700, 1000])
def test_distances_of_classes_scale_too(exponent):
    here, there = (interclass_distance(data, rank=2) for data in (CONE, times(exponent)))
    assert there.status == here.status == "holds"
    assert np.ldexp(there.witness["interval"], -exponent) == pytest.approx(here.witness["interval"], rel=1e-6)
    assert recheck(times(exponent), there)


def test_rows_too_far_apart_for_one_format_are_left_undecided():
    X, y = np.array(CONE.X), np.array(CONE.y)
    X[0] *= 1e-200
    X[1] *= 1e100
    margin = mf.margins.linear(mf.Dataset(X, y))
    assert not margin.certified
    assert margin.separable is None
    assert 0 == margin.lower_bound < margin.upper_bound < np.inf
    assert "comparable size" in margin.message


@pytest.mark.parametrize(
    "X", [1.7e308 * np.array([[1.0, 1], [-1, -1]]), 5e-324 * np.array([[1.0, 2], [-1, -2]])]
)
def test_a_distance_that_no_float_holds_is_refused(X):
    with pytest.raises(InputError, match="beyond float range; multiply the data"):
        interclass_distance(mf.Dataset(X, [1, -1]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_flow_on_rows_too_far_apart_ends_with_an_outcome():
    for seed in (0, 1):
        X = np.array([1e-8, 1, 1e8, 1, 1, 1])[:, None] * np.random.default_rng(seed).standard_normal((6, 3))
        net, data = mf.TwoLayer(width=6), mf.Dataset(X, [1, 1, 1, -1, -1, -1])
        run = mf.train(net, mf.inits.balanced(net, 3, scale=1e-2, key=0), data, method="flow", until="frozen")
        assert run.outcome in ("converged", "stalled")
