"""The data set: what it keeps, what it refuses, and that one content has one hash whatever it came in."""

import csv
import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow.data import dataset as dataset_module
from marginflow.data import npfiles, spool, tables

FORMATS = ["npz", "npz-compressed", "npz-fortran", "npy", "csv", "parquet"]


def write(X: np.ndarray, labels: np.ndarray, folder: Path, kind: str) -> Path:
    """X and its labels as a file of that kind; numbers in text are written so that they read back the same."""
    path = folder / f"points.{kind.partition('-')[0]}"
    if kind == "npz":
        np.savez(path, X=X, y=labels)
    elif kind == "npz-compressed":
        np.savez_compressed(path, X=X, y=labels)
    elif kind == "npz-fortran":
        np.savez(path, X=np.asfortranarray(X), y=labels)
    elif kind == "npy":
        np.save(path, X)
        np.save(folder / "points.y.npy", labels)
    elif kind == "csv":
        with open(path, "w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*(f"x{k}" for k in range(X.shape[1])), "y"])
            out.writerows(
                [*map(repr, row), label] for row, label in zip(X.tolist(), labels.tolist(), strict=True)
            )
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {f"x{k}": X[:, k] for k in range(X.shape[1])}
        parquet.write_table(pa.table({**columns, "y": labels}), path, row_group_size=max(3, len(X) // 8))
    return path


@st.composite
def points(draw, dtype=np.float64):
    n, d = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    width = 64 if dtype == np.float64 else 32
    X = draw(
        hnp.arrays(dtype, (n, d), elements=st.floats(width=width, allow_nan=False, allow_infinity=False))
    )
    X[~X.any(axis=1), 0] = 1
    y = np.array(draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=n, max_size=n)))
    y[:2] = [1.0, -1.0]
    return X, y


@pytest.mark.parametrize("kind", FORMATS)
@given(content=points())
def test_one_content_one_hash(kind, content, tmp_path_factory):
    X, y = content
    read = mf.data.load(str(write(X, y, tmp_path_factory.mktemp("data"), kind)))
    assert read.sha256 == mf.Dataset(X, y).sha256
    assert np.array_equal(read.X, X)
    assert np.array_equal(read.y, y)


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
@given(content=points(np.float32))
def test_single_precision_is_kept(kind, content, tmp_path_factory):
    X, y = content
    read = mf.data.load(str(write(X, y, tmp_path_factory.mktemp("data"), kind)))
    assert read.X.dtype == np.float32
    assert read.sha256 == mf.Dataset(X, y).sha256 != mf.Dataset(X.astype(np.float64), y).sha256


@given(content=points(), data=st.data())
def test_the_hash_sees_every_number_and_label(content, data):
    X, y = content
    i, j = data.draw(st.integers(0, len(X) - 1)), data.draw(st.integers(0, X.shape[1] - 1))
    moved, flipped = X.copy(), y.copy()
    moved[i, j] = np.nextafter(X[i, j], np.inf if X[i, j] < 1e308 else 0)
    flipped[i] = -flipped[i]
    whole = mf.Dataset(X, y).sha256
    if moved[i].any():
        assert mf.Dataset(moved, y).sha256 != whole
    if len(set(flipped)) == 2:
        assert mf.Dataset(X, flipped).sha256 != whole


def test_the_sign_of_zero_is_not_content():
    X = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert mf.Dataset(X, [1, -1]).sha256 == mf.Dataset(np.where(X == 0, -0.0, X), [1, -1]).sha256


# labels


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([1, -1, 1], ("-1", "1")),
        ([1.0, -1.0, 1.0], ("-1", "1")),
        (["1", "-1", "1"], ("-1", "1")),
        (["+1", "-1", "+1"], ("-1", "1")),
        (["1.0", "-1", " 1"], ("-1", "1")),
        ([1, 0, 1], ("0", "1")),
        ([True, False, True], ("False", "True")),
        (["1", "0", "1.0"], ("0", "1")),
        (["10", "9", "10"], ("9", "10")),
        (["dog", "cat", "dog"], ("cat", "dog")),
        ([b"dog", b"cat", b"dog"], ("cat", "dog")),
        (np.array(["dog", "cat", "dog"], dtype=object), ("cat", "dog")),
        ([[1], [-1], [1]], ("-1", "1")),
        (np.array([1, 0, 1], dtype=np.uint8), ("0", "1")),
    ],
)
def test_labels_are_mapped_in_sorted_order(labels, classes):
    data = mf.Dataset(np.ones((3, 2)), labels)
    assert data.y.tolist() == [1.0, -1.0, 1.0]
    assert data.classes == classes


