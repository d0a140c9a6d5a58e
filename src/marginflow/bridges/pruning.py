"""The head f(h) = aᵀρ(Wh + b) + c of a trained net, the two neurons it should have become, and what pruning changes.

Three replacements, each with two neurons ρ(v₊ᵀh̃) - ρ(v₋ᵀh̃) on h̃ = (h, 1) (h̃ = h without biases):

predicted   w± of the head's inputs: the limit of gradient flow from small balanced weights, where these inputs are
            orthogonally separable (Phuong & Lampert 2021). Elsewhere no theorem stands behind it and it is `vacuous`.
two_sided   each neuron fitted against both classes (`two_sided`): the same on orthogonally separable inputs.
collapsed   v± = Σ |a_j| (w_j, b_j) over the neurons with a_j > 0 and a_j < 0: nothing is fitted. Exact if the neurons
            of a sign are on and off together, as they are in the limit.
"""

import dataclasses
import time
from collections.abc import Mapping

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome, Status
from marginflow.bridges.two_sided import soft_neuron
from marginflow.data.dataset import Dataset

PENALTY = 1.0  # of two_sided, on inputs scaled to root mean square norm 1
REPEATS = 5  # of a timing; the fastest counts


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """f(h) = aᵀρ(Wh + b) + c, one output."""

    W: np.ndarray
    b: np.ndarray | None
    a: np.ndarray
    c: float

    @property
    def biased(self) -> bool:
        return self.b is not None

    @property
    def rows(self) -> np.ndarray:
        """(w_j, b_j)."""
        return self.W if self.b is None else np.concatenate([self.W, self.b[:, None]], axis=1)

    @property
    def parameters(self) -> int:
        return self.W.size + (0 if self.b is None else self.b.size) + self.a.size + int(self.c != 0.0)

    def __call__(self, h: np.ndarray) -> np.ndarray:
        pre = h @ self.W.T if self.b is None else h @ self.W.T + self.b
        return np.maximum(pre, 0.0) @ self.a + self.c


@dataclasses.dataclass(frozen=True, eq=False)
class Replacement(Record):
    """Two neurons: `net` computes them. fit_seconds: to find them from the inputs of the head."""

    name: str
    status: Status
    net: Weights
    fit_seconds: float
    outcome: Outcome
    message: str = ""


@dataclasses.dataclass(frozen=True)
class Pruned(Record):
    """A replacement against the trained head on `examples` rows it was not fitted on.

    agreement: share of rows with the same class as the trained head. microseconds: per row, both in NumPy.
    """

    name: str
    status: Status
    examples: int
    accuracy: float
    trained_accuracy: float
    agreement: float
    silent: float
    parameters: int
    trained_parameters: int
    microseconds: float
    trained_microseconds: float
    fit_seconds: float
    message: str = ""

    COLUMNS = ("replacement", "status", "accuracy", "trained", "agreement", "both neurons off", "parameters", "of",
               "µs a row", "µs trained", "fit, s")  # fmt: skip

    def row(self) -> tuple[str, ...]:
        return (
            self.name, self.status.value, f"{self.accuracy:.4%}", f"{self.trained_accuracy:.4%}",
            f"{self.agreement:.4%}", f"{self.silent:.2%}", str(self.parameters), str(self.trained_parameters),
            f"{self.microseconds:.3g}", f"{self.trained_microseconds:.3g}", f"{self.fit_seconds:.3g}",
        )  # fmt: skip

    def table(self) -> Table:
        return Table("pruned head", self.COLUMNS, (self.row(),), (self.message,) if self.message else ())


def must_be_relu(first: str, last: str, pre: np.ndarray, post: np.ndarray) -> None:
    """The values that reach the last layer must be the ReLU of what the layer before gives, to the last bit."""
    if pre.shape == post.shape and np.array_equal(np.maximum(pre, 0), post):
        return
    if pre.shape != post.shape:
        found = f"'{first}' gives {pre.shape[1]} numbers and '{last}' receives {post.shape[1]}"
    else:
        i, j = np.argwhere(np.maximum(pre, 0) != post)[0]
        found = f"'{first}' gives {pre[i, j]:.6g} where '{last}' receives {post[i, j]:.6g}"
    raise InputError(
        f"the last two layers are not linear-ReLU-linear: {found}; the head must end Linear, ReLU, Linear "
        "(leave the head out with head=False or --no-head)"
    )


