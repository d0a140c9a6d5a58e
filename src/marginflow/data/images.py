"""MNIST and CIFAR-10 from their standard files, checked to the byte.

MNIST is IDX: two zero bytes, a type (8 = unsigned byte), a rank, big-endian sizes, then the bytes. CIFAR-10's binary
layout is 10000 records a file: a label byte, then 1024 red, green and blue bytes. The content is compared with the
hashes of the original files; a set that differs is taken, and its provenance says so.
"""

import dataclasses
import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow._core.paths import data_directory
from marginflow.data.dataset import Dataset

MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
CIFAR10_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_RECORD = 1 + 3 * 32 * 32
SPLITS = ("train", "test")
SOURCES = {
    "mnist": "yann.lecun.com/exdb/mnist (mirrors carry the same four files)",
    "cifar10": "www.cs.toronto.edu/~kriz/cifar.html (the binary version)",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """All classes of one split. pixels: uint8, (n, 28, 28) or (n, 3, 32, 32); labels: (n,) of 0..9."""

    pixels: np.ndarray
    labels: np.ndarray
    original: bool  # the files are byte for byte the published ones


def mnist(*classes: str, split: str = "train", n: int | None = None) -> Dataset:
    """Two digits of MNIST, rows of 784 pixels in [0, 1] (float32). `n`: the first n of them."""
    chosen = _two("mnist", classes, [str(k) for k in range(10)])
    return _pair("mnist", mnist_images(split), chosen, chosen, split, n)


def cifar10(*classes: str, split: str = "train", n: int | None = None) -> Dataset:
    """Two classes of CIFAR-10, by name or number, rows of 3072 pixels in [0, 1] (float32)."""
    named = [CIFAR10_NAMES[int(c)] if c.isdigit() and int(c) < 10 else c for c in classes]
    chosen = _two("cifar10", named, CIFAR10_NAMES)
    order = [str(CIFAR10_NAMES.index(c)) for c in chosen]
    return _pair("cifar10", cifar10_images(split), order, chosen, split, n)


def mnist_images(split: str = "train", folder: Path | None = None) -> Images:
    """The ten digits, from DIR/mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte, plain or .gz."""
    folder = _split("mnist", split, folder, "mnist")
    stem = "train" if split == "train" else "t10k"
    names = (f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte")
    (pixels, first), (labels, second) = (
        _idx(folder, name, rank) for name, rank in zip(names, (3, 1), strict=True)
    )
    if pixels.shape[1:] != (28, 28):
        raise InputError(
            f"{folder / names[0]}: images of {pixels.shape[1]} x {pixels.shape[2]}; those of MNIST are 28 x 28"
        )
    if len(pixels) != len(labels):
        raise InputError(
            f"{folder / names[0]}: {len(pixels)} images but {len(labels)} labels in {names[1]}; "
            "get both from one source"
        )
    _check_labels(folder / names[1], labels)
    return Images(pixels, labels, first and second)


def cifar10_images(split: str = "train", folder: Path | None = None) -> Images:
    """The ten classes, from DIR/cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin."""
    folder = _split("cifar10", split, folder, "cifar-10-batches-bin")
    names = [f"data_batch_{k}.bin" for k in range(1, 6)] if split == "train" else ["test_batch.bin"]
    labels, pixels, original = [], [], True
    for name in names:
        content = _read(folder / name, "cifar10")
        if len(content) == 0 or len(content) % CIFAR10_RECORD:
            raise InputError(
                f"{folder / name}: {len(content)} bytes is not a whole number of records of {CIFAR10_RECORD}; "
                "the file is cut short or of another format"
            )
        records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR10_RECORD)
        _check_labels(folder / name, records[:, 0])
        labels.append(records[:, 0])
        pixels.append(records[:, 1:].reshape(-1, 3, 32, 32))
        original &= hashlib.md5(content, usedforsecurity=False).hexdigest() == CIFAR10_MD5[name]
    return Images(np.concatenate(pixels), np.concatenate(labels), original)


def _split(family: str, split: str, folder: Path | None, name: str) -> Path:
    if split not in SPLITS:
        raise unknown_name(f"{family} split", split, SPLITS)
    return data_directory() / name if folder is None else Path(folder)


def _read(path: Path, family: str) -> bytes:
    """The file's bytes; of PATH.gz when that is what is there."""
    packed = path.with_name(path.name + ".gz")
    try:
        if path.is_file():
            return path.read_bytes()
        if packed.is_file():
            return gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{packed if packed.is_file() else path}: cannot be read: {error}") from None
    where = SOURCES[family]
    raise InputError(
        f"{family}: {path} is not there; get the standard files from {where} and put them into {path.parent}, "
        "or set MARGINFLOW_DATA to the folder above it"
    )


def _idx(folder: Path, name: str, rank: int) -> tuple[np.ndarray, bool]:
    """(array, whether the bytes are the published ones) of one IDX file of unsigned bytes."""
    path = folder / name
    content = _read(path, "mnist")
    header = 4 + 4 * rank
    if len(content) < header:
        raise InputError(f"{path}: {len(content)} bytes is too short for an IDX file; it is cut short")
    magic = struct.unpack(">I", content[:4])[0]
    if magic != 0x0800 + rank:
        raise InputError(
            f"{path}: magic number {magic:#010x} is not {0x0800 + rank:#010x} (IDX, unsigned bytes, rank {rank})"
        )
    sizes = struct.unpack(f">{rank}I", content[4:header])
    if len(content) != header + math.prod(sizes):
        shape = " x ".join(map(str, sizes))
        raise InputError(
            f"{path}: {len(content)} bytes, but its header promises {shape}; it is cut short or padded"
        )
    original = hashlib.sha256(content).hexdigest() == MNIST_SHA256[name]
    return np.frombuffer(content, np.uint8, offset=header).reshape(sizes), original


def _check_labels(path: Path, labels: np.ndarray) -> None:
    bad = np.flatnonzero(labels > 9)
    if len(bad):
        raise InputError(f"{path}: the label of record {bad[0]} is {labels[bad[0]]}; labels are 0 to 9")


def _two(family: str, classes, known) -> list[str]:
    chosen = list(classes) or list(known[:2])
    for c in chosen:
        if c not in known:
            raise unknown_name(f"class of {family}", c, known)
    if len(chosen) != 2 or chosen[0] == chosen[1]:
        raise InputError(
            f"{family}: '{','.join(chosen)}' is not two different classes; write {family}:{known[0]},{known[1]}"
        )
    return chosen


def _pair(
    family: str, images: Images, labels: list[str], names: list[str], split: str, n: int | None
) -> Dataset:
    first, second = sorted(zip(map(int, labels), names, strict=True))
    rows = np.flatnonzero(np.isin(images.labels, [first[0], second[0]]))
    if n is not None:
        if n < 2:
            raise InputError(f"{family}: n={n}; give at least 2")
        rows = rows[:n]
    X = images.pixels[rows].reshape(len(rows), -1).astype(np.float32) / np.float32(255)
    y = np.where(images.labels[rows] == second[0], 1.0, -1.0)
    arguments = {"classes": [first[1], second[1]], "split": split} | ({"n": n} if n is not None else {})
    name = (
        f"{family}:{first[1]},{second[1]}"
        + (f",split={split}" if split != "train" else "")
        + (f",n={n}" if n else "")
    )
    return Dataset(
        X,
        y,
        name,
        {"family": family, "arguments": arguments, "original_files": images.original},
        (first[1], second[1]),
    )
