"""Mini-batch training of nets on image files: float32, one compiled step, kept on disk so that it can go on.

`flows.descents` carries losses as logarithms and trains many nets as one batch, which is what the theory needs; a
convolution whose kernels differ from member to member is tens of times slower than one without members, and ten
classes have no margin. Here is the plain loop for those nets. The data order is that of `descents`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow._core.progress import progress
from marginflow._core.provenance import versions
from marginflow.flows.checkpoints import Checkpoints, Kept, continued, fingerprint
from marginflow.flows.steps import data_order
from marginflow.nets.net import Net

SAVE_SECONDS = 20.0
WAIT_EVERY = 16  # steps between two looks at the loss; JAX runs ahead in between
FORWARD_BATCH = 500


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What decides a run beside the net, its initial weights and the data.

    Labels are ±1 for the logistic loss and class numbers for the cross-entropy; both losses are means over the batch.
    """

    loss: Literal["logistic", "cross-entropy"]
    optimiser: Literal["sgd", "adam"]
    lr: float
    batch: int
    epochs: int
    seed: int

    def __post_init__(self):
        for field, known in (("loss", LOSSES), ("optimiser", ("sgd", "adam"))):
            if getattr(self, field) not in known:
                raise unknown_name(field, str(getattr(self, field)), known)
        if not 0 < self.lr < float("inf"):
            raise InputError(f"lr {self.lr}; give a step size above 0")
        for field in ("batch", "epochs"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} {getattr(self, field)}; give at least 1")

    def steps(self, n: int) -> int:
        return self.epochs * self.per_epoch(n)

    def per_epoch(self, n: int) -> int:
        """The last batch of an epoch is smaller where `batch` does not divide n."""
        return -(-n // self.batch)


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Rows of numbers, bytes of an image file too, that the net sees as (X - mean)/spread; one label a row."""

    X: np.ndarray
    labels: np.ndarray
    mean: np.ndarray | float = 0.0
    spread: np.ndarray | float = 1.0

    def __len__(self) -> int:
        return len(self.X)

    def first(self, n: int) -> "Examples":
        """The first n examples; all for n = 0."""
        return dataclasses.replace(self, X=self.X[: n or None], labels=self.labels[: n or None])

    @property
    def view(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.mean, np.float32), np.asarray(self.spread, np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """What was observed on the way: `records[name][k]` belongs to step `steps[k]`, that is to epoch `epochs[k]`."""

    steps: np.ndarray
    epochs: np.ndarray
    records: Mapping[str, np.ndarray]


def train(
    net: Net,
    theta: Mapping[str, Any],
    examples: Examples,
    recipe: Recipe,
    *,
    record_at: Sequence[int],
    observe: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    label: str = "training",
    checkpoints: Checkpoints | None = None,
) -> Course:
    """Train θ and call `observe(θ)` at the steps of `record_at` and at the end.

    With `checkpoints` the state is kept every few seconds under a name made of all that decides it, but for the number
    of epochs: the same call goes on from there, to the same bits, a call for more epochs goes on where fewer ended,
    and one for fewer reads what it needs. What `observe` does is not part of the name. An InputError when the loss
    leaves float range.
    """
    import jax.numpy as jnp

    n, last = len(examples), recipe.steps(len(examples))
    stops = sorted({int(s) for s in record_at if 0 <= s <= last} | {last})
    start = {name: np.asarray(w, np.float32) for name, w in theta.items()}
    of = _fingerprint(net, start, examples, recipe)
    weights: dict[str, Any] = {name: jnp.array(w) for name, w in start.items()}
    memory = _optimiser(recipe.optimiser, recipe.lr).init({name: weights[name] for name in net.trained})
    state: tuple[Any, Any] = (weights, memory)
    rows: dict[int, dict[str, np.ndarray]] = {}
    done = 0
    if checkpoints is not None and (kept := continued(checkpoints, of[:16], of)) is not None:
        known, reached = _rows(kept)
        if all(stop in known for stop in stops if stop < reached):
            rows, done, state = known, reached, _state(kept, state)

    def keep() -> None:
        if checkpoints is not None:
            checkpoints.save(of[:16], *_kept(state, rows, done, of))

    if any(stop not in rows for stop in stops):
        step = _step(net, recipe.loss, recipe.optimiser, recipe.lr, recipe.batch, n)
        inputs, targets = jnp.asarray(examples.X), jnp.asarray(examples.labels)
        order, ordered, saved = None, -1, time.monotonic()
        with progress(last, label) as meter:
            meter.to(done)
            while True:
                if done in stops and done not in rows:
                    rows[done] = {name: np.array(value) for name, value in observe(state[0]).items()}
                if done == last:
                    break
                epoch, place = divmod(done, recipe.per_epoch(n))
                if epoch != ordered:
                    order, ordered = data_order(recipe.seed, epoch, n, recipe.batch), epoch
                state, loss = step(state, inputs, targets, examples.view, order, place)
                done += 1
                if done % WAIT_EVERY == 0 or done in stops:
                    _check(float(loss), done, epoch, recipe)
                    meter.to(done, f"epoch {epoch + 1} of {recipe.epochs}, loss {float(loss):.4g}")
                    if time.monotonic() - saved > SAVE_SECONDS:
                        keep()
                        saved = time.monotonic()
        keep()
    steps = np.array(stops)
    records = {name: np.stack([rows[stop][name] for stop in stops]) for name in rows[last]}
    return Course(steps, steps / recipe.per_epoch(n), records)


def outputs(net: Net, theta: Mapping[str, Any], examples: Examples) -> np.ndarray:
    """f at all examples, block by block."""
    forward, weights = _forward(net), dict(theta)
    blocks = range(0, len(examples), FORWARD_BATCH)
    return np.concatenate(
        [np.asarray(forward(weights, examples.X[k : k + FORWARD_BATCH], examples.view)) for k in blocks]
    )


def accuracy(net: Net, theta: Mapping[str, Any], examples: Examples) -> float:
    """Share of right answers: the sign of one output, the largest of several. An output of 0 is wrong."""
    f = outputs(net, theta, examples)
    right = np.sign(f) == examples.labels if f.ndim == 1 else f.argmax(axis=1) == examples.labels
    return float(np.mean(right))


def epochs_and_fractions(recipe: Recipe, n: int, within_first: int = 0) -> list[int]:
    """Steps at the end of every epoch, and `within_first` steps of the first epoch, even in their logarithm."""
    per = recipe.per_epoch(n)
    early = np.geomspace(1, per, within_first + 1)[:-1].round().astype(int) if within_first else []
    return sorted({0, *map(int, early), *range(per, recipe.steps(n) + 1, per)})


def _seen(X, view):
    import jax.numpy as jnp

    mean, spread = view
    return (X.astype(jnp.float32) - mean) / spread


@functools.lru_cache(maxsize=16)
def _forward(net: Net):
    import jax

    return jax.jit(lambda theta, X, view: net(theta, _seen(X, view)))


def _logistic(f, y):
    import jax.numpy as jnp

    return jnp.logaddexp(0.0, -y * f)


def _cross_entropy(f, k):
    import jax

    return -jax.numpy.take_along_axis(jax.nn.log_softmax(f), k[:, None], axis=1)[:, 0]


LOSSES: dict[str, Callable] = {"logistic": _logistic, "cross-entropy": _cross_entropy}


def _optimiser(name: str, lr: float):
    import optax

    return {"sgd": optax.sgd, "adam": optax.adam}[name](lr)


@functools.lru_cache(maxsize=16)
def _step(net: Net, loss: str, method: str, lr: float, batch: int, n: int):
    """(state, data, order, place) → (state, mean loss of the batch). A Python loop calls it: XLA gives the operations
    of a compiled loop one thread on CPU."""
    import jax
    import jax.numpy as jnp
    import optax

    optimiser, loss_of = _optimiser(method, lr), LOSSES[loss]

    def step(state, X, labels, view, order, place):
        theta, memory = state
        rows = jax.lax.dynamic_slice(order, (place * batch,), (batch,))
        present = rows < n  # the stand-in row n fills up the last batch
        batch_X, batch_labels = _seen(X[rows], view), labels[rows]

        def mean_loss(moving):
            values = loss_of(net({**theta, **moving}, batch_X), batch_labels)
            return jnp.sum(jnp.where(present, values, 0.0)) / jnp.sum(present)

        moving = {name: theta[name] for name in net.trained}
        value, gradient = jax.value_and_grad(mean_loss)(moving)
        change, memory = optimiser.update(gradient, memory, moving)
        return ({**theta, **optax.apply_updates(moving, change)}, memory), value  # type: ignore[dict-item]

    return jax.jit(step, donate_argnums=0)


def _check(loss: float, done: int, epoch: int, recipe: Recipe) -> None:
    if not np.isfinite(loss):
        raise InputError(
            f"the loss left float range by step {done} (epoch {epoch + 1}); lower lr = {recipe.lr:g}"
        )


def _fingerprint(net: Net, theta, examples: Examples, recipe: Recipe) -> str:
    import jax

    made_by = {k: v for k, v in versions().items() if k in ("marginflow", "jax", "jaxlib")}
    made_by["backend"] = jax.default_backend()
    rest = {k: v for k, v in dataclasses.asdict(recipe).items() if k != "epochs"}
    mean, spread = examples.view
    arrays = {"X": examples.X, "labels": examples.labels, "mean": mean, "spread": spread}
    return fingerprint({"net": str(net), **rest, "versions": made_by}, {**theta, **arrays})


def _kept(state, rows: Mapping[int, Mapping[str, np.ndarray]], done: int, of: str):
    import jax

    arrays = {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {f"row.{step}.{name}": value for step, row in rows.items() for name, value in row.items()}
    return arrays, {"of": of, "step": done}


def _rows(kept: Kept) -> tuple[dict[int, dict[str, np.ndarray]], int]:
    """(what was observed by step, the step that was reached)."""
    arrays, meta = kept
    rows: dict[int, dict[str, np.ndarray]] = {}
    for key, value in arrays.items():
        if key.startswith("row."):
            _, step, name = key.split(".", 2)
            rows.setdefault(int(step), {})[name] = value
    return rows, int(meta["step"])


def _state(kept: Kept, like):
    import jax
    import jax.numpy as jnp

    leaves, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, [jnp.array(kept[0][f"state.{i}"]) for i in range(len(leaves))])