def replacements(weights: Weights, h: np.ndarray, y: np.ndarray) -> list[Replacement]:
    """The three, from inputs h of the head with labels y = ±1."""
    X = np.concatenate([h, np.ones((len(h), 1), h.dtype)], axis=1) if weights.biased else h
    return [predicted(weights, X, y), two_sided(weights, X, y), collapsed(weights)]


def predicted(weights: Weights, X: np.ndarray, y: np.ndarray) -> Replacement:
    """w± of the rows X, with Theorem 1's assumption as status."""
    from marginflow import margins
    from marginflow.conditions.orthogonal_separability import orthogonal_separability

    start = time.perf_counter()
    if not X.any(axis=1).all():
        row = int(np.argmin(X.any(axis=1)))
        return _nothing(
            "predicted", weights, f"row {row} of the head's inputs is zero: no neuron is active on it"
        )
    data = Dataset(X, y, "inputs of the head")
    sides = {"positive": margins.positive(data), "negative": margins.negative(data)}
    seconds = time.perf_counter() - start
    for sign, side in sides.items():
        if side.vector is None:
            return _nothing("predicted", weights, f"the {sign} class has 0 in its hull: no neuron covers it")
    condition = orthogonal_separability(data)
    message = ""
    if condition.status is not Status.HOLDS:
        i, j = condition.witness["rows"]
        message = (
            f"the head's inputs are not orthogonally separable ({condition.witness['kind']}-class rows {i} and {j}, "
            f"cosine {condition.witness['cosine']:.3g}): the theorem is silent, and this is only its formula"
        )
    certified = all(side.certified for side in sides.values())
    status = Status.VACUOUS if message else Status.HOLDS if certified else Status.UNDECIDED
    vectors = [side.vector for side in sides.values() if side.vector is not None]
    outcome = next(
        (s.outcome for s in sides.values() if s.outcome is not Outcome.CONVERGED), Outcome.CONVERGED
    )
    return Replacement("predicted", status, _two(vectors, weights.biased), seconds, outcome, message)


def two_sided(weights: Weights, X: np.ndarray, y: np.ndarray) -> Replacement:
    start = time.perf_counter()
    scale = float(np.sqrt(np.mean(np.einsum("ij,ij->i", X, X, dtype=np.float64)))) or 1.0
    Z = X.astype(np.float64) / scale
    found = [soft_neuron(Z[y == s], Z[y == -s], PENALTY * len(X)) for s in (1.0, -1.0)]
    seconds = time.perf_counter() - start
    outcome = next((n.outcome for n in found if n.outcome is not Outcome.CONVERGED), Outcome.CONVERGED)
    vectors = [n.w / scale for n in found]
    return Replacement("two_sided", Status.VACUOUS, _two(vectors, weights.biased), seconds, outcome,
                       "a fit to these inputs, not a prediction")  # fmt: skip


def collapsed(weights: Weights) -> Replacement:
    start = time.perf_counter()
    rows = weights.rows
    vectors = [np.maximum(s * weights.a, 0.0) @ rows for s in (1.0, -1.0)]
    net = dataclasses.replace(_two(vectors, weights.biased), c=weights.c)
    message = "sums of the trained neurons; exact where those of one sign are on and off together"
    return Replacement(
        "collapsed", Status.VACUOUS, net, time.perf_counter() - start, Outcome.CONVERGED, message
    )


def _two(vectors, biased: bool) -> Weights:
    rows = np.stack(vectors)
    W, b = (rows[:, :-1], rows[:, -1]) if biased else (rows, None)
    return Weights(W, b, np.array([1.0, -1.0]), 0.0)


def _nothing(name: str, weights: Weights, why: str) -> Replacement:
    d = weights.W.shape[1]
    zero = Weights(np.zeros((2, d)), np.zeros(2) if weights.biased else None, np.array([1.0, -1.0]), 0.0)
    return Replacement(
        name, Status.VACUOUS, zero, 0.0, Outcome.INFEASIBLE, why + "; the replacement is constant"
    )


