"""No k of the points {x_i} ∪ {0} lie on a (k-2)-dimensional flat, 2 <= k <= d+1.

k points lie on a (k-2)-flat exactly when they are affinely dependent, that is, when their homogeneous rows h = (x, 1)
are linearly dependent; beyond k = d+1 every set of points in R^d is. Subsets of independent sets are independent,
so the condition says: of the rows (x_1,1), ..., (x_n,1), (0,1) every min(d+1, n+1) are linearly independent.

Independence is proved modulo a prime: a float is a rational whose denominator is a power of 2, so a determinant that
is not 0 mod p is not 0. Dependence is proved by rational coefficients.
"""

import itertools
import math

import numpy as np

from marginflow._core import exact
from marginflow._core.progress import progress
from marginflow._core.status import Status
from marginflow.conditions.base import Condition, timed
from marginflow.data.dataset import Dataset

WORK = 2e8  # modular multiplications spent on enumerating all subsets (a few seconds)
SAMPLED = 2e7  # and on sampled subsets where enumeration is out of reach
COLUMN_ENTRIES = 2e7  # entries of X whose columns are sorted in search of repeated values
TRIPLES = 600  # rows up to which collinear triples are searched
PROVABLE = 64**4 * 60  # rows⁴ x bits: a rational dependence of 64 ordinary rows takes about a second


@timed
def general_position(data: Dataset) -> Condition:
    """measured: points in the smallest dependent subset found, d+2 if it is proved that there is none of at most d+1
    (n+2 if n < d+1: then all points are independent); threshold: the largest k that matters.

    slack: (k - threshold - 1)/(threshold + 1) < 0 for a dependent subset of k points; when the condition holds, the
    smallest ratio of extreme singular values over all subsets. Row -1 in a witness is the point 0.
    """
    size = min(data.d, data.n) + 1
    ruled_out: list[str] = []
    for search in (_duplicates, _parallel, _repeated_values, _collinear, _sampled):
        rows = search(data, ruled_out)
        if rows is not None:
            return _fails(data, size, rows) if _provable(data, rows) else _fails_on_a_plane(data, size, rows)
    return _enumerate(data, size, ruled_out)


def homogeneous(data: Dataset, rows) -> np.ndarray:
    """(x_i, 1) for the rows listed, (0, 1) for row -1."""
    H = np.ones((len(rows), data.d + 1))
    for k, i in enumerate(rows):
        H[k, :-1] = 0.0 if i < 0 else data.X[i]
    return H


def _fails(data: Dataset, size: int, rows: list[int]) -> Condition:
    coefficients = exact.rational_dependence(homogeneous(data, rows))
    assert coefficients is not None
    top = max(abs(c) for c in coefficients)
    kept = [(i, c / top) for i, c in zip(rows, coefficients, strict=True) if c]
    witness = {"rows": [i for i, _ in kept], "coefficients": [str(c) for _, c in kept]}
    k = len(kept)
    zero = " (row -1 is the point 0)" if any(i < 0 for i, _ in kept) else ""
    notes = (f"{k} points on a flat of dimension {k - 2}{zero}",)
    slack = (k - size - 1) / (size + 1)
    return Condition("general_position", Status.FAILS, float(k), float(size), slack, witness, notes=notes)


def _fails_on_a_plane(data: Dataset, size: int, rows: list[int]) -> Condition:
    """d + 1 points that share a coordinate: too many to write down coefficients, and no need to."""
    shared = np.flatnonzero((homogeneous(data, rows)[:, :-1] == homogeneous(data, rows[:1])[0, :-1]).all(axis=0))
    column = int(shared[0])
    value = float(data.X[rows[0], column])
    witness = {"rows": rows, "column": column, "value": value}
    notes = (f"{len(rows)} points with {value:g} in column {column} lie on a flat of dimension {len(rows) - 2}",)
    k = len(rows)
    return Condition("general_position", Status.FAILS, float(k), float(size), (k - size - 1) / (size + 1), witness,
                     notes=notes)


def _enumerate(data: Dataset, size: int, ruled_out: list[str]) -> Condition:
    n = data.n + 1  # with 0; the number of subsets may lie far outside float range
    log10_count = (math.lgamma(n + 1) - math.lgamma(size + 1) - math.lgamma(n - size + 1)) / math.log(10)
    if log10_count + math.log10(size**2 * (data.d + 1)) > math.log10(WORK):
        listed = tuple(f"ruled out: {text}" for text in ruled_out)
        witness = {"log10_subsets": log10_count, "ruled_out": ruled_out}
        return Condition("general_position", Status.UNDECIDED, None, float(size), None, witness,
                         notes=(f"about 10^{log10_count:.0f} subsets of {size} points are too many to decide", *listed))
    count = math.comb(n, size)
    H = homogeneous(data, [*range(data.n), -1])
    ratio = math.inf
    with progress(count, "subsets of points") as meter:
        for subsets in _batches(itertools.combinations(range(data.n + 1), size), size * (data.d + 1)):
            dependent = _dependent(H, subsets)
            if dependent is not None:
                return _fails(data, size, [-1 if i == data.n else int(i) for i in dependent])
            values = np.linalg.svd(H[subsets], compute_uv=False)
            ratio = min(ratio, float((values[:, -1] / values[:, 0]).min()))
            meter.advance(len(subsets))
    return Condition("general_position", Status.HOLDS, float(size + 1), float(size), ratio, {"subsets": count},
                     notes=(f"all {count} subsets of {size} points are independent, proved modulo a prime",))


