"""The benchmarks still run, mean what they say, and their answers are right. Nothing here looks at a clock."""

import math
import os
import time

import pytest

from benchmarks import __main__ as suite
from benchmarks import (
    apart,
    basins,
    f1,
    flow,
    growth,
    hard_margin,
    late_phase,
    orthogonal_separability,
    page,
    seeds,
    startup,
)
from benchmarks.table import Aim, Least, Row, Run, Slope, against_best, faster

QUICK = Run(quick=True)


def rows_of(module) -> list[Row]:
    entries = list(module.rows(QUICK))
    for entry in entries:
        assert page.decoded(page.encoded(entry)).work == entry.work
    found = [entry for entry in entries if isinstance(entry, Row)]
    assert all(row.seconds is None or row.seconds > 0 for row in found)
    assert any(row.method.startswith("marginflow") for row in found)
    return found


def test_separability_agrees_with_the_scan():
    for row in rows_of(orthogonal_separability):
        assert row.quality["status"] == "holds", row


def test_the_scan_sees_a_planted_violation():
    broken, _ = orthogonal_separability.planted(orthogonal_separability.orthants(1200, 10))
    pairs = orthogonal_separability.blocks(broken)
    assert not orthogonal_separability.scan(orthogonal_separability.parts(broken), pairs)
    assert orthogonal_separability.orthogonal_separability(broken).status.value == "fails"


def test_blocks_cover_every_pair_once():
    data = orthogonal_separability.orthants(4200, 3)
    sizes = [
        min(orthogonal_separability.BLOCK, 2100 - start)
        for start in range(0, 2100, orthogonal_separability.BLOCK)
    ]
    within = sum(a * b for i, a in enumerate(sizes) for b in sizes[i:])
    assert (
        len(orthogonal_separability.blocks(data)) == 2 * len(sizes) * (len(sizes) + 1) // 2 + len(sizes) ** 2
    )
    assert 2 * within + 2100**2 >= 4200 * 4201 // 2


def test_hard_margins_are_optimal_and_no_peer_beats_the_bound():
    pytest.importorskip("sklearn")
    pytest.importorskip("cvxpy")
    for row in rows_of(hard_margin):
        assert row.quality["shortfall"] >= -1e-12, row
        if row.method == "marginflow":
            assert row.quality["shortfall"] <= 1e-9


@pytest.mark.parametrize(
    ("call", "work", "limit", "note"),
    [
        (time.sleep, 600, 0.1, "stopped after 0.1 s"),
        (math.sqrt, -1.0, 300, "failed: ValueError"),
        (os._exit, 3, 300, "its process ended"),
    ],
)
def test_a_peer_that_does_not_arrive_says_why(call, work, limit, note):
    *nothing, why = apart.apart(call, (work,), (0,), limit)
    assert nothing == [None, None, None]
    assert note in why


def test_a_peer_apart_hands_back_its_answer():
    answer, seconds, first, why = apart.apart(math.sqrt, (4.0,), (1.0,), 300)
    assert (answer, why) == (2.0, "")
    assert seconds is not None
    assert first is not None


def test_f1_beats_what_its_peers_reach():
    pytest.importorskip("cvxpy")
    ours, *peers = rows_of(f1)
    assert ours.quality["gap"] <= 1e-6
    assert all(row.quality["margin"] <= ours.quality["margin"] * (1 + 1e-9) for row in peers)


def test_every_way_of_training_seeds_learns():
    found = rows_of(seeds)
    for row in found:
        assert row.quality["log loss"] < math.log(math.log(2)) + 1e-3, row
    losses = [row.quality["log loss"] for row in found]
    assert max(losses) - min(losses) < 0.1


def test_seconds_of_seeds_are_those_of_the_whole_work(monkeypatch):
    """With a clock on which every call takes a second: what is measured on a part is divided by the part."""
    monkeypatch.setattr(seeds, "clock", lambda call, warm=None, **_: ({"log loss": 0.0}, 1.0, 0.0))

    class Full(Run):
        def choose(self, full, quick):
            return full

    entries = list(seeds.rows(Full(quick=True)))
    rows = [entry for entry in entries if isinstance(entry, Row)]
    for row in rows:
        assert row.seconds == pytest.approx(1.0 / row.whole), row
    assert min(row.whole for row in rows if row.method == "marginflow") < 0.1
    largest = [row for row in rows if row.case.startswith("10,000 ")]
    mine = largest[0]
    for aim in entries:
        if isinstance(aim, Aim) and aim.case == mine.case:
            against = next(row for row in largest if row.method == aim.against)
            assert against.seconds
            assert mine.seconds
            assert aim.reached == pytest.approx(against.seconds / mine.seconds)


def test_many_nets_are_trained_in_batches_of_the_peers_best_size(monkeypatch):
    speed = {10: 1.0, 100: 50.0}  # seconds of one call of the peer: ten at a time are five times as quick

    def clock(call, warm=None, **_):
        return {"log loss": 0.0}, float(call()), 0.0

    monkeypatch.setattr(seeds, "clock", clock)
    monkeypatch.setattr(seeds, "ours", lambda data, members, epochs: 1.0)
    monkeypatch.setattr(
        seeds, "_peers", lambda *_: [("peer", None, lambda size, epochs: speed.get(size, 1.0) * epochs / 500)]
    )

    class Full(Run):
        def choose(self, full, quick):
            return full

    rows = {row.case: row for row in seeds.rows(Full()) if isinstance(row, Row) and row.method == "peer"}
    many = rows["10,000 seeds, 500 epochs"]
    assert many.seconds == pytest.approx(1000.0)
    assert many.note == "in batches of 10"
    assert rows["10 seeds, 500 epochs"].note == ""


