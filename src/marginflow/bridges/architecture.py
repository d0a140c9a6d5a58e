"""A network described by text or JSON, so that a file of weights is enough and no code comes with it.

"784-128-64-1": linear layers with ReLU between; ",activation=leaky:0.1" and ",bias=false" change that. JSON lists
the layers:

    [{"conv2d": [1, 16, 3], "padding": 1}, "relu", {"maxpool2d": 2}, "flatten", {"linear": [3136, 64]}, "relu",
     {"linear": [64, 1], "bias": false}]
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marginflow._core.errors import InputError, unknown_name

EXAMPLE = '"784-128-64-1" or a JSON list such as [{"linear": [784, 128]}, "relu", {"linear": [128, 1]}]'


@dataclasses.dataclass(frozen=True)
class Layer:
    """kind and its numbers; `bias` None means: whatever the file of weights has."""

    kind: str
    sizes: tuple[float, ...] = ()
    stride: int | None = None
    padding: int = 0
    bias: bool | None = None

    @property
    def weighted(self) -> bool:
        return self.kind in ("linear", "conv2d")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight tensor, as PyTorch stores it: outputs first."""
        inputs, outputs, *kernel = map(int, self.sizes)
        return (outputs, inputs, *(kernel * 2))


# kind -> how many sizes it takes
KINDS = {"linear": 2, "conv2d": 3, "relu": 0, "leaky": 1, "tanh": 0, "sigmoid": 0, "identity": 0, "flatten": 0,
         "maxpool2d": 1, "avgpool2d": 1, "reshape": None}  # fmt: skip
OPTIONS = ("stride", "padding", "bias")


def layers(description: str | Sequence[Any]) -> tuple[Layer, ...]:
    """The layers that a description lists: text, JSON text, the path of a .json file, or the list itself."""
    if not isinstance(description, str):
        return _listed(description)
    text = description.strip()
    if text.endswith(".json"):
        try:
            text = Path(text).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"architecture {text}: cannot be read ({error}); give {EXAMPLE}") from None
    if text.startswith("["):
        try:
            return _listed(json.loads(text))
        except json.JSONDecodeError as error:
            raise InputError(f"architecture: not JSON ({error}); give {EXAMPLE}") from None
    return _widths(text)


def _widths(text: str) -> tuple[Layer, ...]:
    head, *options = (part.strip() for part in text.split(","))
    known: dict[str, str] = {"activation": "relu", "bias": ""}
    for option in options:
        name, equals, value = option.partition("=")
        if name not in known or not equals:
            raise unknown_name("option of an architecture", name, known)
        known[name] = value
    try:
        widths = [int(part) for part in head.split("-")]
    except ValueError:
        raise InputError(
            f"architecture '{text}': '{head}' is not widths joined by '-'; give {EXAMPLE}"
        ) from None
    if len(widths) < 2 or min(widths) < 1:
        raise InputError(f"architecture '{text}': give at least an input and an output width, all positive")
    kind, _, leak = known["activation"].partition(":")
    if known["bias"] not in ("", "true", "false"):
        raise InputError(f"architecture '{text}': bias={known['bias']}; write bias=true or bias=false")
    bias = {"": None, "true": True, "false": False}[known["bias"]]
    try:
        between = _listed([{kind: float(leak)} if leak else kind])[0]
    except ValueError as error:
        raise InputError(f"architecture '{text}': activation={known['activation']}: {error}") from None
    chain: list[Layer] = []
    for a, b in itertools.pairwise(widths):
        chain += [Layer("linear", (a, b), bias=bias), between]
    return tuple(chain[:-1])


def _listed(items: Any) -> tuple[Layer, ...]:
    if not isinstance(items, list | tuple) or not items:
        raise InputError(f"architecture: not a list of layers; give {EXAMPLE}")
    return tuple(_one(k, item) for k, item in enumerate(items))


def _one(k: int, item: Any) -> Layer:
    fields: dict[str, Any] = {}
    if isinstance(item, str):
        fields = {item: []}
    elif isinstance(item, Mapping):
        fields = dict(item)
    kinds = [name for name in fields if name not in OPTIONS]
    if len(kinds) != 1:
        raise InputError(f"architecture: layer {k} ({item!r}) does not name one kind; give {EXAMPLE}")
    kind = kinds[0]
    if kind not in KINDS:
        raise unknown_name(f"kind of layer ({k})", kind, KINDS)
    sizes = fields[kind] if isinstance(fields[kind], list | tuple) else [fields[kind]]
    numbers = [
        s for s in sizes if isinstance(s, int | float) and not isinstance(s, bool) and math.isfinite(s)
    ]
    wanted = KINDS[kind]
    whole = kind == "leaky" or all(float(s).is_integer() and s > 0 for s in numbers)
    if len(numbers) != len(sizes) or not whole or (wanted is not None and len(sizes) != wanted):
        count = "its sizes" if wanted is None else f"{wanted} positive number{'s' if wanted != 1 else ''}"
        raise InputError(f"architecture: layer {k}, {kind} of {sizes}; give {count}")
    stride, padding, bias = fields.get("stride"), fields.get("padding", 0), fields.get("bias")
    ints = all(isinstance(v, int) and v >= 0 for v in (stride or 0, padding))
    if not ints or not (bias is None or isinstance(bias, bool)):
        raise InputError(
            f"architecture: layer {k}: stride and padding are whole numbers, bias is true or false"
        )
    return Layer(kind, tuple(numbers), stride or None, padding, bias)


def build(chain: Sequence[Layer], biased: Sequence[bool]) -> Any:
    """The torch.nn.Sequential of these layers; `biased` says for each weighted layer whether it has a bias."""
    from torch import nn

    biases = iter(biased)
    make: dict[str, Callable[[Layer], Any]] = {
        "linear": lambda l: nn.Linear(*map(int, l.sizes), bias=next(biases)),
        "conv2d": lambda l: nn.Conv2d(
            *map(int, l.sizes), stride=l.stride or 1, padding=l.padding, bias=next(biases)
        ),
        "relu": lambda l: nn.ReLU(),
        "leaky": lambda l: nn.LeakyReLU(float(l.sizes[0])),
        "tanh": lambda l: nn.Tanh(),
        "sigmoid": lambda l: nn.Sigmoid(),
        "identity": lambda l: nn.Identity(),
        "flatten": lambda l: nn.Flatten(),
        "maxpool2d": lambda l: nn.MaxPool2d(int(l.sizes[0]), l.stride, l.padding),
        "avgpool2d": lambda l: nn.AvgPool2d(int(l.sizes[0]), l.stride, l.padding),
        "reshape": lambda l: nn.Unflatten(1, tuple(map(int, l.sizes))),
    }
    return nn.Sequential(*(make[l.kind](l) for l in chain))