@given(
    labels=st.lists(st.booleans(), min_size=2, max_size=20).filter(lambda v: len(set(v)) == 2),
    names=st.tuples(
        st.text("abcXYZ _-", min_size=1, max_size=4), st.text("abcXYZ _-", min_size=1, max_size=4)
    ),
)
def test_label_symmetry(labels, names):
    """Exchanging the two names exchanges the classes and nothing else, unless the names sort alike."""
    first, second = (name.strip() for name in names)
    if first == second or not first or not second or {first.lower(), second.lower()} & {"na", "nan"}:
        return
    X = np.ones((len(labels), 1))
    one = mf.Dataset(X, [second if v else first for v in labels])
    other = mf.Dataset(X, [first if v else second for v in labels])
    assert np.array_equal(one.y, -other.y)
    assert one.classes == other.classes == tuple(sorted((first, second)))


# what it is made from


def test_integers_become_float64_exactly_or_are_refused():
    X = np.array([[2**53, 1], [2**60, -(2**63)]], dtype=np.int64)
    assert [[int(v) for v in row] for row in mf.Dataset(X, [1, -1]).X] == X.tolist()
    assert mf.Dataset(np.array([[3 * 2**62], [2**63]], dtype=np.uint64), [1, -1]).X[:, 0].tolist() == [
        3.0 * 2**62,
        2.0**63,
    ]
    for value in (2**53 + 1, -(2**53) - 1, 2**62 + 3, 2**63 - 1):
        with pytest.raises(InputError, match=rf"row 1, column 0 is {value}.*cannot hold exactly"):
            mf.Dataset(np.array([[1, 1], [value, 1]]), [1, -1])


@given(value=st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_an_integer_is_kept_exactly_when_a_float_can_hold_it(value):
    X = np.array([[value], [1]], dtype=np.int64)
    if int(float(value)) == value:
        assert int(mf.Dataset(X, [1, -1]).X[0, 0]) == value
    else:
        with pytest.raises(InputError, match="cannot hold exactly"):
            mf.Dataset(X, [1, -1])


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint32, bool, ">f8", ">f4", ">i8"])
def test_other_types_keep_their_values(dtype):
    X = np.array([[1, 0], [1, 1]], dtype=dtype)
    data = mf.Dataset(X, [1, -1])
    assert data.X.dtype == (np.float32 if dtype == ">f4" else np.float64)
    assert data.X.dtype.isnative
    assert np.array_equal(data.X, X)


def test_arrays_of_jax_and_data_frames_of_pandas():
    jnp = pytest.importorskip("jax.numpy")
    pandas = pytest.importorskip("pandas")
    X, y = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]], dtype=np.float32), [0, 1, 1]
    whole = mf.Dataset(X, y).sha256
    assert mf.Dataset(jnp.asarray(X), jnp.asarray(y)).sha256 == whole
    frame = pandas.DataFrame(X, columns=["a", "b"])
    assert mf.Dataset(frame, pandas.Series(["no", "yes", "yes"])).sha256 == whole
    assert mf.Dataset(X.tolist(), y).sha256 == mf.Dataset(X.astype(np.float64), y).sha256
    assert mf.Dataset(jnp.asarray(X, dtype=jnp.bfloat16), y).X[2, 1] == 6.5


