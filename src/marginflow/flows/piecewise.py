"""Two-layer nets with a piecewise-linear activation, as the flow sees them: weights of examples, fields, exact arcs.

Write π_i = -ℓ'(q_i)/L, c_i = π_i y_i, and use the clock ds = L dt. A neuron with slopes s_i (1 where wᵀx_i > 0, the
leak where wᵀx_i < 0) feels the field v = P Σ c_i s_i x_i and moves by

    dw/ds = a v,   da/ds = vᵀw      (both layers trained),        dw/ds = a v      (input layer alone),

P the projection off span{x_k : wᵀx_k = 0} for the hyperplanes it slides along. While v is constant the first system
is a hyperbolic rotation in the plane of v and a, so a² - ‖w‖² is kept to rounding however long the arc.
"""

import dataclasses

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.logs import log_sum_exp
from marginflow.data.dataset import Dataset
from marginflow.losses import Loss
from marginflow.nets.two_layer import TwoLayer

# wᵀx_k counts as on the wrong side only beyond this times ‖w‖‖x_k‖: event times are roots to this accuracy.
SIDE = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """The data in coordinates of their span, and the rule of motion. X: (n, r), r = min(n, d)."""

    X: np.ndarray
    y: np.ndarray
    norms: np.ndarray
    basis: np.ndarray | None  # (d, r), orthonormal columns; None: the coordinates are the original ones
    loss: Loss
    leak: float
    gain: float
    both: bool

    @property
    def r(self) -> int:
        return self.X.shape[1]


def problem(net: TwoLayer, data: Dataset, loss: Loss) -> Problem:
    """What the exact engines need to know; InputError for a net that is not theirs."""
    if not covers(net):
        raise InputError(f"{net}: exact events need a two-layer net with one output, a piecewise-linear activation and "
                         "train both or input; use mode='adaptive'")
    X, basis = np.asarray(data.X, np.float64), None
    if data.d > data.n:
        # Only the part of w in span{x_i} moves, and nothing but that part is seen: n coordinates carry the flow.
        basis, upper = np.linalg.qr(X.T)
        X = np.ascontiguousarray(upper.T)
    return Problem(X, np.asarray(data.y, np.float64), np.linalg.norm(X, axis=1), basis, loss,
                   float(net.activation.leak), 1.0 / net.width if net.mean_field else 1.0, net.train == "both")  # type: ignore[arg-type]


def covers(net) -> bool:
    return (isinstance(net, TwoLayer) and net.outputs == 1 and net.activation.leak is not None
            and net.train in ("both", "input"))


def into(problem: Problem, W: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """(coordinates of the rows of W in the span, the part that never moves)."""
    if problem.basis is None:
        return np.array(W, np.float64), None
    inside = W @ problem.basis
    return inside, W - inside @ problem.basis.T


def outof(problem: Problem, inside: np.ndarray, still: np.ndarray | None) -> np.ndarray:
    return inside.copy() if problem.basis is None else inside @ problem.basis.T + still


@dataclasses.dataclass(frozen=True, eq=False)
class Weighing:
    """One look at the loss: outputs f, log L, signed weights c_i = π_i y_i."""

    f: np.ndarray
    log_loss: float
    c: np.ndarray

    def margin(self, problem: Problem) -> float:
        return float(np.min(problem.y * self.f))


def weigh(problem: Problem, f: np.ndarray) -> Weighing:
    q = problem.y * f
    log_loss = float(log_sum_exp(problem.loss.log_value(q)))
    return Weighing(f, log_loss, problem.y * np.exp(problem.loss.log_slope(q) - log_loss))


@dataclasses.dataclass(frozen=True, eq=False)
class Slides:
    """Pairs (neuron, example) with the neuron held on the example's hyperplane.

    `dual` holds one row of (X_Z X_Zᵀ)⁻¹X_Z per pair, Z the neuron's hyperplanes: μ_k = dual·v are the coordinates of
    the part of v in span{x_k}, hence P v = v - Σ μ_k x_k, and Filippov's coefficient of x_k is λ_k = -μ_k/c_k.
    """

    neuron: np.ndarray
    example: np.ndarray
    dual: np.ndarray

    @classmethod
    def none(cls, r: int) -> "Slides":
        return cls(np.zeros(0, int), np.zeros(0, int), np.zeros((0, r)))

    @classmethod
    def of(cls, problem: Problem, held: dict[int, np.ndarray]) -> "Slides":
        parts = [(np.full(len(Z), j), Z, np.linalg.pinv(problem.X[Z]).T) for j, Z in sorted(held.items()) if len(Z)]
        if not parts:
            return cls.none(problem.r)
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def held(self) -> dict[int, np.ndarray]:
        return {int(j): self.example[self.neuron == j] for j in np.unique(self.neuron)}

    def __len__(self) -> int:
        return len(self.neuron)


def fields(problem: Problem, slopes: np.ndarray, slides: Slides, c: np.ndarray) -> np.ndarray:
    """v of every neuron, (p, r)."""
    V = (slopes * c) @ problem.X
    if len(slides):
        mu = np.einsum("kr,kr->k", slides.dual, V[slides.neuron])
        np.subtract.at(V, slides.neuron, mu[:, None] * problem.X[slides.example])
    return V


def rooms(problem: Problem, slopes: np.ndarray, slides: Slides, c: np.ndarray) -> np.ndarray:
    """(2, pairs): c_k-weighted distances of λ_k from the leak and from 1; a negative one ends the sliding.

    slopes is 0 on the pairs themselves, so V is the pull of the other examples.
    """
    V = (slopes[slides.neuron] * c) @ problem.X
    mu = np.einsum("kr,kr->k", slides.dual, V)
    ck = c[slides.example]
    pull, size = -mu * np.sign(ck), np.abs(ck)
    return np.stack([pull - problem.leak * size, size - pull])


def arc(problem: Problem, W: np.ndarray, a: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The exact motion for a unit of time under constant fields V."""
    if not problem.both:
        return W + a[:, None] * V, a
    # sinh(z)/z and (cosh(z) - 1)/z² = 2 (sinh(z/2)/z)²: no cancellation for short arcs; both are even, and right to
    # rounding at 1e-150 as they are at 0
    size = np.maximum(np.sqrt(np.einsum("pr,pr->p", V, V)), 1e-150)
    slope = np.sinh(size) / size
    bend = 2 * (np.sinh(size / 2) / size) ** 2
    along = np.einsum("pr,pr->p", W, V)
    return W + (bend * along + slope * a)[:, None] * V, a + bend * size**2 * a + slope * along


def slopes_of(problem: Problem, sigma: np.ndarray) -> np.ndarray:
    """φ' by sector sign: 1 on, the leak off, 0 for an example whose hyperplane holds the neuron."""
    on = (sigma > 0).astype(float)
    return on + problem.leak * (sigma < 0) if problem.leak else on
