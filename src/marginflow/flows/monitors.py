"""What is watched while a net trains. A monitor is a name and a pure function of one `View`; the driver batches it.

`observe` evaluates the chosen monitors at one moment; `Recorder` decides the moments: evenly in log t, in bounded
memory.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow.nets.activations import active


class View(NamedTuple):
    """One member at one moment, as arrays. `q` are the margins, `previous` the weights at the last record."""

    net: Any
    loss: Any
    theta: Mapping[str, Any]
    initial: Mapping[str, Any]
    previous: Mapping[str, Any]
    q: Any
    X: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Monitor:
    name: str
    measure: Callable[[View], Any] = dataclasses.field(repr=False)


def log_loss(view: View):
    """log of the mean loss."""
    from marginflow._core.logs import log_sum_exp

    return log_sum_exp(view.loss.log_value(view.q)) - math.log(view.q.shape[0])


def log_norm(net, theta):
    """log ‖θ‖ over the trained weights."""
    import jax.numpy as jnp

    # scaled by the largest entry: θ may exceed the square root of float range
    leaves = [theta[name] for name in net.trained]
    top = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
    scale = jnp.where(top > 0, top, 1.0)
    return jnp.log(scale) + 0.5 * jnp.log(sum(jnp.sum((leaf / scale) ** 2) for leaf in leaves))


def inverse_loss(loss, log_value):
    """ℓ⁻¹(e^log_value) by Newton's method on log ℓ.

    Started at -log_value, exact for the exponential loss. For a log-concave decreasing ℓ (the logistic one) the
    iterates are monotone after the first and quadratically convergent; eight reach rounding for log_value <= log ℓ(0).
    """
    import jax.numpy as jnp

    q = -log_value
    for _ in range(8):
        rate = jnp.exp(loss.log_slope(q) - loss.log_value(q))  # -d log ℓ/dq
        q = q + (loss.log_value(q) - log_value) / rate
    return q


def smoothed_margin(net, loss, theta, log_total):
    """ℓ⁻¹(Σ ℓ(q_i))/‖θ‖^k, Lyu & Li's smoothed normalised margin; meant for Σ ℓ < ℓ(0), when all q_i > 0."""
    import jax.numpy as jnp

    return inverse_loss(loss, log_total) * jnp.exp(-net.degree * log_norm(net, theta))


def _normalised_margin(view: View):
    import jax.numpy as jnp

    if view.net.degree is None:
        return jnp.full((), jnp.nan, view.q.dtype)
    return jnp.min(view.q) * jnp.exp(-view.net.degree * log_norm(view.net, view.theta))


def _smoothed(view: View):
    import jax.numpy as jnp

    if view.net.degree is None:
        return jnp.full((), jnp.nan, view.q.dtype)
    log_total = log_loss(view) + math.log(view.q.shape[0])
    separated = log_total < view.loss.log_value(jnp.zeros((), view.q.dtype))
    return jnp.where(
        separated,
        smoothed_margin(view.net, view.loss, view.theta, jnp.where(separated, log_total, -1.0)),
        jnp.nan,
    )


def _matrices(theta) -> list[Any]:
    return [w.reshape(w.shape[0], -1) for _, w in sorted(theta.items()) if w.ndim >= 2]


def squared_singular_values(matrix):
    """Eigenvalues of the smaller Gram matrix, ascending: enough for ratios of squares, and far cheaper than an SVD."""
    import jax.numpy as jnp

    tall = matrix.shape[0] >= matrix.shape[1]
    return jnp.linalg.eigvalsh(matrix.T @ matrix if tall else matrix @ matrix.T)


def _stable_rank(view: View):
    """‖W‖_F²/‖W‖₂² of the first layer."""
    import jax.numpy as jnp

    matrix = view.theta["W"] if "W" in view.theta else _matrices(view.theta)[0]
    top = jnp.max(jnp.abs(matrix))
    matrix = matrix / jnp.where(top > 0, top, 1.0)
    spectrum = squared_singular_values(matrix)
    return jnp.where(top > 0, jnp.sum(matrix**2) / spectrum[-1], 0.0)


def _weight_norm(view: View):
    """‖θ‖ over the trained weights."""
    import jax.numpy as jnp

    return jnp.exp(log_norm(view.net, view.theta))


def _balance(view: View):
    """max_j |a_j² - ‖w_j‖²| relative to max_j ‖(w_j, a_j)‖²: 0 for a balanced two-layer net."""
    import jax.numpy as jnp

    if not {"W", "a"} <= set(view.theta):
        raise InputError("the monitor 'balance' is defined for two-layer nets")
    w2, a2 = jnp.sum(view.theta["W"] ** 2, axis=1), view.theta["a"] ** 2
    return jnp.max(jnp.abs(a2 - w2)) / jnp.max(a2 + w2)


