"""What figures compute beside training: each small routine against a case worked by hand."""

import itertools

import numpy as np
import pytest

from marginflow._core.status import Status


def test_norm_near_a_ray_is_counted_by_sign():
    from marginflow.experiments.figures.phuong2021_fig1 import on_ray

    directions = np.array([[1.0, 0.0], [0.0, 2.0]])
    coordinates = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 5.0]])
    assert on_ray(coordinates, np.array([1, -1, -1]), directions) == 1
    assert on_ray(coordinates, np.array([1, -1, 1]), directions) == pytest.approx(25 / 50)
    assert on_ray(-coordinates, np.array([1, -1, -1]), directions) == 0


@pytest.mark.parametrize(
    ("half_angle", "status"), [(10, Status.HOLDS), (44, Status.HOLDS), (46, Status.FAILS)]
)
def test_two_cones_are_orthogonally_separable_below_a_right_angle(half_angle, status):
    import marginflow as mf
    from marginflow.experiments.figures.phase_diagram import two_cones

    data = two_cones(half_angle, 16, seed=1)
    checks = mf.check(data, conditions=["orthogonal_separability", "support_span", "linear_separability"])
    assert checks["orthogonal_separability"].status is status
    assert checks["linear_separability"].status is Status.HOLDS
    assert checks["support_span"].status is Status.HOLDS


def test_curves_on_the_sphere():
    from marginflow.experiments.figures import basin_map

    normal = np.array([1.0, -2.0, 0.5])
    circle = basin_map.great_circle(normal)
    np.testing.assert_allclose(circle @ normal, 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(circle, axis=1), 1)
    points = np.random.default_rng(0).standard_normal((50, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(basin_map.on_sphere(*basin_map.angles_of(points)), points, atol=1e-12)


def test_traces_join_up_and_end_at_the_limit():
    import marginflow as mf
    from marginflow import sectors
    from marginflow.experiments.figures import basin_map

    rng = np.random.default_rng(3)
    data = mf.Dataset(rng.standard_normal((8, 3)), np.where(np.arange(8) % 2, -1.0, 1.0))
    for w in rng.standard_normal((5, 3)):
        path = sectors.path(data, w, 1)
        pieces = [points for points, _ in basin_map.trace(path)]
        if path.fate is sectors.Fate.DEAD and not len(path.events):
            assert not pieces  # off everywhere from the start: nothing moves
            continue
        np.testing.assert_allclose(pieces[0][0], w / np.linalg.norm(w), atol=1e-12)
        for before, after in itertools.pairwise(pieces):
            np.testing.assert_allclose(before[-1], after[0], atol=1e-9)
        if path.fate in (sectors.Fate.POSITIVE, sectors.Fate.NEGATIVE):
            np.testing.assert_allclose(pieces[-1][-1], path.limit, atol=1e-3)


def test_slopes_of_power_laws_are_found():
    import xarray

    from marginflow.experiments.figures import chizat2020_rates, log_time

    t = np.geomspace(1, 1e6, 50)
    curves = np.stack([3 * t**-0.5, 7 * t**-0.5])
    found = xarray.DataArray(curves, dims=("seed", "log_time"), coords={"log_time": t})
    assert log_time.slope(found, 10, 1e5) == pytest.approx(-0.5)
    assert chizat2020_rates.slope_of(t, curves**2) == pytest.approx(-1.0)


def test_a_straight_boundary_does_not_bend_and_a_circle_does():
    from marginflow.experiments.figures.chizat2020_boundaries import bends

    x, y = np.meshgrid(np.linspace(-1, 1, 81), np.linspace(-1, 1, 81))
    assert bends(np.array([x + 0.3 * y])) == pytest.approx(0, abs=1e-9)
    wide, narrow = (bends(np.array([x**2 + y**2 - r**2])) for r in (0.8, 0.4))
    assert 0 < wide < narrow  # a circle of half the radius turns twice as fast


def test_margins_of_mean_field_nets_are_those_of_their_measures():
    from marginflow.data import chizat2020
    from marginflow.experiments import mean_field

    data = chizat2020(n=20, d=3, k=2, seed=1)
    for train in mean_field.LAYERS:
        trained = mean_field.ascend(data, train, (6,), (0, 1), steps=40)
        said = mean_field.unit_norm_margins(trained)[-1]
        for k in range(2):
            theta = {name: np.asarray(w, float) for name, w in trained.member(k).theta.items()}
            phi = data.y[:, None] * np.maximum(data.X @ theta["W"].T, 0)
            if train == "both":
                mass = np.mean(theta["a"] ** 2 + np.sum(theta["W"] ** 2, axis=1))
                by_hand = (phi @ theta["a"]).min() / 6 / mass
                length = np.linalg.norm(theta["W"], axis=1)
                _, Z, _ = mean_field.unit_features(theta, data)
                np.testing.assert_allclose(
                    Z @ (2 * np.abs(theta["a"]) * length), phi @ theta["a"], rtol=1e-9, atol=1e-12
                )
            else:
                by_hand = (phi @ (theta["a"] / 6)).min() / (np.sqrt(6) * np.linalg.norm(theta["a"] / 6))
            assert said[k] == pytest.approx(by_hand, rel=1e-4)
            best = mean_field.optimum(trained, k)
            assert best is not None
            reached = (data.y * best(data.X)).min()
            assert reached == pytest.approx(best.margin, rel=1e-6, abs=1e-9)
            assert reached >= said[k] - 1e-6
        errors = mean_field.test_errors(trained, data)
        q = data.y * np.asarray(trained.member(0).net(trained.member(0).theta, data.X))
        assert errors[0] == np.mean(q <= 0)


def test_the_angle_of_a_linear_net_is_that_of_its_vector():
    from marginflow.experiments.figures.baselines import angle, end_to_end, ratio, resampled
    from marginflow.nets import DeepLinear, inits

    net, target = DeepLinear(3, 4), np.array([1.0, 2.0, -1.0])
    theta = inits.gaussian(net, 3, scale=0.5, key=2)
    w = end_to_end(net, theta, 3)
    np.testing.assert_allclose(w, net.end_to_end({k: np.asarray(v) for k, v in theta.items()}), rtol=1e-12)
    cosine = w @ target / np.linalg.norm(w) / np.linalg.norm(target)
    assert angle(w, target) == pytest.approx(np.arccos(cosine), abs=1e-9)
    assert angle(np.array([1.0, 1e-12]), np.array([3.0, 0.0])) == pytest.approx(1e-12)
    assert ratio(np.diag([4.0, 1.0])) == pytest.approx(0.25)
    t = np.array([-np.inf, 1.0, 10.0, 100.0])
    np.testing.assert_allclose(resampled(np.array([2.0, 50.0]), t, 1 / t), [0.5, 0.02])
