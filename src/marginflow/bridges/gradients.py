"""KKT residuals of a torch net from per-example gradients, in coordinates of the space these gradients span.

All that the residuals need are inner products of θ and the gradients: with an orthonormal basis Q of their span (m + 1
columns beside P parameters), Qᵀ leaves every one of them as it is, so the fit works on (m + 1)-vectors.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, show

MOST_BYTES = 512 * 2**20  # of gradients held at once, in float64
HOMOGENEOUS = (
    1e-6  # spread of θᵀ∇q/q over the rows up to which the net counts as homogeneous (margins.kkt's EULER)
)


@dataclasses.dataclass(frozen=True)
class Stationarity(Record):
    """`margins.KKT` of rows of a net, or why there is none. degree: θᵀ∇q/q where that is one number.

    rows: how many gradients were used, of `seen` rows; the others have λ = 0, which is allowed and can only make the
    residual larger.
    """

    outcome: str
    stationarity: float | None
    complementarity: float | None
    cosine: float | None
    degree: float | None
    rows: int
    seen: int
    message: str = ""

    def table(self) -> Table:
        rows = tuple(
            (f.name, show(getattr(self, f.name))) for f in dataclasses.fields(self) if f.name != "message"
        )
        return Table("KKT residuals", ("quantity", "value"), rows, (self.message,) if self.message else ())


def rows_in_reach(parameters: int, wanted: int) -> int:
    return max(1, min(wanted, MOST_BYTES // (8 * max(parameters, 1)) - 1))


def stationarity(
    model: Any, output: Callable[[Any, Any], Any], X: np.ndarray, y: np.ndarray, seen: int, least: float
) -> Stationarity:
    """KKT residuals of q_i = y_i output(model, x_i) on the rows X. least: the smallest q over all `seen` rows."""
    import torch

    from marginflow import margins

    twin = copy.deepcopy(model).double().eval()
    parameters = [p for p in twin.parameters() if p.requires_grad]
    size = sum(p.numel() for p in parameters)
    if not parameters:
        raise InputError(f"{type(model).__name__} has no trainable weights")
    if least <= 0:
        return Stationarity("infeasible", None, None, None, None, 0, seen,
                            "some example is misclassified: no scaling of θ has q_i >= 1")  # fmt: skip
    device = parameters[0].device
    matrix = np.empty((len(X) + 1, size))
    theta = torch.cat([p.detach().reshape(-1) for p in parameters]).cpu().numpy()
    q = np.empty(len(X))
    for i, x in enumerate(X):
        f = output(twin, torch.as_tensor(x[None], dtype=torch.float64, device=device)).reshape(())
        grads = torch.autograd.grad(f, parameters, allow_unused=True)
        flat = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)]
        matrix[i] = y[i] * torch.cat([g.reshape(-1) for g in flat]).cpu().numpy()
        q[i] = y[i] * float(f.detach())
    matrix[-1] = theta
    degrees = matrix[:-1] @ theta / q
    degree = float(np.median(degrees))
    spread = float(np.max(np.abs(degrees - degree)) / max(abs(degree), 1e-300))
    if (
        spread > HOMOGENEOUS
        or abs(degree - round(degree)) > HOMOGENEOUS * max(abs(degree), 1.0)
        or round(degree) < 1
    ):
        return Stationarity("not homogeneous", None, None, None, degree, len(X), seen,
                            f"θᵀ∇q/q runs from {degrees.min():.3g} to {degrees.max():.3g}: the net is not homogeneous "
                            "in its weights (biases, normalisation), so it has no max-margin problem")  # fmt: skip
    basis = np.linalg.qr(matrix.T, mode="reduced")[0] if size > len(matrix) else np.eye(size)
    small = matrix @ basis
    found = margins.kkt_from_gradients([small[-1]], [small[:-1]], q, round(degree))
    few = "" if len(X) == seen else f"gradients of the {len(X)} rows of least margin, of {seen}"
    return Stationarity(
        str(found.outcome), float(found.stationarity), float(found.complementarity), float(found.cosine), float(degree),
        len(X), seen, "; ".join(filter(None, (few, found.message))),
    )  # fmt: skip


def as_json(found: Stationarity) -> Mapping[str, object]:
    return {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
