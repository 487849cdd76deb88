"""Data sets by name or by file: MNIST as shipped, tables from OpenML, and `.npz` files."""

import hashlib
import importlib.resources
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from purefit.core.types import Data
from purefit.errors import DataError

__all__ = ["Dataset", "load", "mnist"]


@dataclass(frozen=True)
class Dataset:
    """Examples to train on and, where there are any, examples to test on.

    Attributes:
        name: What the data set is called.
        train: Training examples, as NumPy arrays.
        test: Test examples, or None.
        classes: The name of each class, in the order of its number; None where no names are known
            or the targets are no classes.
    """

    name: str
    train: Data
    test: Data | None
    classes: tuple[str, ...] | None


def mnist() -> Dataset:
    """Read MNIST, handwritten digits, from the four files that come with purefit.

    Returns:
        60,000 training and 10,000 test examples in their published order: images
        `uint8[n, 28, 28]`, white on black, and labels `int32[n]`. The arrays are read-only.

    Raises:
        DataError: A file is missing or its SHA-256 is not the recorded one.
    """
    return read_mnist(importlib.resources.files("purefit.io").joinpath("mnist"))


def load(name: str | os.PathLike[str]) -> Dataset:
    """Load a data set by name or path.

    Args:
        name: `"mnist"`; `"openml:NAME"` or `"openml:NAME:VERSION"`; or the path of an `.npz` file
            with the arrays `x_train`, `y_train` and optionally `x_test`, `y_test`, or just `x`
            and `y`.

    Raises:
        DataError: The name is unknown, or what it stands for cannot be read.
        MissingExtraError: OpenML was asked for and scikit-learn is not installed.
    """
    text = os.fspath(name)
    if text == "mnist":
        return mnist()
    if text.startswith("openml:"):
        from purefit.io.openml import openml  # noqa: PLC0415

        return openml(text.removeprefix("openml:"))
    if Path(text).suffix.lower() == ".npz":
        return _read_npz(Path(text))
    raise DataError(
        f"Expected a data set named 'mnist', 'openml:NAME' or a path ending in .npz, got {text!r}; "
        "choose one of these."
    )


def read_mnist(folder: Traversable) -> Dataset:
    """Read the four files of MNIST from a folder, each after checking its SHA-256."""
    lines = _shipped(folder, "SHA256SUMS").decode().splitlines()
    sums = {name: recorded for recorded, name in (line.split() for line in lines)}

    def examples(part: str) -> Data:
        images = _idx(folder, f"{part}-images-idx3-ubyte.gz", sums)
        labels = _idx(folder, f"{part}-labels-idx1-ubyte.gz", sums)
        return _frozen(Data(images, labels.astype(np.int32)))

    digits = tuple(str(digit) for digit in range(10))
    return Dataset("mnist", examples("train"), examples("t10k"), digits)


def _idx(folder: Traversable, name: str, sums: dict[str, str]) -> np.ndarray:
    packed = _shipped(folder, name)
    found = hashlib.sha256(packed).hexdigest()
    if found != sums.get(name):
        raise DataError(
            f"Expected {name} to have SHA-256 {sums.get(name)}, got {found}; reinstall purefit."
        )
    raw = zlib.decompress(packed, wbits=31)
    # An IDX file opens with its type and rank as bytes, then a big-endian length for each axis.
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", count=rank, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(tuple(shape))


def _shipped(folder: Traversable, name: str) -> bytes:
    try:
        return folder.joinpath(name).read_bytes()
    except OSError as error:
        raise DataError(
            f"Expected {name} to come with purefit, got {reason(error)}; reinstall purefit."
        ) from error


def _read_npz(path: Path) -> Dataset:
    pairs = [("x_train", "y_train"), ("x_test", "y_test"), ("x", "y")]
    arrays, found = read_npz(path, [name for pair in pairs for name in pair])
    for x, y in pairs:
        if (x in arrays) != (y in arrays):
            raise DataError(
                f"Expected {x} and {y} together in {path.name}, got {_names(found)}; add the other."
            )
    data = [_frozen(Data(arrays[x], arrays[y])) if x in arrays else None for x, y in pairs]
    train, test, only = data
    if (train is None) == (only is None) or (only is not None and test is not None):
        raise DataError(
            f"Expected {path.name} to hold either x_train and y_train, with x_test and y_test or "
            f"without, or x and y, got {_names(found)}; name the arrays like that."
        )
    return Dataset(path.stem, train or only, test, None)  # type: ignore[arg-type]


def read_npz(path: Path, wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read those of the wanted arrays that an `.npz` file has, and list the names of all it has.

    Raises:
        DataError: There is no such file, or it is damaged, of another kind, or holds objects.
    """
    with readable(path, ".npz", "numpy.savez"), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with archive:
            return {name: archive[name] for name in wanted if name in archive}, archive.files


@contextmanager
def readable(path: Path, kind: str, writer: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one sentence.

    Args:
        path: The file being read.
        kind: What it should be, such as `.npz`.
        writer: The function that writes such a file.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise DataError(f"Expected a file at {path}, got {found}; check the path.")
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # A damaged file makes its reader raise anything.
        if "Object arrays" in str(error):
            raise DataError(
                f"Expected {path} to hold arrays of numbers, got an array of Python objects, which "
                "is never unpickled; save it again with a dtype of numbers."
            ) from error
        raise DataError(
            f"Expected {path} to be a whole {kind} file, got {_told(error)}; write it again with "
            f"{writer}."
        ) from error


def reason(error: BaseException) -> str:
    """Give the first sentence of an exception's message, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].split(". ")[0].rstrip(".") if lines else type(error).__name__


def _told(error: BaseException) -> str:
    # For any file that is neither a zip archive nor an array NumPy suspects a pickle.
    return "something else" if "allow_pickle" in str(error) else reason(error)


def _names(found: Sequence[str]) -> str:
    return ", ".join(found) or "no arrays"


def _frozen(data: Any) -> Data:
    for leaf in data:
        leaf.setflags(write=False)
    return Data(*data)
