"""Each family is what the paper defines: tested in distribution against the definition carried out naively."""

import numpy as np
import pytest
from scipy import stats

import marginflow as mf
from marginflow._core.errors import InputError

# Seeds are fixed, so a test always passes or never does; 1e-3 is the chance that an honest sampler was unlucky.
UNLUCKY = 1e-3


def rejection(n: int, d: int, seed: int, half_space: bool = True):
    """The sampler of the paper, word for word: draw from R^d, keep what falls in one of the two orthants."""
    rng = np.random.default_rng(seed)
    z = np.array([(-1.0) ** k for k in range(d)])
    X, y = [], []
    while len(X) < n:
        x = rng.standard_normal(d)
        sign = 1.0 if (x > 0).all() else -1.0 if (x < 0).all() else 0.0
        if sign and (x @ z >= 0 or not half_space):
            X.append(x)
            y.append(sign)
    return np.array(X), np.array(y)


def projections(X, y):
    """Statistics that see the labels, each coordinate, and how coordinates hang together."""
    z = np.array([(-1.0) ** k for k in range(X.shape[1])])
    return [*(X.T), X @ z, np.linalg.norm(X, axis=1), y * X.min(axis=1), y * (X[:, 0] + X[:, -1])]


@pytest.mark.parametrize("d", [2, 3])
def test_phuong2021_has_the_distribution_of_the_rejection_sampler(d):
    data = mf.data.phuong2021(n=3000, d=d, seed=5)
    X, y = rejection(3000, d, seed=6)
    p_values = [
        stats.ks_2samp(a, b).pvalue
        for a, b in zip(projections(data.X, data.y), projections(X, y), strict=True)
    ]
    assert min(p_values) > UNLUCKY
    count = [[np.sum(data.y > 0), np.sum(data.y < 0)], [np.sum(y > 0), np.sum(y < 0)]]
    assert stats.chi2_contingency(count).pvalue > UNLUCKY


def test_that_comparison_sees_a_wrong_sampler():
    data = mf.data.phuong2021(n=3000, d=3, seed=5)
    X, y = rejection(3000, 3, seed=6, half_space=False)
    p_values = [
        stats.ks_2samp(a, b).pvalue
        for a, b in zip(projections(data.X, data.y), projections(X, y), strict=True)
    ]
    assert min(p_values) < 1e-9


@pytest.mark.parametrize("d", [2, 7, 20])
def test_phuong2021_by_definition(d):
    data = mf.data.phuong2021(n=200, d=d, seed=3)
    z = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    assert (data.y[:, None] * data.X > 0).all()
    assert (data.X @ z >= 0).all()
    assert (data.n, data.d) == (200, d)


def test_phuong2021_does_not_depend_on_how_it_is_drawn_in_blocks(monkeypatch):
    from marginflow.data import families

    monkeypatch.setattr(families, "DRAW_BYTES", 8 * 5 * 7)
    data = mf.data.phuong2021(n=100, d=5, seed=0)
    assert data.n == 100
    assert (data.y[:, None] * data.X > 0).all()


def test_gaussian_mixture_by_definition():
    data = mf.data.gaussian_mixture(n=401, d=30, mean=3.0, seed=1)
    noise = data.X - 3.0 * data.y[:, None] * np.eye(30)[0]
    assert stats.kstest(noise.ravel(), "norm").pvalue > UNLUCKY
    assert stats.kstest(noise[:, 0], "norm").pvalue > UNLUCKY
    assert abs(len(data.positive) - len(data.negative)) == 1


def test_chizat2020_by_definition():
    k, d = 3, 6
    data = mf.data.chizat2020(n=4000, d=d, k=k, seed=2)
    delta = 1 / (3 * k - 1)
    centres = np.array(
        [[delta * (1 + 3 * i) - 0.5, delta * (1 + 3 * j) - 0.5] for i in range(k) for j in range(k)]
    )
    offsets = data.X[:, None, :2] - centres
    distance = np.linalg.norm(offsets, axis=2)
    cluster = distance.argmin(axis=1)
    rows = np.arange(data.n)
    radius = distance[rows, cluster]
    assert radius.max() <= delta
    assert stats.kstest(radius / delta, "uniform").pvalue > UNLUCKY
    angle = np.arctan2(*offsets[rows, cluster].T)
    assert stats.kstest((angle + np.pi) / (2 * np.pi), "uniform").pvalue > UNLUCKY
    assert stats.chisquare(np.bincount(cluster, minlength=k * k)).pvalue > UNLUCKY
    labels = [set(data.y[cluster == c]) for c in range(k * k)]
    assert all(len(label) == 1 for label in labels)
    assert sum(label == {-1.0} for label in labels) == k * k // 2
    assert (data.X[:, 2] == 1).all()
    assert stats.kstest(data.X[:, 3:].ravel() + 0.5, "uniform").pvalue > UNLUCKY


