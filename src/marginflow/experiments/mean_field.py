"""Training as in the experiments of Chizat & Bach 2020: ascent of the smooth margin S with step 0.5/√t (theory §5).

Ascent of S is loss-normalised descent, so this is an ensemble of `ngd` with an inverse square root schedule; the step
of dw/dt = m∇F_m is m times that of a plain gradient, hence lr = step·m.
"""

from collections.abc import Sequence

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
    m = trained.net.width if trained.members.width is None else trained.members.width
    factor = np.asarray(m, float) if trained.net.train == "both" else np.sqrt(m)  # type: ignore[attr-defined]
    return np.asarray(trained.history["normalised_margin"], float) * factor


def test_errors(trained: Ensemble, test: Dataset) -> np.ndarray:
    """Share of test points that each member gets wrong."""
    runs = [trained.member(k) for k in range(len(trained))]
    return np.array([np.mean(test.y * np.asarray(r.net(r.theta, test.X)) <= 0) for r in runs])
