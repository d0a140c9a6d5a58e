"""Every layer's representation of a stream of examples, in one pass and in bounded memory.

Kept per layer: a uniform sample of rows (`reservoir`), fewer of wide layers so that none holds more than MOST_ENTRIES
numbers, and over all rows the sums of each class and the extreme norms.
Kept per example: its outputs and its label. Nothing else survives the batch that made it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.progress import progress
from marginflow.bridges.reservoir import Places, Sample
from marginflow.data.dataset import Dataset

MOST_ENTRIES = 2**26  # numbers of one layer's sample: 256 MB in single precision
LEAST_ROWS = 16  # of a sample, however wide the layer
BATCH = 256  # rows of a Dataset given to the model at once


@dataclasses.dataclass(frozen=True, eq=False)
class Representation:
    """What a layer receives ("input") or gives before its activation ("output")."""

    layer: str
    side: str
    shape: tuple[int, ...]
    rows: np.ndarray  # the sample, (m, d)
    index: np.ndarray  # which rows of the stream these are
    least_norm: float  # over all rows of the stream
    largest_norm: float
    class_means: dict[Any, np.ndarray]  # over all rows of the stream
    seen: int

    @property
    def every_row(self) -> bool:
        return len(self.rows) == self.seen


@dataclasses.dataclass(frozen=True, eq=False)
class Capture:
    """layers: names of the layers with weights in the order they run. labels, outputs: of every row of the stream.

    resident_bytes, spooled_bytes: what the capture held in memory and on disk.
    """

    layers: tuple[str, ...]
    representations: dict[tuple[str, str], Representation]
    inputs: Representation
    input_shape: tuple[int, ...]
    labels: np.ndarray
    outputs: np.ndarray
    resident_bytes: int
    spooled_bytes: int

    @property
    def seen(self) -> int:
        return len(self.labels)


class _Choice:
    """Which rows of the stream a sample of `size` holds; one for all layers of that size."""

    def __init__(self, size: int, seed: int):
        self.places, self.kept = Places(size, seed), Sample(size, 1, np.int64)
        self.now = np.empty(0, int)

    def next(self, rows: int) -> None:
        index = self.places.seen + np.arange(rows)
        self.now = self.places.next(rows)
        self.kept.put(self.now, index[:, None])

    @property
    def index(self) -> np.ndarray:
        return self.kept.rows(self.places.seen)[:, 0]


class _Accumulator:
    """One representation while the stream passes."""

    def __init__(self, layer: str, side: str, shape: tuple[int, ...], choice: _Choice, dtype):
        self.layer, self.side, self.shape, self.choice = layer, side, shape, choice
        self.sample = Sample(choice.places.size, int(np.prod(shape)), dtype)
        self.least, self.largest = np.inf, 0.0
        self.sums: dict[Any, np.ndarray] = {}

    def see(self, rows: np.ndarray, labels: np.ndarray) -> None:
        if not np.isfinite(rows).all():
            raise InputError(f"{self.layer}: its {self.side} holds NaN or infinity; inspect a sound model")
        self.sample.put(self.choice.now, rows)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        self.least, self.largest = min(self.least, float(norms.min())), max(self.largest, float(norms.max()))
        for label in np.unique(labels):
            part = rows[labels == label].sum(axis=0, dtype=np.float64)
            self.sums[label] = self.sums.get(label, 0.0) + part

    def finish(self, seen: int, counts: dict[Any, int]) -> Representation:
        means = {label: total / counts[label] for label, total in self.sums.items()}
        return Representation(
            self.layer,
            self.side,
            self.shape,
            self.sample.rows(seen),
            self.choice.index,
            self.least,
            self.largest,
            means,
            seen,
        )


def capture(
    model: Any, data: Any, examples: int, input_shape: tuple[int, ...] | None = None, seed: int = 0
) -> Capture:
    """Run the model over the stream once, in evaluation mode and without gradients; the model is left as it was."""
    choices: dict[int, _Choice] = {}
    found: dict[tuple[str, str], _Accumulator] = {}
    labels: list[np.ndarray] = []
    outputs: list[np.ndarray] = []
    resident = 0
    with evaluating(model), progress(length(data), "examples") as meter, recording(model) as seen_now:
        for inputs, y in batches(data, model, input_shape):
            seen_now.clear()
            _run(model, inputs)
            out = _flat(
                list(seen_now.values())[-1]
            )  # of the last layer with weights: before any sigmoid or softmax
            if len(out) != len(y):
                raise InputError(
                    f"the model gives {len(out)} outputs for {len(y)} examples; give one row per example"
                )
            states = {("input", "input"): inputs, **seen_now}
            if labels and states.keys() != found.keys():
                odd = next(iter(states.keys() ^ found.keys()))[0]
                raise InputError(
                    f"{odd}: runs for some batches only; inspect is for nets that always use every layer"
                )
            for key, value in states.items():
                if key not in found:
                    size = min(examples, max(LEAST_ROWS, MOST_ENTRIES // max(1, value[0].numel())))
                    choice = choices.setdefault(size, _Choice(size, seed))
                    found[key] = _Accumulator(*key, tuple(value.shape[1:]), choice, to_numpy(value[:0]).dtype)
            for choice in choices.values():
                choice.next(len(y))
            for key, value in states.items():
                found[key].see(_flat(value), y)
            # what the hooks hold of a batch, and a copy of its widest layer
            sizes = [v.numel() * v.element_size() for v in states.values()]
            resident = max(resident, sum(sizes) + max(sizes))
            labels.append(y)
            outputs.append(out)
            meter.advance(len(y))
    if not labels:
        raise InputError("the data stream is empty; give at least one batch")
    y, f = np.concatenate(labels), np.concatenate(outputs)
    counts = {label: int(np.sum(y == label)) for label in np.unique(y)}
    done = {key: accumulator.finish(len(y), counts) for key, accumulator in found.items()}
    inputs = done.pop(("input", "input"))
    samples = [a.sample for a in found.values()]
    means = sum(m.nbytes for r in [*done.values(), inputs] for m in r.class_means.values())
    resident += sum(s.bytes for s in samples if not s.spooled) + means + y.nbytes + f.nbytes
    spooled = sum(s.bytes for s in samples if s.spooled)
    names = tuple(dict.fromkeys(layer for layer, _ in done))
    return Capture(names, done, inputs, inputs.shape, y, f, resident, spooled)


def input_rows(model: Any, data: Any, layer: str, most: int, input_shape=None, seed: int = 0):
    """(what `layer` receives, labels) of a uniform sample of at most `most` rows of a stream."""
    places, rows, labels = Places(most, seed), None, Sample(most, 1, np.float64)
    with evaluating(model), recording(model) as states:
        for inputs, y in batches(data, model, input_shape):
            states.clear()
            _run(model, inputs)
            got, where = _flat(states[layer, "input"]), places.next(len(y))
            rows = Sample(most, got.shape[1], got.dtype) if rows is None else rows
            rows.put(where, got)
            labels.put(where, y[:, None])
    if rows is None:
        raise InputError("the held-out stream is empty; give at least one batch")
    return np.asarray(rows.rows(places.seen)), labels.rows(places.seen)[:, 0]


def _run(model: Any, inputs: Any) -> None:
    """One forward pass, for the hooks; torch's own words where the model cannot take such examples."""
    import torch

    try:
        model(inputs)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        raise InputError(
            f"the model cannot take examples of shape {tuple(inputs.shape[1:])} ({said}); give the data it was "
            "trained on, or the input shape it expects"
        ) from error


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode and no gradients inside; every module's mode is put back after."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def recording(model: Any) -> Iterator[dict[tuple[str, str], Any]]:
    """A dict that each forward pass fills with what layers with weights received and gave."""
    seen: dict[tuple[str, str], Any] = {}

    def hook(name: str, linear: bool) -> Callable:
        def record(module: Any, inputs: tuple, output: Any) -> None:
            if (name, "output") in seen:
                raise InputError(
                    f"{name}: runs twice in one pass; inspect is for nets that use each layer once"
                )
            if linear and inputs[0].ndim != 2:
                raise InputError(
                    f"{name}: a linear layer on tensors of shape {tuple(inputs[0].shape)}; give one row "
                    "per example"
                )
            if linear:
                seen[name, "input"] = inputs[0]
            seen[name, "output"] = output

        return record

    handles = [
        m.register_forward_hook(hook(name, kind == "linear")) for name, m, kind in weighted_modules(model)
    ]
    if not handles:
        raise InputError(f"{type(model).__name__} has no linear or convolutional layer to look at")
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def weighted_modules(model: Any) -> list[tuple[str, Any, str]]:
    """(name, module, "linear" or "conv") of every layer with a weight matrix."""
    from torch import nn

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return [
        (name or type(m).__name__, m, "linear" if isinstance(m, nn.Linear) else "conv")
        for name, m in model.named_modules()
        if isinstance(m, kinds)
    ]