def test_chizat2020_test_points_of_the_same_problem():
    def sign_of_cluster(data):
        cell = np.floor((data.X[:, :2] + 0.5) * 3).astype(
            int
        )  # the clusters fall in the cells of a 3 x 3 grid
        return {tuple(c): s for c, s in zip(cell.tolist(), data.y.tolist(), strict=True)}

    one, two = (mf.data.chizat2020(n=300, d=3, k=3, seed=s, labels_seed=7) for s in (1, 2))
    assert one.sha256 != two.sha256
    assert sign_of_cluster(one) == sign_of_cluster(two)
    assert any(
        sign_of_cluster(mf.data.chizat2020(n=300, d=3, k=3, seed=s)) != sign_of_cluster(one) for s in range(5)
    )


def test_digits_are_the_bundled_images():
    sklearn = pytest.importorskip("sklearn.datasets")
    data = mf.data.load("digits:3,8")
    pixels, target = sklearn.load_digits(return_X_y=True)
    assert np.array_equal(data.X * 16, pixels[(target == 3) | (target == 8)])
    assert data.classes == ("3", "8")
    assert len(data.positive) == np.sum(target == 8)
    assert mf.data.load("digits:8,3").sha256 == data.sha256


@pytest.mark.parametrize("make", [mf.data.phuong2021, mf.data.gaussian_mixture, mf.data.chizat2020])
def test_a_family_is_a_function_of_its_seed(make):
    assert make(n=30, seed=4).sha256 == make(n=30, seed=4).sha256 != make(n=30, seed=5).sha256


@pytest.mark.parametrize(
    "spec",
    [
        "phuong2021:n=60,d=4,seed=3",
        "gaussian-mixture:n=12,d=40,mean=1.5,seed=2",
        "chizat2020:n=50,d=4,k=2,seed=1",
        "chizat2020:n=50,d=4,k=2,seed=1,labels_seed=8",
    ],
)
def test_the_name_of_a_family_repeats_it(spec):
    data = mf.data.load(spec)
    assert mf.data.load(data.name).sha256 == data.sha256


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_even_the_smallest_sets_have_both_classes(n, seed):
    for make in (mf.data.phuong2021, mf.data.gaussian_mixture, mf.data.chizat2020):
        assert set(make(n=n, d=3, seed=seed).y) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("phuong2021:n=-5", ["n=-5", "n >= 2"]),
        ("phuong2021:d=1", ["d=1"]),
        ("phuong2021:seed=-1", ["seed=-1"]),
        ("phuong2021:n=ten", ["n=ten", "integer"]),
        ("phuong2021:n=10.5", ["n=10.5", "integer"]),
        ("phuong2021:n=", ["n=(nothing)"]),
        ("phuong2021:n=5,n=6", ["n", "twice"]),
        ("phuong2021:width=5", ["'width'", "d, n, seed"]),
        ("phuong2021:sead=5", ["'sead'", "did you mean 'seed'"]),
        ("phuong2021:500", ["'500'", "name=value"]),
        ("gaussian-mixture:mean=nan", ["mean=nan", "finite"]),
        ("gaussian-mixture:mean=inf", ["mean=inf", "finite"]),
        ("chizat2020:k=1", ["k=1"]),
        ("phuong2012:n=5", ["'phuong2012'", "did you mean 'phuong2021'"]),
        ("Phuong2021:", ["did you mean 'phuong2021'"]),
        ("nonsense", ["unknown data set 'nonsense'", "digits"]),
        ("digits:0", ["digits:0,1"]),
        ("digits:0,0", ["digits:0,1"]),
        ("digits:0,11", ["digits:0,1"]),
    ],
)
def test_bad_specifications_are_refused_in_one_line(spec, words):
    if spec.startswith("digits"):
        pytest.importorskip("sklearn")
    with pytest.raises(InputError) as caught:
        mf.data.load(spec)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