@pytest.mark.torch
def test_tensors_of_torch():
    import torch

    X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    data = mf.Dataset(X, torch.tensor([0, 1]))
    assert data.sha256 == mf.Dataset([[1.0, 2.0], [3.0, 4.0]], [0, 1]).sha256
    with torch.no_grad():
        X[0, 0] = 7.0
    assert data.X[0, 0] == 1.0
    assert mf.Dataset(X.to(torch.bfloat16), [0, 1]).X[0, 0] == 7.0


def test_a_data_set_cannot_change():
    X, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, -1.0])
    data = mf.Dataset(X, y)
    before = data.sha256
    X[0, 0], y[0] = 9.0, -1.0
    assert mf.Dataset(data.X, data.y).sha256 == before
    for array in (data.X, data.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"
    view = X.view()
    view.flags.writeable = False
    through = mf.Dataset(view, [1, -1])
    X[0, 0] = 11.0
    assert through.X[0, 0] == 9.0


def test_a_read_only_array_is_not_copied():
    X = np.ones((4, 3))
    X.flags.writeable = False
    assert np.shares_memory(mf.Dataset(X, [1, 1, -1, -1]).X, X)


def test_bias_and_selection():
    data = mf.data.phuong2021(n=10, d=3, seed=1)
    assert np.array_equal(data.with_bias().X, np.column_stack([data.X, np.ones(10)]))
    some = data.y != data.y[0]
    some[0] = True
    assert np.array_equal(data.take(some).X, data.take(np.flatnonzero(some)).X)
    assert np.array_equal(data.take([3, 0, *range(10)]).y[:2], data.y[[3, 0]])
    assert np.array_equal(np.sort(np.concatenate([data.positive, data.negative])), np.arange(10))


# refusals


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        ([[1.0, np.nan], [1, 1]], [1, -1], ["row 0", "column 1", "nan"]),
        ([[1.0, 1], [-np.inf, 1]], [1, -1], ["row 1", "column 0", "-inf"]),
        ([[1.0, 1], [0, 0]], [1, -1], ["row 1", "zeros"]),
        ([[1.0, 1], [2, 2]], [1, 1], ["only one class", "'1'"]),
        ([[1.0], [2], [3]], [1, 2, 3], ["3 different labels"]),
        ([[1.0], [2], [3]], [1, -1], ["3 rows", "2 labels"]),
        ([[1.0], [2]], [1, np.nan], ["row 1", "label"]),
        ([[1.0], [2], [3]], np.array(["a", None, "b"], dtype=object), ["row 1", "label"]),
        ([[1.0], [2], [3]], ["a", "b", " "], ["row 2", "label", "empty"]),
        ([[1.0], [2]], [1j, 1], ["labels", "complex"]),
        ([[1.0], [2]], [[1, -1], [1, -1]], ["shape (2, 2)"]),
        ([1.0, 2.0], [1, -1], ["shape (2,)"]),
        (np.empty((0, 3)), [], ["shape (0, 3)"]),
        (np.empty((3, 0)), [1, -1, 1], ["shape (3, 0)"]),
        ([[1.0, 2.0], [3.0]], [1, -1], ["ragged"]),
        ([[1j], [2]], [1, -1], ["complex"]),
        ([["a"], ["b"]], [1, -1], ["<U1"]),
        (np.array([[1, None], [2, 3]], dtype=object), [1, -1], ["object"]),
        (np.array([[1], [2]], dtype="M8[s]"), [1, -1], ["datetime"]),
    ],
)
def test_bad_data_are_refused_in_one_line(X, y, words):
    with pytest.raises(InputError) as caught:
        mf.Dataset(X, y, "here")
    message = str(caught.value)
    assert message.startswith("here: ")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is double here")
def test_extended_precision_is_refused_when_it_would_round():
    assert mf.Dataset(np.array([[1.5], [2.0]], dtype=np.longdouble), [1, -1]).X[0, 0] == 1.5
    with pytest.raises(InputError, match="row 1, column 0"):
        mf.Dataset(np.array([[1.5], [np.longdouble(1) / 3]]), [1, -1])


# larger than memory