def batches(
    data: Any, model: Any, input_shape: tuple[int, ...] | None = None
) -> Iterator[tuple[Any, np.ndarray]]:
    """(inputs on the model's device and in its precision, labels) from a Dataset or an iterable of such pairs."""
    import torch

    parameter = next(iter(model.parameters()), None)
    where = {"device": parameter.device, "dtype": parameter.dtype} if parameter is not None else {}
    for batch in _pairs(data):
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise InputError(
                f"the data stream gave {type(batch).__name__}; each batch must be (inputs, labels)"
            )
        inputs, y = torch.as_tensor(batch[0]), to_numpy(batch[1])
        y = y.reshape(len(y), -1)
        if y.shape[1] != 1 or len(y) != len(inputs) or y.dtype.kind not in "iufb":
            shape = to_numpy(batch[1]).shape
            raise InputError(f"labels of shape {shape} for {len(inputs)} inputs; give one number each")
        inputs = inputs.to(**where)
        if input_shape is not None:
            if inputs[0].numel() != int(np.prod(input_shape)):
                raise InputError(
                    f"examples of {inputs[0].numel()} numbers do not fill the input shape {input_shape}"
                )
            inputs = inputs.reshape(len(inputs), *input_shape)
        yield inputs, y[:, 0]


def _pairs(data: Any) -> Iterable:
    if not isinstance(data, Dataset):
        return data
    return ((np.array(data.X[k : k + BATCH]), data.y[k : k + BATCH]) for k in range(0, data.n, BATCH))


def length(data: Any) -> int | None:
    """How many rows the stream has, where it says so."""
    if isinstance(data, Dataset):
        return data.n
    inner: Any = getattr(data, "dataset", None)
    return len(inner) if hasattr(inner, "__len__") else None


def _flat(value: Any) -> np.ndarray:
    rows = to_numpy(value)
    return rows.reshape(len(rows), -1)
