"""The page of an inspection: what the layers do, what the head is, what pruning it changes. Draws the record only."""

import numpy as np

from marginflow._core.record import show
from marginflow.bridges.inspection import Inspection
from marginflow.report.page import Chart, Page, Section


def inspection_page(found: Inspection) -> Page:
    tables = found.tables()
    count = len({layer.target for layer in found.layers})
    sections = [Section("The model and the data", (), [tables[0]]),
                Section("Layer by layer", LAYERS, tables[1 : 1 + count], layer_charts(found))]  # fmt: skip
    if found.kkt is not None:
        sections.append(Section("The whole net as a max-margin machine", KKT_TEXT, [tables[1 + count]]))
    for report in found.heads:
        sections.append(Section(f"The head: {report.target}", HEAD, report.tables()))
    if found.joint is not None:
        sections.append(Section("All classes", found.notes[:1], tables[-1:]))
    sections.append(Section("Each layer in full", (), [layer.table() for layer in found.layers]))
    return Page(f"What {found.model} learned", str(found.status.value), headline(found), sections)


def headline(found: Inspection) -> str:
    """The first separable layer, and what two neurons do."""
    first = {}
    for kind in ("linear", "orthogonal"):
        names = [layer.name for layer in found.layers
                 if layer.target == found.layers[0].target
                 and layer.conditions[f"{kind}_separability"]["status"].value != "fails"]  # fmt: skip
        first[kind] = f"from '{names[0]}' on" if names else "at no layer"
    text = (f"No violation of linear separability is seen {first['linear']}, "
            f"of orthogonal separability {first['orthogonal']}.")  # fmt: skip
    if found.head is not None:
        text += f" The two-neuron theorem {SAYS[found.status.value]}."
        best = max(found.head.pruned, key=lambda p: p.agreement)
        text += (f" Two neurons ({best.name}) agree with the head of {found.head.width} on {best.agreement:.2%} of "
                 f"{best.examples} rows, with {best.parameters} parameters for {best.trained_parameters}.")  # fmt: skip
    return text


SAYS = {
    "holds": "applies to the head: its inputs are orthogonally separable",
    "vacuous": "is silent about the head: its inputs are not orthogonally separable",
    "undecided": "may apply to the head: no violation is seen on the rows looked at",
}
LAYERS = (
    "Each row is a layer's output before its activation: orthogonal and linear separability and near-orthogonality "
    "with their slack, positive where a condition holds, and the pairs of rows that violate the first. What holds on "
    "the rows looked at is called undecided where they are not all rows; a violation among them is one among all.",
    "Significant counts singular values above a tenth of the largest. Aligned is the share of a linear layer's rows "
    "with a cosine above 0.9 with a max-margin direction of what the layer receives.",
)
KKT_TEXT = (
    "How far the weights are from a KKT point of min ½‖θ‖² subject to margins of at least 1: what gradient flow of a "
    "homogeneous net ends at. Stationarity is 0 there and at most 1.",
)
HEAD = (
    "predicted: the limit of gradient flow from small weights on the head's inputs, which the theorem gives where they "
    "are orthogonally separable. two_sided: two neurons fitted against both classes. collapsed: sums of the trained "
    "neurons.",
)


def along(found: Inspection) -> str:
    """What stands at 0, 1, 2, ... of an axis along the net: names are the model's own, and seldom count from 1."""
    names = [layer.name for layer in found.layers if layer.target == found.layers[0].target]
    return (
        ", ".join(f"{k}: {name}" for k, name in enumerate(names))
        if len(names) <= 6
        else "layers, 0 is the input"
    )


def layer_charts(found: Inspection) -> list[Chart]:
    """Stable rank and the angle between the class means along the depth of the net, for each pair of classes."""
    charts = []
    targets = list(dict.fromkeys(layer.target for layer in found.layers))
    angles = {t: np.array([np.degrees(x.mean_angle) for x in found.layers if x.target == t]) for t in targets}
    depth = np.arange(len(angles[targets[0]]))
    if len(depth) > 1:
        charts.append(Chart("Angle between the class means", depth, angles, along(found), "degrees"))
    for layer in found.layers:
        if layer.target == targets[0] and layer.weight is not None and len(layer.weight.singular_values) > 1:
            s = layer.weight.singular_values
            title = f"Singular values of {layer.name} (stable rank {show(layer.weight.stable_rank)})"
            charts.append(
                Chart(
                    title,
                    np.arange(1, len(s) + 1),
                    {"singular value": s},
                    "index",
                    "singular value",
                    points=True,
                )
            )
    return charts
