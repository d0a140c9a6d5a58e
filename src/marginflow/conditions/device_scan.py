"""The smallest cosines of a corner, tile by tile on a GPU: what most tiles need no second look after.

Products in the precision of the data, so that the error bound of `unit_rows` holds for them as well (it does not
depend on the order of the sum). A tile whose smallest value is above the threshold and that error is proved; the others
go to the processor, where open products are decided exactly.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from marginflow._core.arrays import double
from marginflow.conditions.unit_rows import Side, partners, unit_rows

TILE = 8192
WORTH = 2**27  # pairs; fewer are looked at on the processor before a first program for the GPU is compiled


class Tile(NamedTuple):
    """Pairs left.rows[k:l] x right.rows[s:t]: the smallest sign·cosine and where, as positions in the two sides."""

    k: int
    l: int
    s: int
    t: int
    smallest: float
    at: tuple[int, int]


def worth_it(pairs: int) -> bool:
    if pairs < WORTH:
        return False
    import jax

    return jax.default_backend() == "gpu"


def tiles(X: np.ndarray, left: Side, right: Side, limit: float, sign: int, tile: int = TILE) -> Iterator[Tile]:
    """Every pair with angle_i + angle_j >= limit, widest first; if left is right, each unordered pair once or twice."""
    for k, l, found in _rows_of_tiles(X, left, right, limit, sign, tile):
        for s, t, smallest, place in found:
            row, column = divmod(int(place), tile)
            yield Tile(k, l, s, t, float(smallest), (k + row, s + column))


def _rows_of_tiles(X, left: Side, right: Side, limit: float, sign: int, tile: int):
    same = left is right
    reach = partners(left, right, limit)
    stop = int(np.count_nonzero(reach > (np.arange(len(reach)) if same else 0)))
    if stop == 0:
        return
    a = _on_device(X, left.rows[: int(reach[0]) if same else stop], tile)
    b = a if same else _on_device(X, right.rows[: int(reach[0])], tile)
    for k in range(0, stop, tile):
        l = min(stop, k + tile)
        starts = range(k if same else 0, int(reach[k]), tile)
        ends = [min(int(reach[k]), s + tile) for s in starts]
        # All tiles of a row are under way before the first answer is waited for.
        under_way = [_smallest(a, b, (k, l, s, t), sign, tile) for s, t in zip(starts, ends, strict=True)]
        yield k, l, [(s, t, *answer) for s, t, answer in zip(starts, ends, under_way, strict=True)]


@double
def _on_device(X, rows: np.ndarray, tile: int):
    """Unit rows, filled up with zeros to whole tiles."""
    import jax.numpy as jnp

    units = np.zeros((-(-len(rows) // tile) * tile, X.shape[1]), X.dtype)
    for k in range(0, len(rows), 4096):
        units[k : min(len(rows), k + 4096)] = unit_rows(X[rows[k : k + 4096]], X.dtype.type)
    return jnp.asarray(units)


@double
def _smallest(a, b, tile_at: tuple[int, int, int, int], sign: int, tile: int):
    return _program()(a, b, np.array(tile_at), sign, tile)


@functools.lru_cache(maxsize=1)
def _program():
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, static_argnames=("sign", "tile"))
    def smallest(a, b, at, sign, tile):
        k, l, s, t = at
        A, B = (jax.lax.dynamic_slice_in_dim(rows, start, tile) for rows, start in ((a, k), (b, s)))
        inside = (jnp.arange(tile) < l - k)[:, None] & (jnp.arange(tile) < t - s)[None]
        P = jnp.where(inside, sign * (A @ B.T), jnp.inf)
        place = jnp.argmin(P)
        return P.reshape(-1)[place], place

    return smallest
