"""Training: descents in discrete time, gradient flow to t = ∞, and batches of many runs."""

from collections.abc import Mapping
from typing import Any, Literal

from marginflow._core.errors import unknown_name
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net
from marginflow.runs import Run

# The dynamics of the rate propositions of Chizat & Bach (theory §5), which are about themselves.
RATES: dict[str, Literal["both", "output"]] = {"rate-both": "both", "rate-output": "output"}


def train(net: Net, theta: Mapping[str, Any], data: Dataset, *, method: str = "flow", **options: Any) -> Run:
    """Train θ on the data. method: flow (see `gradient_flow.flow`), or sgd, gd, ngd, adam (`descents.descend`)."""
    if method == "flow":
        from marginflow.flows.gradient_flow import flow

        return flow(net, theta, data, **options)
    if method in RATES:
        from marginflow.flows.rates import rate_run

        return rate_run(net, theta, data, kind=RATES[method], **options)
    from marginflow.flows.descents import METHODS, descend

    if method not in METHODS:
        raise unknown_name("method", str(method), ("flow", *RATES, *METHODS))
    return descend(net, theta, data, method=method, **options)


def ensemble(*arguments: Any, **options: Any):
    """Many runs in one program; see `ensembles.ensemble`."""
    from marginflow.flows.ensembles import ensemble as run

    return run(*arguments, **options)
