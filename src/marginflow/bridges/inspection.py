"""What did a trained classifier learn? Its layers, its head, and the two neurons the head could be.

model + stream → capture → per layer: conditions, ranks, directions → head: prediction, KKT, pruning → report
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, jsonable
from marginflow._core.status import Status, conjunction
from marginflow.bridges import gradients, pruning
from marginflow.bridges.capture import (
    Capture,
    batches,
    capture,
    evaluating,
    input_rows,
    length,
    recording,
    weighted_modules,
)
from marginflow.bridges.layers import LayerReport, Representation, examine
from marginflow.bridges.pruning import HeadReport
from marginflow.data.dataset import Dataset

EXAMPLES = (
    2000  # sampled rows: n² products and the margin problems of the widest layers take seconds, not minutes
)
KKT_ROWS = 128
PROBED = 4  # rows on which homogeneity is measured first
HELD_OUT_ROWS = 20_000  # of given held-out data
HELD_OUT = 0.2  # of the sampled rows, when no held-out data are given
MEGABYTE = 2**20


@dataclasses.dataclass(frozen=True)
class Target:
    """One pair of classes: a label (or several) against the rest, and the output that decides between them."""

    name: str
    positive: float
    column: int | None  # None: one output, or the difference of two
    outputs: int

    def signs(self, labels: np.ndarray) -> np.ndarray:
        return np.where(labels == self.positive, 1.0, -1.0)

    def decide(self, outputs: Any) -> Any:
        """The number whose sign is the answer (NumPy or torch), one per row."""
        if self.outputs == 1:
            return outputs[:, 0]
        return outputs[:, 1] - outputs[:, 0] if self.column is None else outputs[:, self.column]

    def row(self, V: np.ndarray, c: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Weights and bias of the last layer that make that number."""
        c = np.zeros(len(V)) if c is None else c
        if self.outputs == 1:
            return V[0], float(c[0])
        return (
            (V[1] - V[0], float(c[1] - c[0]))
            if self.column is None
            else (V[self.column], float(c[self.column]))
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Inspection(Record):
    """layers: one report per layer (and per class against the rest). head: of the first pair of classes; heads: of all.

    accuracy: of the model on the whole stream. memory: what the pass held, in bytes.
    joint: with more than two classes, the argmax over all pruned heads against the model.
    """

    model: str
    data: str
    classes: tuple[str, ...]
    seen: int
    examples: int
    accuracy: float
    layers: tuple[LayerReport, ...]
    heads: tuple[HeadReport, ...]
    kkt: gradients.Stationarity | None
    joint: dict[str, Any] | None
    memory: dict[str, int]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def head(self) -> HeadReport | None:
        return self.heads[0] if self.heads else None

    @property
    def status(self) -> Status:
        """Whether Theorem 1 applies to the head's inputs, for every pair of classes."""
        return (
            conjunction(Status(str(h.prediction["status"])) for h in self.heads)
            if self.heads
            else Status.UNDECIDED
        )

    def report(self, path: str | os.PathLike) -> str:
        """One self-contained HTML file; returns its path."""
        from marginflow.bridges.inspection_page import inspection_page
        from marginflow.report.page import write

        return write(inspection_page(self), path)

    def tables(self) -> list[Table]:
        targets = list(dict.fromkeys(layer.target for layer in self.layers))
        facts = [
            ("data", self.data), ("classes", ", ".join(self.classes)), ("rows of the stream", str(self.seen)),
            ("rows looked at closely", str(self.examples)), ("accuracy on the stream", f"{self.accuracy:.4%}"),
            ("held in memory by the pass", f"{self.memory['resident_bytes'] / MEGABYTE:.1f} MiB"),
            ("spooled to disk", f"{self.memory['spooled_bytes'] / MEGABYTE:.1f} MiB"),
            ("seconds", f"{self.seconds:.1f}"),
        ]  # fmt: skip
        tables = [Table(f"inspection of {self.model}", ("quantity", "value"), tuple(facts), self.notes)]
        for target in targets:
            chosen = [layer for layer in self.layers if layer.target == target]
            notes = tuple(f"{layer.name}: {note}" for layer in chosen for note in layer.notes)
            tables.append(Table(f"layers before their activation: {target}", LayerReport.COLUMNS,
                                tuple(layer.row() for layer in chosen), notes))  # fmt: skip
        if self.kkt is not None:
            tables.append(dataclasses.replace(self.kkt.table(), title="KKT residuals of the whole net"))
        tables += [table for report in self.heads for table in report.tables()]
        if self.joint is not None:
            rows = tuple((name, f"{v['accuracy']:.4%}", f"{v['trained_accuracy']:.4%}", f"{v['agreement']:.4%}")
                         for name, v in self.joint.items())  # fmt: skip
            tables.append(Table("largest of the pruned heads, all classes",
                                ("replacement", "accuracy", "trained", "agreement"), rows))  # fmt: skip
        return tables

    def to_json(self) -> dict[str, Any]:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        layers = [
            {f.name: getattr(layer, f.name) for f in dataclasses.fields(layer)} for layer in self.layers
        ]
        first = self.head
        return jsonable({**fields, "layers": layers, "head": {} if first is None else first})


def inspect(
    model: Any,
    data: Any,
    *,
    architecture: Any = None,
    held_out: Any = None,
    head: bool = True,
    examples: int | None = EXAMPLES,
    input_shape: tuple[int, ...] | None = None,
    seed: int = 0,
    label: str = "y",
) -> Inspection:
    """Look at a trained net layer by layer, and at what its last two layers are as a max-margin machine.

    model: a torch.nn.Module, or a file of weights (.safetensors, .pt, .pth) or a state_dict with `architecture`.
    data, held_out: a Dataset, a DATA string, or an iterable of (inputs, labels) such as a DataLoader.
    examples: rows looked at closely, a uniform sample of the stream (None: all, if the stream has a length).
    head: False for nets that do not end linear-ReLU-linear.
    """
    from marginflow.bridges.checkpoints import require_torch

    require_torch()
    started = time.perf_counter()
    model, name = as_module(model, architecture)
    data, said = as_stream(data, label)
    examples = length(data) if examples is None else examples
    if examples is None or examples < 4:
        raise InputError(f"examples = {examples}; give a number of rows, at least 4, to look at closely")
    held_out = None if held_out is None else as_stream(held_out, label)[0]
    seen = capture(model, data, examples, input_shape, seed)
    names = dict(zip((-1.0, 1.0), data.classes, strict=True)) if isinstance(data, Dataset) else {}
    targets = targets_of(seen, names)
    modules = {
        layer: (module, kind) for layer, module, kind in weighted_modules(model) if layer in seen.layers
    }
    heads, joint = (), None
    if head:
        heads, joint = head_reports(model, seen, modules, targets, held_out, input_shape, seed)
    layers = tuple(report for t in targets for report in layer_reports(seen, modules, t))
    notes: list[str] = [] if len(targets) == 1 else [CAVEAT]
    if not np.all([r.every_row for r in seen.representations.values()]):
        notes.append("margins and violating pairs are those of the sampled rows of each layer")
    kkt = None
    if len(targets) == 1:
        kkt, said_of_kkt = whole_net(model, data, seen, targets[0], input_shape)
        notes += [said_of_kkt] if said_of_kkt else []
    memory = {"resident_bytes": int(seen.resident_bytes), "spooled_bytes": int(seen.spooled_bytes),
              "kkt_bytes": int(8 * (KKT_ROWS + 1) * sum(p.numel() for p in model.parameters()))}  # fmt: skip
    memory["kkt_bytes"] = min(memory["kkt_bytes"], gradients.MOST_BYTES)
    return Inspection(
        name, said, tuple(_text(c, names) for c in np.unique(seen.labels)), seen.seen, min(examples, seen.seen),
        accuracy(seen, targets), layers, heads, kkt, joint, memory, time.perf_counter() - started, tuple(notes),
    )  # fmt: skip


CAVEAT = (
    "several classes: each is looked at against the rest. The theorems are about two classes, the problems have "
    "different scales, and nothing is proved about taking the largest of their answers"
)


def as_module(model: Any, architecture: Any = None) -> tuple[Any, str]:
    """A module and a name for it."""
    from marginflow.bridges.checkpoints import from_weights, load_model

    if isinstance(model, str | os.PathLike):
        return load_model(os.fspath(model), architecture), os.fspath(model)
    if isinstance(model, dict):
        return from_weights({k: to_numpy(v) for k, v in model.items()}, architecture), "a state_dict"
    from torch import jit, nn

    if isinstance(model, jit.ScriptModule):
        raise InputError("a TorchScript module is a compiled program; give the nn.Module it was made from")
    if not isinstance(model, nn.Module):
        raise InputError(
            f"cannot inspect a {type(model).__name__}; give a torch.nn.Module, a state_dict or a file"
        )
    return model, type(model).__name__


def as_stream(data: Any, label: str = "y") -> tuple[Any, str]:
    """Something to iterate over, and a name for it."""
    if isinstance(data, str | os.PathLike):
        from marginflow.data import load

        data = load(os.fspath(data), label=label)
    if isinstance(data, Dataset):
        return data, data.name
    if (
        isinstance(data, tuple)
        and len(data) == 2
        and not hasattr(data[0], "__next__")
        and np.ndim(data[1]) == 1
    ):
        return Dataset(data[0], data[1]), "arrays"
    if not hasattr(data, "__iter__"):
        kind = type(data).__name__
        raise InputError(
            f"cannot read a {kind}; give a Dataset, a DATA string or batches of (inputs, labels)"
        )
    return data, type(data).__name__


def targets_of(seen: Capture, names: Mapping[float, str]) -> list[Target]:
    """Which outputs answer which question. names: of labels, where they have other names than their numbers."""
    labels, k = np.unique(seen.labels), seen.outputs.shape[1]
    shown = ", ".join(_text(v, names) for v in labels[:8])
    if len(labels) < 2:
        raise InputError(f"the stream holds one class only (label {shown}); give examples of two")
    if len(labels) == 2 and k <= 2:
        question = f"{_text(labels[1], names)} against {_text(labels[0], names)}"
        return [Target(question, float(labels[1]), None, k)]
    if k == len(labels) and k > 2:
        return [Target(f"{_text(v)} against the rest", float(v), j, k) for j, v in enumerate(labels)]
    raise InputError(
        f"the stream holds {len(labels)} classes (labels {shown}) but the model has {k} output{'s' if k > 1 else ''}; "
        "give two classes for one or two outputs, or one output per class"
    )


def accuracy(seen: Capture, targets: list[Target]) -> float:
    if len(targets) == 1:
        return float(
            np.mean(np.where(targets[0].decide(seen.outputs) > 0, 1.0, -1.0) == targets[0].signs(seen.labels))
        )
    labels = np.array([t.positive for t in targets])
    return float(np.mean(labels[seen.outputs.argmax(axis=1)] == seen.labels))


def layer_reports(seen: Capture, modules: dict, target: Target) -> Iterator[LayerReport]:
    """The input, then every layer with weights."""
    y = target.signs(seen.labels)
    means = _means(seen.inputs, target, seen.labels)
    yield examine("input", "input", target.name, seen.inputs, None, y, None, None, means)
    for layer in seen.layers:
        module, kind = modules[layer]
        given = seen.representations[layer, "output"]
        weight = to_numpy(module.weight)
        bias = None if module.bias is None else to_numpy(module.bias)
        received = seen.representations.get((layer, "input"))
        yield examine(
            layer, kind, target.name, given, received, y, weight, bias, _means(given, target, seen.labels)
        )


def _means(given: Representation, target: Target, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means of the rest and of the class, over the whole stream."""
    counts = {label: np.sum(labels == label) for label in given.class_means}
    rest = [label for label in counts if label != target.positive]
    total = np.sum([counts[label] * given.class_means[label] for label in rest], axis=0)
    return total / sum(counts[label] for label in rest), given.class_means[target.positive]


def whole_net(
    model: Any, data: Any, seen: Capture, target: Target, input_shape: tuple[int, ...] | None
) -> tuple[gradients.Stationarity, str]:
    """KKT residuals on the rows of least margin, and what to say about their choice.

    A few sampled rows tell whether the net is homogeneous at all; only then is the stream read a second time. A stream
    that can be read only once leaves the sampled rows to choose from.
    """
    size = max(sum(p.numel() for p in model.parameters()), int(np.prod(seen.input_shape)))
    count = gradients.rows_in_reach(size, KKT_ROWS)
    least = float((target.signs(seen.labels) * target.decide(seen.outputs)).min())
    sampled = seen.inputs.index
    signs = target.signs(seen.labels[sampled])
    order = np.argsort(signs * target.decide(seen.outputs[sampled]))

    def residuals(X: np.ndarray, y: np.ndarray) -> gradients.Stationarity:
        return gradients.stationarity(
            model, lambda net, x: target.decide(logits(net, x)), X, y, seen.seen, least
        )

    def chosen(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(seen.inputs.rows[rows]).reshape(len(rows), *seen.input_shape), signs[rows]

    probe = residuals(*chosen(order[:PROBED]))
    if probe.stationarity is None:
        return probe, ""
    if not isinstance(data, Dataset) and iter(data) is data:
        said = "the stream could be read once only: KKT residuals use sampled rows"
        return residuals(*chosen(order[:count])), said
    return residuals(*hardest(model, data, target, count, input_shape)), ""


def hardest(model: Any, data: Any, target: Target, count: int, input_shape) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, signs) of the `count` rows of least margin: one pass, `count` inputs in memory."""
    X, y, q = None, np.empty(0), np.empty(0)
    with evaluating(model), recording(model) as states:
        for inputs, labels in batches(data, model, input_shape):
            states.clear()
            model(inputs)
            sign = target.signs(labels)
            new = sign * target.decide(to_numpy(list(states.values())[-1]).reshape(len(labels), -1))
            low = np.flatnonzero(new < (q.max() if len(q) == count else np.inf))
            if not len(low):
                continue
            rows = to_numpy(inputs)[low]
            X = rows if X is None else np.concatenate([X, rows])
            q, y = np.concatenate([q, new[low]]), np.concatenate([y, sign[low]])
            keep = np.argsort(q, kind="stable")[:count]
            X, y, q = X[keep], y[keep], q[keep]
    if X is None:
        raise InputError("the data stream was empty when read again; give one that can be read twice")
    return X, y


def logits(net: Any, x: Any) -> Any:
    """What the last layer with weights gives: the value before a final sigmoid or softmax."""
    with recording(net) as states:
        net(x)
        out = list(states.values())[-1]
    return out.reshape(len(out), -1)


def head_reports(model, seen: Capture, modules: dict, targets, held_out, input_shape, seed: int):
    """One report per pair of classes, and with several classes the argmax of the pruned heads."""
    if len(seen.layers) < 2 or any(modules[layer][1] != "linear" for layer in seen.layers[-2:]):
        kinds = ", ".join(f"'{layer}' ({modules[layer][1]})" for layer in seen.layers[-2:])
        raise InputError(
            f"the last layers with weights are {kinds}, not linear-ReLU-linear; the head must end Linear, ReLU, Linear "
            "(leave the head out with head=False or --no-head)"
        )
    first, last = seen.layers[-2:]
    pre, post = seen.representations[first, "output"].rows, seen.representations[last, "input"].rows
    pruning.must_be_relu(first, last, np.asarray(pre), np.asarray(post))
    given = seen.representations[first, "input"]
    h, labels = np.asarray(given.rows), seen.labels[given.index]
    if held_out is None:
        order = np.random.default_rng(seed).permutation(len(h))
        cut = max(1, int(len(h) * HELD_OUT))
        fit, test = np.sort(order[cut:]), np.sort(order[:cut])
        h_test, labels_test = h[test], labels[test]
        h, labels = h[fit], labels[fit]
        said = f"{cut} sampled rows left out of the fit (the net may have been trained on them)"
    else:
        h_test, labels_test = input_rows(model, held_out, first, HELD_OUT_ROWS, input_shape, seed)
        unknown = np.setdiff1d(labels_test, seen.labels)
        if len(unknown):
            raise InputError(f"the held-out data have label {_text(unknown[0])}, which the data do not have")
        said = f"{len(h_test)} held-out rows"
    reports = tuple(
        one_head(modules, (first, last), t, h, t.signs(labels), h_test, t.signs(labels_test), said)
        for t in targets
    )
    return reports, None if len(targets) == 1 else _joint(
        reports, modules, (first, last), targets, h_test, labels_test
    )


def weights_of(modules: dict, names: tuple[str, str], target: Target) -> pruning.Weights:
    inner, outer = modules[names[0]][0], modules[names[1]][0]
    a, c = target.row(to_numpy(outer.weight), None if outer.bias is None else to_numpy(outer.bias))
    return pruning.Weights(to_numpy(inner.weight), None if inner.bias is None else to_numpy(inner.bias), a, c)


def one_head(modules, names, target: Target, h, y, h_test, y_test, said: str) -> HeadReport:
    for rows, where in ((y, "the rows the head is fitted on"), (y_test, "the held-out rows")):
        if len(np.unique(rows)) < 2:
            raise InputError(f"{target.name}: {where} hold one class only; give more rows or more examples")
    trained = weights_of(modules, names, target)
    found = pruning.replacements(trained, h, y)
    wanted = found[0]
    plus, minus = wanted.net.rows
    known = bool(plus.any() and minus.any())
    prediction: dict[str, object] = {"theorem": "phuong2021.theorem1", "status": wanted.status}
    if known:
        total = float(np.linalg.norm(plus) + np.linalg.norm(minus))
        prediction |= {"w_plus": plus, "w_minus": minus, "normalised_margin": 1 / (2 * total)}
    q = y * trained(h)
    size = float(np.sum(trained.rows.astype(float) ** 2) + np.sum(trained.a.astype(float) ** 2))
    neurons = {**pruning.standing(trained, wanted), "normalised_margin": float(q.min() / size)}
    notes = [wanted.message] if wanted.message else []
    if trained.c:
        notes.append("the last layer's bias is no part of the two-neuron prediction")
    kkt = _head_kkt(modules, names, target, h, y, q)
    pruned = tuple(pruning.compare(trained, r, h_test, y_test) for r in found)
    return HeadReport(
        target.name, names, len(trained.a), prediction, neurons, gradients.as_json(kkt), pruned, said, tuple(found),
        tuple(notes),
    )  # fmt: skip


def _head_kkt(modules, names, target: Target, h, y, q) -> gradients.Stationarity:
    from torch import nn

    net = nn.Sequential(modules[names[0]][0], nn.ReLU(), modules[names[1]][0])
    count = gradients.rows_in_reach(sum(p.numel() for p in net.parameters()), KKT_ROWS)
    rows = np.argsort(q)[:count]
    least = float(q.min())
    return gradients.stationarity(net, lambda f, x: target.decide(f(x)), h[rows], y[rows], len(h), least)


def _joint(reports, modules, names, targets, h, labels) -> dict[str, dict[str, float]]:
    """Argmax over classes of each replacement, each in its normal form, against the model's argmax."""
    classes = np.array([t.positive for t in targets])
    trained = classes[np.stack([weights_of(modules, names, t)(h) for t in targets], axis=1).argmax(axis=1)]
    out = {}
    for k, pruned in enumerate(reports[0].pruned):
        says = classes[np.stack([r.replacements[k].net(h) for r in reports], axis=1).argmax(axis=1)]
        out[pruned.name] = {"accuracy": float(np.mean(says == labels)), "agreement": float(np.mean(says == trained)),
                            "trained_accuracy": float(np.mean(trained == labels))}  # fmt: skip
    return out


def _text(label: Any, names: Mapping[float, str] = MappingProxyType({})) -> str:
    return names.get(float(label), f"{float(label):g}")