def _batches(subsets, entries: int):
    step = max(1, 2**20 // entries)
    while batch := list(itertools.islice(subsets, step)):
        yield np.array(batch)


def _dependent(H: np.ndarray, subsets: np.ndarray) -> np.ndarray | None:
    """A subset of rows that is dependent, proved; None when all are independent, proved."""
    return next((subset for subset in _suspects(H, subsets) if exact.dependence(H[subset]) is not None), None)


def _suspects(H: np.ndarray, subsets: np.ndarray) -> np.ndarray:
    """The subsets whose rows are dependent modulo two primes; all others are proved independent."""
    for p in exact.PRIMES:
        R = exact.residues(H, p)
        subsets = subsets[exact.ranks_mod(R[subsets], p) < subsets.shape[1]]
        if not len(subsets):
            break
    return subsets


def _duplicates(data: Dataset, ruled_out: list[str]) -> list[int] | None:
    """Two equal rows."""
    for i, j in _equal_hashes(data, lambda block: (block + 0.0).view(np.int64)):
        if np.array_equal(data.X[i], data.X[j]):
            return [i, j]
    ruled_out.append("equal rows")
    return None


def _parallel(data: Dataset, ruled_out: list[str]) -> list[int] | None:
    """Two rows on a line through 0: three points, which d = 1 does not forbid. Compared modulo a prime after division
    by the first entry that is not 0."""
    if data.d < 2:
        return None
    for i, j in _equal_hashes(data, lambda block: _direction(exact.residues(block))):
        if exact.dependence(data.X[[i, j]]) is not None:
            return [i, j, -1]
    ruled_out.append("two rows on a line through 0")
    return None


def _repeated_values(data: Dataset, ruled_out: list[str]) -> list[int] | None:
    """d rows with a coordinate equal to 0, or d+1 rows that share a value: they lie on one hyperplane with (without) 0.

    Any d+1 of these points are dependent; so are already fewer, if they lie on a smaller flat.
    """
    if data.n * data.d > COLUMN_ENTRIES or data.n < data.d:
        return None
    for column in range(data.d):
        entries = np.asarray(data.X[:, column], np.float64) + 0.0
        values, where, counts = np.unique(entries, return_inverse=True, return_counts=True)
        total = counts + (values == 0)
        k = int(total.argmax())
        if total[k] >= data.d + 1:
            rows = np.flatnonzero(where == k)[: data.d + 1 - (values[k] == 0)]
            return [int(i) for i in rows] + [-1] * int(values[k] == 0)
    ruled_out.append("a coordinate with the same value on d + 1 points")
    return None


def _collinear(data: Dataset, ruled_out: list[str]) -> list[int] | None:
    """Three rows on a line."""
    if data.n > TRIPLES or data.d < 2:
        return None
    p = exact.PRIMES[0]
    R = exact.residues(data.X, p)
    for i in range(data.n - 2):
        codes = _hash(_direction((R[i + 1 :] - R[i]) % p))
        order = np.argsort(codes, kind="stable")
        for k in np.flatnonzero(codes[order][1:] == codes[order][:-1]):
            rows = [i, *sorted(int(i + 1 + order[m]) for m in (k, k + 1))]
            if exact.dependence(homogeneous(data, rows)) is not None:
                return rows
    ruled_out.append("three rows on a line")
    return None


def _sampled(data: Dataset, ruled_out: list[str]) -> list[int] | None:
    """Subsets of the largest size that matters: the first rows with 0, and random ones. Finds every rank deficiency."""
    size = min(data.d, data.n) + 1
    count = int(min(SAMPLED / (size**2 * (data.d + 1)), 500))
    rng = np.random.default_rng(0)
    chosen = [np.array([*range(size - 1), data.n])]
    chosen += [rng.choice(data.n + 1, size, replace=False) for _ in range(count)]
    used, where = np.unique(np.concatenate(chosen), return_inverse=True)
    points = [-1 if i == data.n else int(i) for i in used]
    H = homogeneous(data, points)
    for subsets in _batches(iter(where.reshape(len(chosen), size)), size * (data.d + 1)):
        for subset in _suspects(H, subsets):
            rows = [points[i] for i in subset]
            if not _provable(data, rows):
                ruled_out.append(f"(open: {size} rows from row {rows[0]} on are dependent modulo two primes, "
                                 "too many to prove)")
                return None
            if exact.dependence(H[subset]) is not None:
                return rows
    ruled_out.append(f"rank below {min(data.n, data.d)}")
    ruled_out.append(f"dependence among {len(chosen)} sampled subsets of {size} points")
    return None


def _provable(data: Dataset, rows: list[int]) -> bool:
    H = homogeneous(data, rows)
    return len(rows) ** 4 * int(exact.grid_bits(H).max()) <= PROVABLE


def _direction(R: np.ndarray, p: int = exact.PRIMES[0]) -> np.ndarray:
    """Rows of residues divided by their first entry that is not 0: equal for parallel rows."""
    first = R[np.arange(len(R)), (R != 0).argmax(axis=1)]
    return R * exact.inverse(first, p)[:, None] % p


def _hash(rows: np.ndarray) -> np.ndarray:
    odd = np.random.default_rng(0).integers(0, 2**62, rows.shape[1], dtype=np.int64) * 2 + 1
    mixed = rows.view(np.uint64) ^ (rows.view(np.uint64) >> np.uint64(29))
    return (mixed * odd.view(np.uint64)).sum(axis=1, dtype=np.uint64)


def _equal_hashes(data: Dataset, form) -> list[tuple[int, int]]:
    """Pairs of rows whose transformed rows have equal hashes; a hash match is a candidate, never a proof."""
    step = max(1, 2**20 // data.d)
    codes = np.concatenate([_hash(form(np.array(data.X[k : k + step], np.float64))) for k in range(0, data.n, step)])
    order = np.argsort(codes, kind="stable")
    equal = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    return [tuple(sorted((int(order[k]), int(order[k + 1])))) for k in equal]  # type: ignore[misc]
