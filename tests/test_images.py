"""MNIST and CIFAR-10 readers on files in the same formats written here, and on the real ones where they are."""

import gzip
import struct

import numpy as np
import pytest

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow._core.paths import data_directory
from marginflow.data import images


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    magic = 0x0800 + array.ndim if magic is None else magic
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINFLOW_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / "cifar-10-batches-bin").mkdir()
    return tmp_path


@pytest.fixture
def digits(folder):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(1, 256, (30, 28, 28)), np.arange(30) % 10
    (folder / "mnist" / "train-images-idx3-ubyte").write_bytes(idx(pixels))
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    return pixels, labels


def test_mnist_plain_and_gz(digits):
    pixels, labels = digits
    data = mf.data.load("mnist:3,7")
    rows = np.isin(labels, [3, 7])
    np.testing.assert_array_equal(
        data.X, (pixels[rows].reshape(-1, 784) / np.float32(255)).astype(np.float32)
    )
    np.testing.assert_array_equal(data.y, np.where(labels[rows] == 7, 1, -1))
    assert data.classes == ("3", "7")
    assert data.provenance["original_files"] is False


def test_cifar10_layout(folder):
    rng = np.random.default_rng(1)
    wanted = []
    for k in range(1, 6):
        labels, pixels = np.arange(10) % 10, rng.integers(0, 256, (10, 3072))
        wanted.append(pixels[[0, 3]])
        records = np.concatenate([labels[:, None], pixels], axis=1).astype(np.uint8)
        (folder / "cifar-10-batches-bin" / f"data_batch_{k}.bin").write_bytes(records.tobytes())
    data = mf.data.load("cifar10:airplane,cat")
    assert data.classes == ("airplane", "cat")
    np.testing.assert_array_equal(np.round(data.X * 255).astype(int), np.concatenate(wanted))
    assert mf.data.load("cifar10:3,0").sha256 == data.sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08", "cut short"),
        (idx(np.ones((3, 28, 28)), magic=0x0D03), "magic number"),
        (idx(np.ones((3, 28, 28)))[:-1], "promises"),
        (idx(np.ones((3, 28, 28))) + b"\0", "promises"),
        (idx(np.ones((4, 28, 28))), "labels"),
        (idx(np.ones((3, 27, 28))), "those of MNIST are 28 x 28"),
        (struct.pack(">4I", 0x0803, 2**31, 2**31, 4), "promises"),  # 2^64 bytes, which is 0 in 64 bits
    ],
)
def test_broken_idx_is_refused(folder, content, message):
    (folder / "mnist" / "train-images-idx3-ubyte").write_bytes(content)
    (folder / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx(np.array([0, 1, 0])))
    with pytest.raises(InputError, match=message):
        mf.data.load("mnist:0,1")


def test_broken_gz_and_labels_are_refused(digits, folder):
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(InputError, match="cannot be read"):
        mf.data.load("mnist:0,1")
    (folder / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.full(30, 11))))
    with pytest.raises(InputError, match="label of record 0 is 11"):
        mf.data.load("mnist:0,1")


def test_cifar10_cut_short(folder):
    (folder / "cifar-10-batches-bin" / "data_batch_1.bin").write_bytes(bytes(3072))
    with pytest.raises(InputError, match="whole number of records"):
        images.cifar10_images()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mnist:0,1", "MARGINFLOW_DATA"),
        ("mnist:0,0", "two different"),
        ("mnist:0,ten", "class of mnist"),
        ("cifar10:airplane,cta", "did you mean 'cat'"),
        ("mnist:0,1,split=valid", "split"),
    ],
)
def test_what_is_wrong_is_said(folder, spec, message):
    with pytest.raises(InputError, match=message):
        mf.data.load(spec)


@pytest.mark.realdata
def test_the_real_mnist():
    train, test = images.mnist_images("train"), images.mnist_images("test")
    assert train.original
    assert test.original
    assert train.pixels.shape == (60000, 28, 28)
    data = mf.data.load("mnist:0,1")
    assert (data.n, len(data.positive), len(data.negative)) == (12665, 6742, 5923)


@pytest.mark.realdata
@pytest.mark.skipif(
    not (data_directory() / "cifar-10-batches-bin" / "test_batch.bin").exists(),
    reason="no CIFAR-10 files",
)
def test_the_real_cifar10():
    test = images.cifar10_images("test")
    assert test.original
    assert test.pixels.shape == (10000, 3, 32, 32)
    assert np.bincount(test.labels).tolist() == [1000] * 10