def _pattern_changes(view: View):
    """How many pairs (neuron, example) switched between active and not since the last record."""
    import jax.numpy as jnp

    if "W" not in view.theta:
        raise InputError("the monitor 'pattern_changes' is defined for two-layer nets")
    return jnp.sum(active(view.X @ view.theta["W"].T) != active(view.X @ view.previous["W"].T))


def _margin_min(view: View):
    import jax.numpy as jnp

    return jnp.min(view.q)


MONITORS = {
    m.name: m
    for m in (
        Monitor("log_loss", log_loss),
        Monitor("margin_min", _margin_min),
        Monitor("normalised_margin", _normalised_margin),
        Monitor("smoothed_margin", _smoothed),
        Monitor("stable_rank", _stable_rank),
        Monitor("weight_norm", _weight_norm),
        Monitor("balance", _balance),
        Monitor("pattern_changes", _pattern_changes),
        Monitor("margins", lambda view: view.q),
    )
}
ALWAYS = ("log_loss", "margin_min", "normalised_margin")


def alignment(directions, name: str = "alignment") -> Monitor:
    """cos of the angle between every neuron w_j and each row of `directions`: shape (width, rows)."""
    D = np.asarray(directions, dtype=np.float64)
    D = D / np.linalg.norm(D, axis=-1, keepdims=True)

    def measure(view: View):
        import jax.numpy as jnp

        W = view.theta["W"]
        length = jnp.linalg.norm(W, axis=1, keepdims=True)
        return (W @ jnp.asarray(D, W.dtype).T) / jnp.where(length > 0, length, 1.0)

    return Monitor(name, measure)


def monitors(chosen, net) -> tuple[Monitor, ...]:
    """The monitors named or given, after those every run carries."""
    if chosen is None:
        chosen = ("stable_rank", "weight_norm") if len(net.shapes(1)) and _has_matrix(net) else ()
    found = [MONITORS[name] for name in ALWAYS]
    for item in chosen:
        if isinstance(item, str):
            if item not in MONITORS:
                raise unknown_name("monitor", item, MONITORS)
            item = MONITORS[item]
        if item.name not in {m.name for m in found}:
            found.append(item)
    return tuple(found)


def _has_matrix(net) -> bool:
    return any(len(shape) >= 2 for shape in net.shapes(2).values())


class Recorder(Protocol):
    """Collects the rows of a history and says when the next one is due."""

    rows: list[dict[str, np.ndarray]]
    gap: float

    def add(self, row: Mapping[str, Any]) -> None: ...

    def due(self) -> tuple[int, float]: ...


NEVER = 1 << 62


class LogTimeRecorder:
    """Rows of a history, evenly spaced in log t, never more than `capacity` of them.

    A row is due when log t has grown by `gap` since the last one. When the rows run out every other one is dropped
    and the gap doubles: normalised descent takes log t from 0 to 10^6, so no fixed gap can serve.
    """

    def __init__(self, capacity: int = 256, gap: float = math.log(10) / 24):
        if capacity < 4:
            raise InputError(f"records {capacity}; keep at least 4")
        self.capacity, self.gap = capacity, gap
        self.rows: list[dict[str, np.ndarray]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        if len(self.rows) >= self.capacity:
            self.rows = self.rows[::2]
            self.gap *= 2
        self.rows.append({name: np.asarray(value) for name, value in row.items()})

    def due(self) -> tuple[int, float]:
        """(step, log t): the next row is due where either is reached. The first step is always recorded."""
        last = float(np.max(self.rows[-1]["log_time"])) if self.rows else -math.inf
        return (NEVER, last + self.gap) if math.isfinite(last) else (1, math.inf)


class StepRecorder:
    """Rows at steps fixed in advance, even in log(step): the same for every member of a batch and for every batch."""

    def __init__(self, steps: int, capacity: int = 64):
        if capacity < 4:
            raise InputError(f"records {capacity}; keep at least 4")
        self.at = np.unique(np.round(np.geomspace(1, steps, capacity)).astype(np.int64))
        self.gap = 0.0
        self.rows: list[dict[str, np.ndarray]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows.append({name: np.asarray(value) for name, value in row.items()})

    def due(self) -> tuple[int, float]:
        last = int(self.rows[-1]["step"]) if self.rows else 0
        later = self.at[self.at > last]
        return (int(later[0]) if len(later) else NEVER), math.inf


def stacked(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """History arrays, time first, in the order of their names: a run that was resumed is written like any other."""
    return {name: np.stack([row[name] for row in rows]) for name in sorted(rows[0])} if rows else {}


def unstacked(history: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    length = len(next(iter(history.values()))) if history else 0
    return [{name: values[i] for name, values in history.items()} for i in range(length)]
