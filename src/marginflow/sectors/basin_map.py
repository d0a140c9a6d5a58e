"""The basin map: initial direction -> fate, for a million directions at once (theory §3.1)."""

import dataclasses
import math
from typing import Any

import numpy as np

from marginflow._core.arrays import double
from marginflow._core.errors import InputError
from marginflow._core.progress import progress
from marginflow._core.record import Record, Table, jsonable, show
from marginflow.data.dataset import Dataset
from marginflow.sectors import patterns
from marginflow.sectors.directions import SAME_DIRECTION, Extremal, record
from marginflow.sectors.early import ACROSS, Fate, path
from marginflow.sectors.local import Kind, local_kind

# x_kᵀv is 0 below this times ‖x_k‖ times the size of the fields: a call's worth of roundings (see selection).
ZERO = 1e-12
# Bytes and number of lanes advanced together: in cache on a CPU, enough to hide the start of each kernel on a GPU.
ROOM = {"cpu": (24 * 2**20, 8192), "gpu": (6 * 2**30, 2**18)}


@dataclasses.dataclass(frozen=True, eq=False)
class Basins(Record):
    """One row per direction.

    fate: a `Fate`'s name. limit: the direction at the end of the early phase. end: which of `limits`, -1 when the
    neuron is dead or undecided. time, events: of the last event, and how many. log_growth: log ‖w‖ gained by
    then. slid: the most hyperplanes it slid along at one time. retried: rows that the batch left undecided and
    the reference path decided.
    """

    sign: np.ndarray
    fate: np.ndarray
    limit: np.ndarray
    end: np.ndarray
    events: np.ndarray
    time: np.ndarray
    log_growth: np.ndarray
    slid: np.ndarray
    limits: tuple[Extremal, ...]
    retried: int = 0

    def counts(self) -> dict[str, int]:
        """How many directions meet each fate."""
        return {fate.value: int((self.fate == fate.value).sum()) for fate in Fate}

    def table(self) -> Table:
        n = len(self.fate)
        rows = [(name, str(count), f"{count / n:.4f}") for name, count in self.counts().items() if count]
        notes = (
            f"{len(self.limits)} end directions; {show(float((self.slid > 0).mean()))} of the neurons slid; "
            f"{show(float(self.events.mean()))} events on average",
        )
        return Table(f"fates of {n} directions", ("fate", "neurons", "share"), tuple(rows), notes)

    def to_json(self) -> dict[str, Any]:
        ends = [
            {**limit.to_json(), "neurons": int((self.end == k).sum())} for k, limit in enumerate(self.limits)
        ]
        return jsonable(
            {
                "directions": len(self.fate),
                "fates": self.counts(),
                "limits": ends,
                "slid": float((self.slid > 0).mean()),
                "events_mean": float(self.events.mean()),
                "events_max": int(self.events.max()),
                "retried": self.retried,
            }
        )


def basins(
    data: Dataset,
    directions,
    sign=None,
    loss="logistic",
    weights=None,
    lanes: int | None = None,
    max_events: int | None = None,
) -> Basins:
    """Fates of tiny neurons that start in `directions` (m, d), with output weights of the given sign.

    sign: 1 (the default), -1, or one per direction. lanes: neurons advanced together (default: what fits in
    24 MB, on a GPU 6 GB). Rows that rounding leaves open are decided by the reference path, or stay `undecided`.
    """
    W = np.atleast_2d(patterns.directions(data, directions))
    s = np.asarray(1 if sign is None else sign)
    if s.shape not in ((), (len(W),)) or not np.isin(s, (1, -1)).all():
        raise InputError("sign: give 1, -1, or one of them per direction")
    s = np.broadcast_to(s, (len(W),)).astype(np.int8)
    kappa = patterns.charges(data, loss, weights)
    cap = 50 * data.n + 1000 if max_events is None else max_events
    X = np.asarray(data.X, np.float64)
    raw: dict[str, np.ndarray] = {}
    with progress(len(W), "basins") as meter:
        for value in np.unique(s):
            rows = np.flatnonzero(s == value)
            part = _run(X, value * kappa, W[rows], lanes, cap, meter)
            for name, array in part.items():
                raw.setdefault(name, np.zeros((len(W), *array.shape[1:]), array.dtype))[rows] = array
    return _judged(data, X, kappa, W, s, raw, loss, weights, max_events)


