"""Training as in the experiments of Chizat & Bach 2020: ascent of the smooth margin S with step 0.5/√t (theory §5).

Ascent of S is loss-normalised descent, so this is an ensemble of `ngd` with an inverse square root schedule; the step
of dw/dt = m∇F_m is m times that of a plain gradient, hence lr = step·m.

A finite number of steps leaves margin on the table, much of it for the output layer alone. `optimum` takes what is
left: the best masses on the directions that training found (a linear program, F1), or on those it started from (a
quadratic program, F2: the t = ∞ network of that training, exactly).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from marginflow.data.dataset import Dataset
from marginflow.flows.ensembles import Ensemble, Members, ensemble
from marginflow.nets import TwoLayer

LAYERS = ("both", "output")  # both layers: F1; output layer only: F2


def ascend(
    data: Dataset,
    train: str,
    widths: Sequence[int],
    seeds: Sequence[int],
    steps: int,
    step: float = 0.5,
    records: int = 32,
) -> Ensemble:
    """Nets of every width and seed, widths slowest, trained for so many steps from neurons uniform on the sphere."""
    width, seed = (g.reshape(-1) for g in np.meshgrid(widths, seeds, indexing="ij"))
    members = Members(
        seed=seed.astype(np.int64),
        width=width.astype(np.int64) if len(widths) > 1 else None,
        scale=np.ones(len(seed)),
        lr=step * width.astype(float),
    )
    net = TwoLayer(max(widths), train=train, mean_field=True)  # type: ignore[arg-type]
    return ensemble(
        net, data, members, init="sphere", method="ngd", schedule="inverse-sqrt", epochs=steps, records=records,
        precision="single", monitors=(),
    )  # fmt: skip


def unit_norm_margins(trained: Ensemble) -> np.ndarray:
    """(records, members): margin at unit F1 norm (both layers) or unit F2 norm (output layer) of the measure.

    With h = (1/m) Σ φ(θ_j, ·) the mass is (1/m) Σ ‖θ_j‖², so q_min over it is m times q_min/‖θ‖². For the output
    layer the norm √m‖a/m‖ makes it √m times q_min/‖a‖.
    """
    net = trained.net
    assert isinstance(net, TwoLayer)
    m = net.width if trained.members.width is None else trained.members.width
    factor = np.asarray(m, float) if net.train == "both" else np.sqrt(m)
    return np.asarray(trained.history["normalised_margin"], float) * factor


class Optimum(NamedTuple):
    """A classifier x ↦ Σ_j weight_j ρ(c_jᵀx) of unit norm and its margin; None where the program did not converge."""

    directions: np.ndarray
    weight: np.ndarray
    margin: float

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return np.maximum(X @ self.directions.T, 0.0) @ self.weight


def optimum(trained: Ensemble, k: int) -> Optimum | None:
    """The best masses on the directions of member k: of unit F1 norm (both layers) or unit F2 norm (output layer)."""
    from marginflow import margins

    data = trained.data
    theta = {name: np.asarray(w, float) for name, w in trained.member(k).theta.items()}
    if trained.net.train == "both":  # type: ignore[attr-defined]
        sign, Z, directions = unit_features(theta, data)
        masses = margins.f1_finite(Z)
        return Optimum(directions, 0.5 * sign * masses.mass, masses.lower_bound) if masses.certified else None
    best = margins.f2_finite(data.y[:, None] * np.maximum(data.X @ theta["W"].T, 0.0))
    if best.vector is None or not best.certified:
        return None
    return Optimum(theta["W"], best.value * best.vector, best.lower_bound)


def unit_features(theta: Any, data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sign of a_j, ½ sign(a_j) y_i ρ(ĉ_jᵀx_i), ĉ_j) of every neuron that is not zero."""
    length = np.linalg.norm(theta["W"], axis=1)
    used = (length > 0) & (theta["a"] != 0)
    directions, sign = theta["W"][used] / length[used, None], np.sign(theta["a"][used])
    return sign, 0.5 * data.y[:, None] * np.maximum(data.X @ directions.T, 0.0) * sign, directions


def test_error(classifier: Any, test: Dataset) -> float:
    """Share of test points that are not on the right side."""
    return float(np.mean(test.y * np.asarray(classifier(test.X)) <= 0))


def test_errors(trained: Ensemble, test: Dataset) -> np.ndarray:
    """Of every member, as the steps left it."""
    runs = [trained.member(k) for k in range(len(trained))]
    return np.array([test_error(lambda X, r=r: r.net(r.theta, X), test) for r in runs])