def compare(trained: Weights, replacement: Replacement, h: np.ndarray, y: np.ndarray) -> Pruned:
    """Both heads on rows that neither margin problem saw."""
    dtype = h.dtype
    full, small = cast(trained, dtype), cast(replacement.net, dtype)
    f, g = full(h), small(h)
    said, says = np.where(f > 0, 1, -1), np.where(g > 0, 1, -1)
    off = np.all(h @ small.W.T + (0 if small.b is None else small.b) <= 0, axis=1)
    return Pruned(
        replacement.name, replacement.status, len(h), float(np.mean(says == y)), float(np.mean(said == y)),
        float(np.mean(said == says)), float(np.mean(off)), replacement.net.parameters, trained.parameters,
        seconds_per_row(small, h) * 1e6, seconds_per_row(full, h) * 1e6, replacement.fit_seconds, replacement.message,
    )  # fmt: skip


def cast(weights: Weights, dtype) -> Weights:
    b = None if weights.b is None else weights.b.astype(dtype)
    return Weights(weights.W.astype(dtype), b, weights.a.astype(dtype), float(weights.c))


def seconds_per_row(net: Weights, h: np.ndarray) -> float:
    def once() -> float:
        start = time.perf_counter()
        net(h)
        return time.perf_counter() - start

    return min(once() for _ in range(REPEATS)) / len(h)


@dataclasses.dataclass(frozen=True, eq=False)
class HeadReport(Record):
    """The last two layers against one pair of classes.

    prediction: `phuong2021.theorem1` on the head's inputs: status, w_plus, w_minus, normalised_margin.
    neurons: how the trained ones stand to it: cosines with w+ (a_j > 0) and w- (a_j < 0). kkt: of the head alone.
    pruned: each replacement on held-out rows. held_out: where those rows came from.
    """

    target: str
    layers: tuple[str, str]
    width: int
    prediction: Mapping[str, object]
    neurons: Mapping[str, object]
    kkt: Mapping[str, object]
    pruned: tuple[Pruned, ...]
    held_out: str
    replacements: tuple[Replacement, ...]
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        # The vectors are in the JSON.
        words = {k: v for k, v in self.prediction.items() if not hasattr(v, "shape")}
        rows = [(f"prediction: {k}", show(v)) for k, v in words.items()]
        rows += [(f"neurons: {k}", show(v)) for k, v in self.neurons.items()]
        rows += [(f"KKT: {k}", show(v)) for k, v in self.kkt.items()]
        title = f"head {self.layers[0]} → ReLU → {self.layers[1]} ({self.width} neurons): {self.target}"
        pruned = Table(f"the head pruned to two neurons, on {self.held_out}", Pruned.COLUMNS,
                       tuple(p.row() for p in self.pruned),
                       tuple(f"{p.name}: {p.message}" for p in self.pruned if p.message))  # fmt: skip
        return [Table(title, ("quantity", "value"), tuple(rows), self.notes), pruned]

    def to_json(self) -> dict:
        from marginflow._core.record import jsonable

        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "replacements"}
        nets = {r.name: {"W": r.net.W, "b": r.net.b, "a": r.net.a, "c": r.net.c} for r in self.replacements}
        return jsonable({**out, "replacement": nets})


def standing(weights: Weights, replacement: Replacement) -> dict[str, object]:
    """Cosines of the trained neurons with the predicted direction of their sign, weighted by what they contribute."""
    rows, lengths = weights.rows, np.linalg.norm(weights.rows, axis=1)
    out: dict[str, object] = {"positive": int(np.sum(weights.a > 0)), "negative": int(np.sum(weights.a < 0))}
    for name, s, v in zip(("positive", "negative"), (1.0, -1.0), replacement.net.rows, strict=True):
        own = (s * weights.a > 0) & (lengths > 0)
        if not own.any() or not v.any():
            continue
        cosines = rows[own] @ v / (lengths[own] * np.linalg.norm(v))
        share = np.abs(weights.a[own]) * lengths[own]
        out |= {f"{name}_cosine": float(cosines @ share / share.sum()),
                f"{name}_aligned": float(np.mean(cosines > 0.9))}  # fmt: skip
    return out