@double
def _run(
    X: np.ndarray, p: np.ndarray, W: np.ndarray, lanes: int | None, cap: int, meter
) -> dict[str, np.ndarray]:
    """Stream the directions through a fixed number of lanes; finished lanes are refilled at every call."""
    import jax
    import jax.numpy as jnp

    from marginflow.sectors import batch

    X, p = X[p != 0], p[p != 0]
    rank = int(np.linalg.matrix_rank(X))
    # Coordinates of the span; the identity when the data span everything.
    basis = np.eye(X.shape[1]) if rank == X.shape[1] else np.linalg.svd(X, full_matrices=False)[2][:rank]
    Y = X @ basis.T
    norms = np.linalg.norm(Y, axis=1)
    slots = max(1, min(rank, int((p < 0).sum())))
    per_lane = 8 * (6 * slots * slots + 6 * rank + 8 * len(Y))
    room, most = ROOM["cpu" if jax.default_backend() == "cpu" else "gpu"]
    B = lanes or int(np.clip(room // per_lane, 64, most))
    B = min(B, 1 << max(6, (len(W) - 1).bit_length()))
    mix = np.random.default_rng(0).integers(1, 2**62, len(Y)) | 1
    problem = batch.Problem(
        jnp.asarray(Y),
        jnp.asarray(Y @ Y.T),
        jnp.asarray(p),
        jnp.asarray(norms),
        float(np.abs(p) @ norms),
        ZERO,
        ACROSS,
        cap,
        jnp.asarray(mix),
    )
    m = len(W)
    out = {
        "code": np.zeros(m, np.int8),
        "limit": np.zeros((m, X.shape[1])),
        "events": np.zeros(m, np.int32),
        "time": np.zeros(m),
        "log_growth": np.zeros(m),
        "slid": np.zeros(m, np.int32),
        "fingerprint": np.zeros(m, np.int64),
    }
    owner = np.full(B, -1)
    finished = np.ones(B, bool)
    state, following = batch.start(problem, jnp.zeros((rank, B)), jnp.zeros(B), slots), 0
    while True:
        places = np.flatnonzero(finished)
        batch_rows = np.arange(following, min(following + len(places), m))
        following += len(batch_rows)
        owner[places] = -1
        owner[places[: len(batch_rows)]] = batch_rows
        if (owner < 0).all():
            return out
        w, outside = np.zeros((rank, B)), np.zeros(B)
        w[0] = 1.0  # lanes without an owner idle
        new = places[: len(batch_rows)]
        outside[new] = _outward(W[batch_rows], basis)[1]
        w[:, new] = basis @ (W[batch_rows] / np.linalg.norm(W[batch_rows], axis=1, keepdims=True)).T
        state, v, fingerprint = batch.advance_many(problem, state, finished, w, outside)
        code = np.asarray(state.code)
        finished = (code != batch.RUNNING) | (owner < 0)
        done = np.flatnonzero(finished & (owner >= 0))
        if len(done):
            outward = _outward(W[owner[done]], basis)[0]
            _collect(out, owner[done], done, state, np.asarray(v), fingerprint, code, basis, outward)
            meter.advance(len(done))


def _collect(out, rows, lanes, state, v, fingerprint, code, basis, outward) -> None:
    """Write finished lanes to their rows. A neuron that stopped keeps its component outside the span of the data."""
    from marginflow.sectors.batch import RAY

    ray = code[lanes] == RAY
    inside = np.where(ray, v[:, lanes], np.asarray(state.w)[:, lanes]).T @ basis
    limit = inside + np.where(ray, 0.0, np.asarray(state.outside)[lanes])[:, None] * outward
    out["limit"][rows] = limit / np.linalg.norm(limit, axis=1, keepdims=True)
    out["code"][rows] = code[lanes]
    out["events"][rows] = np.asarray(state.events)[lanes]
    out["time"][rows] = np.asarray(state.time)[lanes]
    out["log_growth"][rows] = np.asarray(state.log_norm)[lanes]
    out["slid"][rows] = np.asarray(state.most)[lanes]
    out["fingerprint"][rows] = np.asarray(fingerprint)[lanes]


def _outward(W: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(unit direction, length) of the part of W/‖W‖ outside the span; rounding there counts as 0."""
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    rest = unit - (unit @ basis.T) @ basis
    length = np.linalg.norm(rest, axis=1)
    length[length <= ACROSS] = 0.0
    return np.divide(rest, length[:, None], out=np.zeros_like(rest), where=length[:, None] > 0), length


def _judged(data: Dataset, X, kappa, W, s, raw, loss, weights, max_events) -> Basins:
    """Name the fates: each end direction is examined once, undecided rows go to the reference path."""
    from marginflow.sectors import batch

    code, limit = raw["code"], raw["limit"]
    fate = np.full(len(code), Fate.UNDECIDED.value, dtype="U9")
    fate[code == batch.DEAD], fate[code == batch.RESTING] = Fate.DEAD.value, Fate.OTHER.value
    ends = _Ends(X.shape[1])
    end = np.full(len(code), -1, np.int32)
    arrived = np.isin(code, (batch.RAY, batch.PINNED))
    for sign in (1, -1):
        mine = np.flatnonzero(arrived & (s == sign))
        if not len(mine):
            continue
        p = sign * kappa
        _, first, index = np.unique(raw["fingerprint"][mine], return_index=True, return_inverse=True)
        number, names = np.zeros(len(first), np.int32), []
        for j, row in enumerate(mine[first]):
            number[j], name = _place(ends, X, p, kappa, limit[row], sign, code[row] == batch.PINNED)
            names.append(name)
        end[mine] = number[index]
        fate[mine] = np.array(names)[index]
    retried = np.flatnonzero(
        np.isin(code, (batch.UNSURE, batch.CROWDED)) | (arrived & (fate == Fate.UNDECIDED.value))
    )
    events, time, log_growth, slid = raw["events"], raw["time"], raw["log_growth"], raw["slid"]
    for row in retried:
        q = path(data, W[row], int(s[row]), loss, weights, max_events)
        fate[row], limit[row], events[row], time[row] = q.fate.value, q.limit, len(q.events), q.arcs[-1].time
        log_growth[row], slid[row] = q.arcs[-1].log_norm, max(int((arc.pattern == 0).sum()) for arc in q.arcs)
        end[row] = -1
        if q.fate in (Fate.POSITIVE, Fate.NEGATIVE, Fate.VANISHING):
            vanishing = q.fate is Fate.VANISHING
            end[row] = _place(ends, X, s[row] * kappa, kappa, q.limit, int(s[row]), vanishing)[0]
    return Basins(s, fate, limit, end, events, time, log_growth, slid, tuple(ends.limits), len(retried))


def _place(ends: "_Ends", X, p, kappa, u, sign: int, vanishing: bool) -> tuple[int, str]:
    """(index of the end direction u, added if new; its fate)."""
    kind = local_kind(X[p != 0], p[p != 0], u)
    if kind is not Kind.STRICT and vanishing:
        # Pinned within a span that is not the whole space: the direction gains by leaving it, the neuron cannot.
        return -1, Fate.VANISHING.value
    if kind is not Kind.STRICT:
        return -1, (Fate.OTHER if kind is Kind.NONE else Fate.UNDECIDED).value
    grows = float(p @ np.maximum(X @ u, 0.0)) > 0
    name = (Fate.POSITIVE if sign > 0 else Fate.NEGATIVE) if grows else Fate.VANISHING
    if grows == vanishing:
        return -1, Fate.UNDECIDED.value
    return ends.place(record(X, p, kappa, u)), name.value


class _Ends:
    """End directions found so far. A projection moves no farther than its vector, so equal ones share a bucket or lie
    in neighbouring ones: there may be thousands."""

    def __init__(self, d: int):
        along = np.random.default_rng(0).standard_normal(d)
        self.limits: list[Extremal] = []
        self._along = along / np.linalg.norm(along)
        self._buckets: dict[int, list[int]] = {}

    def place(self, found: Extremal) -> int:
        """Its index, added if it is new."""
        bucket = math.floor(float(found.direction @ self._along) / SAME_DIRECTION)
        for near in (bucket - 1, bucket, bucket + 1):
            for k in self._buckets.get(near, ()):
                known = self.limits[k]
                same = np.linalg.norm(known.direction - found.direction) <= SAME_DIRECTION
                if same and np.sign(known.G) == np.sign(found.G):
                    return k
        self.limits.append(found)
        self._buckets.setdefault(bucket, []).append(len(self.limits) - 1)
        return len(self.limits) - 1