def test_the_flow_arrives_and_peers_solve_the_same_equation():
    pytest.importorskip("torchdiffeq")
    found = rows_of(flow)
    to_angle = next(row for row in found if row.method == "marginflow")
    assert to_angle.quality["angle"] <= flow.ANGLE * 1.001
    at_infinity = found[-1]
    assert at_infinity.quality["angle"] < 1e-9
    assert at_infinity.quality["off the predicted margin"] < 1e-9


def test_peers_of_the_flow_follow_it():
    """The field that peers integrate, against ours at one time in the middle of training."""
    import numpy as np
    from scipy import integrate

    import marginflow as mf

    problem = flow.Problem.of(12, 3, 4)
    run = mf.train(problem.net, problem.theta, problem.data, method="flow", until=("log_time", 3.0))
    s = float(run.history["s"][-1])
    field = problem.field(np)
    peer = integrate.solve_ivp(lambda s, z: field(z), (0, s), problem.start, rtol=1e-9, atol=1e-12).y[:, -1]
    ours = np.concatenate([np.ravel(run.theta["W"]), run.theta["a"]])
    assert np.linalg.norm(peer - ours) <= 1e-3 * np.linalg.norm(ours)


@pytest.mark.slow
def test_diffrax_goes_the_same_way():
    problem = flow.Problem.of(12, 3, 4)
    watch = flow.Watch(problem, 2.0)
    start = problem.angle(problem.start)
    flow.diffrax(problem, watch)
    assert watch.clock > 0
    assert watch.angle < start


def test_small_steps_end_where_the_exact_map_says():
    exact, small = rows_of(basins)
    assert exact.quality["undecided"] == 0
    assert small.quality["agreement"] >= 0.9


def test_late_phase_knows_no_width():
    found = rows_of(late_phase)
    margins = [row.quality["normalised margin"] for row in found]
    assert {row.quality["groups"] for row in found} == {2}
    assert max(margins) - min(margins) < 1e-3 * max(margins)


def test_estimators_classify():
    pytest.importorskip("sklearn")
    from benchmarks import estimators

    for row in rows_of(estimators):
        assert row.quality["accuracy"] > 0.8, row


def test_processes_answer():
    assert all(row.quality["answer"] == "answered" for row in rows_of(startup))


def test_growth_names_every_law():
    found = list(growth.rows(QUICK))
    assert all(isinstance(slope, Slope) and slope.because for slope in found)
    assert {slope.variable for slope in found} == {"n", "d"}


def test_a_slope_is_recovered():
    slope = Slope.of("work", "n", [(n, 3.0 * n**1.5) for n in (10, 100, 1000)], "")
    assert slope.slope == pytest.approx(1.5)
    assert slope.local == pytest.approx(1.5)


def test_only_answers_of_equal_quality_count():
    def row(method, seconds, gap):
        return Row("w", "c", method, seconds, {"gap": gap})

    ours, wrong, slow = row("marginflow", 1.0, 0.0), row("fast and wrong", 0.1, 0.5), row("slow", 5.0, 0.0)
    good = lambda row: row.quality["gap"] <= 1e-6  # noqa: E731
    assert against_best(ours, [wrong, slow], good) == (5.0, "slow")
    assert not faster(ours, [wrong, slow], 10, good, "").met
    assert faster(ours, [wrong], 10, good, "").met
    assert not faster(row("marginflow", 0.1, 0.5), [slow], 10, good, "").met


def test_a_floor_is_the_slower_of_arithmetic_and_reading():
    rates = {"double": 1e9, "single": 2e9, "bandwidth": 1e10}
    assert Least(3e9, 1e9).seconds(rates) == 3.0
    assert Least(3e9, 1e11, "single").seconds(rates) == 10.0


def test_the_suite_from_command_to_page(tmp_path, capsys):
    out, target = tmp_path / "run.json", tmp_path / "run.md"
    code = suite.main(
        ["--quick", "--only", "orthogonal_separability", "--out", str(out), "--page", str(target)]
    )
    assert code == 0
    result = page.Result.load(out)
    assert result.groups["orthogonal_separability"]["outcome"] == "finished"
    assert result.of(Aim)
    assert result.of(Row)
    assert target.read_text() == page.markdown(result)
    assert "## Orthogonal separability" in target.read_text()


def test_a_group_past_its_limit_is_stopped_and_said_so():
    entries, outcome = suite.measured("flow", QUICK, 0.2)
    assert (entries, outcome) == ([], "stopped at 0.2 s")


def test_a_machine_without_a_gpu_is_told_so(capsys):
    import jax

    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this machine has a GPU")
    assert suite.main(["--gpu", "--only", "seeds"]) == 2
    assert "no CUDA device" in capsys.readouterr().err