def peak_of(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def small_memory(monkeypatch):
    """Blocks and buffers a hundred times smaller, so that a few megabytes stand for a set larger than memory."""
    monkeypatch.setattr(spool, "MEMORY_BYTES", 2**20)
    monkeypatch.setattr(dataset_module, "BLOCK_BYTES", 2**18)
    monkeypatch.setattr(npfiles, "BLOCK_BYTES", 2**18)
    monkeypatch.setattr(tables, "BATCH_ROWS", 2**10)
    monkeypatch.setattr(tables, "CSV_BYTES", 2**15)


@pytest.mark.parametrize("kind", ["npz", "npz-compressed", "npy", "csv", "parquet"])
def test_a_large_file_is_mapped_not_held(kind, small_memory, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40_000, 40)).round(3), np.where(rng.random(40_000) < 0.5, 1.0, -1.0)
    path, size = write(X, y, tmp_path, kind), X.nbytes
    whole = mf.Dataset(X, y).sha256
    del X
    found = []
    assert peak_of(lambda: found.append(mf.data.load(str(path)))) < size // 2
    assert isinstance(found[0].X, np.memmap)
    assert peak_of(lambda: found.append(found[0].sha256)) < size // 2
    assert found[1] == whole
    assert isinstance(found[0].with_bias().X, np.memmap)


def test_a_large_integer_file_is_converted_in_blocks(small_memory, tmp_path):
    X = np.arange(1, 1_000_001).reshape(-1, 20)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.arange(len(X)) % 2)
    found = []
    assert peak_of(lambda: found.append(mf.data.load(str(tmp_path / "X.npy")))) < X.nbytes // 2
    assert isinstance(found[0].X, np.memmap)
    assert np.array_equal(found[0].X, X)


# files


def test_labels_of_an_npy_by_name_beside_it_or_by_path(tmp_path):
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.save(tmp_path / "points.npy", X)
    np.save(tmp_path / "points.kind.npy", np.array(["a", "b"]))
    np.save(tmp_path / "elsewhere.npy", np.array([1, -1]))
    path = str(tmp_path / "points.npy")
    assert mf.data.load(path, label="kind").y.tolist() == [-1.0, 1.0]
    assert mf.data.load(path, label=str(tmp_path / "elsewhere.npy")).y.tolist() == [1.0, -1.0]
    with pytest.raises(InputError, match=r"holds no labels.*points\.y\.npy"):
        mf.data.load(path)


def test_csv_without_pyarrow_is_the_same(tmp_path, monkeypatch):
    data = mf.data.phuong2021(n=20_000, d=3, seed=2)
    path = str(write(data.X, data.y, tmp_path, "csv"))
    fast = mf.data.load(path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert mf.data.load(path).sha256 == fast.sha256 == data.sha256


def test_csv_quoting_blank_lines_and_byte_order_mark(tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes('\n"a","b, with comma",y\r\n1,"2",no\r\n\r\n 3 ,4e0,"yes"\r\n'.encode("utf-8-sig"))
    data = mf.data.load(str(path))
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert data.classes == ("no", "yes")


def test_a_label_column_in_the_middle(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("a,kind,b\n1,u,2\n3,v,4\n")
    assert mf.data.load(str(path), label="kind").X.tolist() == [[1, 2], [3, 4]]


def test_the_index_pandas_writes_is_not_a_feature(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "y": ["p", "q"]}, index=pandas.Index([7, 9], name="row"))
    frame.to_parquet(tmp_path / "points.parquet")
    assert mf.data.load(str(tmp_path / "points.parquet")).X.tolist() == [[1.0], [2.0]]


def test_families_can_be_added():
    def pair(*classes: str, shift: float = 0.0) -> mf.Dataset:
        return mf.Dataset([[1 + shift], [2 + shift]], list(classes), "pair")

    from marginflow.data.catalogue import FAMILIES

    mf.data.register("pair", pair)
    try:
        data = mf.data.load("pair:up,down,shift=0.5")
    finally:
        del FAMILIES["pair"]
    assert data.X.tolist() == [[1.5], [2.5]]
    assert data.y.tolist() == [1.0, -1.0]
