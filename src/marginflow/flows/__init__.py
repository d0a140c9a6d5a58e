"""Training: descents in discrete time, gradient flow to t = ∞, and batches of many runs."""

from collections.abc import Mapping
from typing import Any

from marginflow._core.errors import unknown_name
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net
from marginflow.runs import Run


def train(net: Net, theta: Mapping[str, Any], data: Dataset, *, method: str = "flow", **options: Any) -> Run:
    """Train θ on the data. method: flow (see `gradient_flow.flow`), or sgd, gd, ngd, adam (`descents.descend`)."""
    if method == "flow":
        from marginflow.flows.gradient_flow import flow

        return flow(net, theta, data, **options)
    from marginflow.flows.descents import METHODS, descend

    if method not in METHODS:
        raise unknown_name("method", str(method), ("flow", *METHODS))
    return descend(net, theta, data, method=method, **options)


def ensemble(*arguments: Any, **options: Any):
    """Many runs in one program; see `ensembles.ensemble`."""
    from marginflow.flows.ensembles import ensemble as run

    return run(*arguments, **options)
