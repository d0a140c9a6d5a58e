"""The contract of `check`, the other conditions, and certificates that refuse a perturbed witness."""

import dataclasses
import json
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from cases import CASES, having

import marginflow as mf
from marginflow._core import exact
from marginflow.cli import main
from marginflow.conditions import NAMES, certificates, check
from marginflow.conditions import general_position as position
from marginflow.conditions import near_orthogonality as near
from marginflow.conditions.general_position import general_position, homogeneous
from marginflow.conditions.linear_separability import linear_separability
from marginflow.conditions.near_orthogonality import near_orthogonality
from marginflow.conditions.support_span import support_span


def cli(*arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    return stopped.value.code, *capsys.readouterr()


# --- the contract -------------------------------------------------------------------------------------------------


def test_all_six_conditions_with_the_documented_keys(capsys):
    code, out, err = cli("check", "phuong2021:n=40,d=5,seed=0", "--json", capsys=capsys)
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert {"n": 40, "d": 5}.items() <= document["dataset"].items()
    assert document["dataset"]["n_positive"] + document["dataset"]["n_negative"] == 40
    assert tuple(document["conditions"]) == NAMES
    for condition in document["conditions"].values():
        assert {"status", "measured", "threshold", "slack", "witness", "seconds"} <= set(condition)
        assert condition["status"] in ("holds", "fails", "undecided")


def test_one_condition_strict_and_table(capsys):
    one = ("check", "phuong2021:n=40,d=5", "--condition")
    code, out, _ = cli(*one, "orthogonal_separability", "--strict", capsys=capsys)
    assert code == 0
    assert "orthogonal_separability" in out
    assert "linear_separability" not in out
    assert cli(*one, "near_orthogonality", "--strict", capsys=capsys)[0] == 1


@pytest.mark.parametrize(("arguments", "said"), [
    (["--condition", "ortogonal_separability"], "did you mean 'orthogonal_separability'"),
    (["--constant", "frei2022.flwo"], "did you mean 'frei2022.flow'"),
    (["--leak", "1.5"], "leak"), (["--rank", "9"], "rank 9"), (["--tolerance", "-1"], "tolerance"),
])
def test_bad_options_are_one_line_and_exit_2(arguments, said, capsys):
    code, out, err = cli("check", "phuong2021:n=20,d=3", *arguments, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_every_condition_alone_and_slack_does_not_change_with_scale():
    import importlib

    data = CASES["phuong2021-small"].data
    larger = mf.Dataset(data.X * 1024.0, data.y)
    for name in NAMES:
        function = getattr(importlib.import_module(f"marginflow.conditions.{name}"), name)
        one, other = function(data), function(larger)
        assert one.name == name
        assert one.status == other.status
        assert one.slack == other.slack or one.slack == pytest.approx(other.slack, rel=1e-6)
        assert (one.slack is None) or (one.slack > 0) == (one.status == "holds")


def test_records_print():
    checks = check(CASES["plane"].data)
    assert "linear_separability" in str(checks)
    assert "<table>" in checks._repr_html_()
    assert "status" in str(checks["general_position"])


def test_check_says_what_it_wants():
    with pytest.raises(mf.InputError, match="Dataset"):
        check(np.eye(3))  # type: ignore[arg-type]


# --- linear separability ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", having("separable"), ids=str)
def test_separable_or_not(case):
    condition = linear_separability(case.data)
    assert condition.status == ("holds" if case.facts["separable"] else "fails")
    assert certificates.recheck(case.data, condition)
    if "linear_margin" in case.facts:
        assert condition.measured == pytest.approx(case.facts["linear_margin"], rel=1e-12)
    if "contradiction" in case.facts:
        assert tuple(condition.witness["rows"]) == case.facts["contradiction"]
        assert condition.witness["kind"] == "equal points with different labels"


def crowd(n: int, d: int, flip: int | None) -> mf.Dataset:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    y = np.sign(X @ w)
    if flip is not None:
        y[flip] = -y[flip]
    return mf.Dataset(X, y)


@pytest.mark.parametrize("n", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("flip", [None, 7])
def test_many_rows_both_ways_with_a_certificate(n, flip):
    data = crowd(n, 10, flip)
    condition = linear_separability(data)
    assert condition.status == ("holds" if flip is None else "fails")
    assert certificates.recheck(data, condition)
    if flip is not None:
        assert len(condition.witness["support"]) <= data.d + 1


def test_a_perturbed_separator_or_combination_is_refused():
    data = crowd(400, 4, None)
    condition = linear_separability(data)
    flipped = dataclasses.replace(condition, witness={"w": -condition.witness["w"]})
    assert not certificates.recheck(data, flipped)
    assert not certificates.recheck(crowd(400, 4, 7), condition)
    worst = int(np.argmin(data.y * (data.X @ condition.witness["w"])))
    push = condition.witness["w"] - 1.001 * data.y[worst] * data.X[worst] / (data.X[worst] @ data.X[worst])
    assert not certificates.separates(data, push)

    other = crowd(400, 4, 7)
    refuted = linear_separability(other)
    rows, alpha = refuted.witness["support"], refuted.witness["alpha"]
    assert np.abs((alpha * other.y[rows]) @ other.X[rows]).max() < 1e-12
    assert certificates.gordan(other, rows, alpha)
    assert not certificates.gordan(other, rows, alpha[::-1])
    assert not certificates.gordan(other, rows[:-1], alpha[:-1])
    assert not certificates.gordan(data, rows, alpha)


# --- near-orthogonality -------------------------------------------------------------------------------------------


def near_from_the_definition(data, constant, leak) -> bool:
    squares = [exact.dot(x, x) for x in data.X]
    least, R2 = min(squares), max(squares) / min(squares)
    g = Fraction(leak)
    C = 3 / g**3 if constant == "frei2022.flow" else 5 / g**2 * (10 * R2 / g**2 + 10)
    products = [abs(exact.dot(data.X[i], data.X[j])) for i, j in combinations(range(data.n), 2)]
    return least >= C * R2 * data.n * max(products)


@pytest.mark.parametrize("constant", list(near.CONSTANTS))
def test_near_orthogonality_from_the_definition(constant):
    answers = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, leak = int(rng.integers(2, 6)), [0.5, 0.9][seed % 2]
        X = np.eye(n, 8) * rng.uniform(1, 1.5, (n, 1)) + 10.0 ** rng.uniform(-5, -1) * rng.standard_normal((n, 8))
        data = mf.Dataset(X, np.where(np.arange(n) % 2 == 0, 1, -1))
        condition = near_orthogonality(data, constant, leak)
        assert condition.status == ("holds" if near_from_the_definition(data, constant, leak) else "fails")
        assert (condition.slack >= 0) == (condition.status == "holds")
        assert certificates.recheck(data, condition)
        answers.add(condition.status)
    assert len(answers) == 2


def test_equality_is_decided_exactly():
    # γ = 1/2: C = 24, and two rows of the same squared norm N need N >= 48 |x·z|. With one shared coordinate q and
    # four others of squares adding to 47 q² (36 + 9 + 1 + 1), N = 48 q² = 48 x·z.
    q = 1.0
    x = np.array([6, 3, 1, 1, q, 0, 0, 0, 0])
    z = np.array([0, 0, 0, 0, q, 6, 3, 1, 1])
    for scale in (1.0, 0.1, 1e-200):
        data = mf.Dataset([x * scale, z * scale], [1, -1])
        truth = near_from_the_definition(data, "frei2022.flow", 0.5)
        assert near_orthogonality(data).status == ("holds" if truth else "fails")
    assert near_orthogonality(mf.Dataset([x, z], [1, -1])).slack == 0.0
    assert near_orthogonality(mf.Dataset([x, z], [1, -1])).status == "holds"
    z[4] = np.nextafter(q, 2)
    assert near_orthogonality(mf.Dataset([x, z], [1, -1])).status == "fails"


def test_rows_beyond_float_range_of_each_other():
    data = mf.Dataset([[1e300, 0.0], [0.0, 1e-300], [1e300, 1e-300]], [1, -1, 1])
    for constant in near.CONSTANTS:
        condition = near_orthogonality(data, constant)
        assert (condition.status, condition.slack) == ("fails", -1.0)


def test_orthogonal_rows_hold_without_bound():
    condition = near_orthogonality(mf.Dataset(np.eye(4), [1, 1, -1, -1]))
    assert (condition.status, condition.measured, condition.slack) == ("holds", np.inf, np.inf)
    json.dumps(condition.to_json(), allow_nan=False)


def test_large_sets_stop_at_a_refuting_pair(monkeypatch):
    monkeypatch.setattr(near, "EVERY_PAIR", 10)
    data = CASES["phuong2021-large"].data
    condition = near_orthogonality(data)
    assert (condition.status, condition.witness["every_pair"]) == ("fails", False)
    assert certificates.recheck(data, condition)


# --- general position ---------------------------------------------------------------------------------------------


def in_general_position(data) -> bool:
    points = [*range(data.n), -1]
    return all(exact.rational_dependence(homogeneous(data, subset)) is None
               for k in range(2, data.d + 2) for subset in combinations(points, k))


def test_general_position_from_the_definition():
    answers = set()
    for seed in range(80):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(2, 7)), int(rng.integers(1, 4))
        X = rng.integers(-6, 7, (n, d)).astype(float) + (rng.standard_normal((n, d)) if seed % 3 == 0 else 0)
        X[~X.any(axis=1)] = 1.0
        data = mf.Dataset(X, np.where(np.arange(n) % 2 == 0, 1, -1))
        condition = general_position(data)
        assert condition.status == ("holds" if in_general_position(data) else "fails"), seed
        assert certificates.recheck(data, condition)
        assert (condition.slack > 0) == (condition.status == "holds")
        answers.add(condition.status)
    assert len(answers) == 2


def scattered(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d))


def _duplicate(X):
    X[30] = X[4]


def _parallel(X):
    X[30] = -4.0 * X[4]


def _triple(X):
    X[:, :] = np.round(X * 64) / 64
    X[30] = 2 * X[4] - X[9]


def _constant_column(X):
    X[:, 2] = 1.0


def _zero_column(X):
    X[:7, 1] = 0.0


def _rank(X):
    X[:, :] = np.round(X * 64) / 64
    X[:, 6] = X[:, 0] - X[:, 1]


@pytest.mark.parametrize(("spoil", "rows"), [(_duplicate, {4, 30}), (_parallel, {4, 30, -1}), (_triple, {4, 9, 30}),
                                             (_constant_column, None), (_zero_column, {-1, *range(7)}), (_rank, None)])
def test_dependent_points_are_named_where_not_every_subset_can_be_tried(spoil, rows):
    X = scattered(60, 7)
    spoil(X)
    data = mf.Dataset(X, np.where(np.arange(60) % 2 == 0, 1, -1))
    condition = general_position(data)
    assert condition.status == "fails"
    assert certificates.recheck(data, condition)
    assert rows is None or set(condition.witness["rows"]) == rows
    assert condition.measured == len(condition.witness["rows"])
    wrong = [str(Fraction(c) + (k == 0)) for k, c in enumerate(condition.witness["coefficients"])]
    assert not certificates.recheck(data, dataclasses.replace(
        condition, witness={**condition.witness, "coefficients": wrong}))


def test_undecided_says_what_was_ruled_out():
    condition = general_position(mf.Dataset(scattered(200, 12), np.where(np.arange(200) % 2 == 0, 1, -1)))
    assert (condition.status, condition.slack) == ("undecided", None)
    said = " ".join(condition.witness["ruled_out"])
    assert all(text in said for text in ("equal rows", "line through 0", "three rows", "rank", "sampled"))
    assert not certificates.recheck(mf.Dataset(np.eye(2), [1, -1]), condition)


def test_a_dead_coordinate_of_many_is_proof_enough():
    X = scattered(140, 120)
    X[:, 5] = 0.0
    data = mf.Dataset(X, np.where(np.arange(140) % 2 == 0, 1, -1))
    condition = general_position(data)
    assert (condition.status, condition.witness["column"], len(condition.witness["rows"])) == ("fails", 5, 121)
    assert certificates.recheck(data, condition)
    for change in ({"column": 4}, {"value": 1.0}, {"rows": condition.witness["rows"][1:]}):
        changed = dataclasses.replace(condition, witness={**condition.witness, **change})
        assert not certificates.recheck(data, changed)


def test_more_subsets_than_floats():
    n, d = 1500, 400
    condition = general_position(mf.Dataset(scattered(n, d), np.where(np.arange(n) % 2 == 0, 1, -1)))
    assert condition.status == "undecided"
    assert condition.witness["log10_subsets"] > 308


def test_fewer_rows_than_dimensions_are_one_subset():
    assert general_position(CASES["gaussian-mixture"].data).witness["subsets"] == 1
    X = np.round(scattered(5, 9) * 8)
    X[4] = X[0] + X[1] - X[2]
    condition = general_position(mf.Dataset(X, [1, -1, 1, -1, 1]))
    assert (condition.status, condition.witness["rows"]) == ("fails", [0, 1, 2, 4])


def test_rounding_does_not_hide_a_dependence_nor_make_one():
    # 0.1 + 0.2 is not 0.3 in floats: (0.1, 0.2), (0.2, 0.4) are parallel, (0.1, 0.3), (0.2, 0.6) too; 3·0.1 is not 0.3.
    assert general_position(mf.Dataset([[0.1, 0.2], [0.2, 0.4]], [1, -1])).status == "fails"
    assert general_position(mf.Dataset([[0.1, 0.1], [0.3, 0.1 * 3]], [1, -1])).status == "holds"
    assert position.WORK > 0


# --- support span -------------------------------------------------------------------------------------------------


def test_support_span_fails_on_the_experiment_of_the_paper():
    data = CASES["phuong2021-large"].data
    condition = support_span(data)
    assert condition.status == "fails"
    assert all(rank < data.d for rank in condition.witness["ranks"])
    assert condition.measured == min(condition.witness["ranks"])
    assert condition.slack == (condition.measured - 20) / 20
    assert certificates.recheck(data, condition)


def test_support_span_holds_where_every_row_is_a_support_example():
    # Rows on the hyperplanes w+·x = 1 and w-·x = 1 with w+ = -w- = e_1, and 0 in the convex hull of the rest.
    rest = np.array([[1.0, 0], [-1, 1], [-1, -1]])
    X = np.concatenate([np.c_[np.ones(3), rest], np.c_[-np.ones(3), rest]])
    data = mf.Dataset(X, [1, 1, 1, -1, -1, -1])
    condition = support_span(data)
    assert (condition.status, condition.witness["ranks"]) == ("holds", [3, 3])
    assert condition.slack > 0
    assert certificates.recheck(data, condition)
    side = {**condition.witness["positive"], "w": condition.witness["positive"]["w"] * [1, 1, 1] + [0, 0.5, 0]}
    spoiled = {**condition.witness, "positive": side}
    assert not certificates.recheck(data, dataclasses.replace(condition, witness=spoiled))


def test_a_class_with_0_in_its_hull_has_no_support_examples():
    data = mf.Dataset([[1.0, 0], [-1, 0], [0, 1], [0, 2]], [1, 1, -1, -1])
    condition = support_span(data)
    assert (condition.status, condition.witness["ranks"]) == ("fails", [0, 1])
    assert any("no such vector exists" in note for note in condition.notes)
    assert certificates.recheck(data, condition)
    side = {**condition.witness["positive"], "alpha_rows": [0]}
    spoiled = {**condition.witness, "positive": side, "negative": {**condition.witness["negative"], "rank": None}}
    assert not certificates.recheck(data, dataclasses.replace(condition, witness=spoiled))
