"""Data sets that come with purefit or from a file, whole and damaged."""

import gzip
import hashlib
import importlib.resources
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from purefit.errors import DataError
from purefit.io import datasets
from purefit.io.datasets import Dataset, load, mnist, read_mnist

SHIPPED = Path(str(importlib.resources.files("purefit.io"))) / "mnist"
FILES = sorted(path.name for path in SHIPPED.glob("*.gz"))
TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def sentence(raised):
    text = str(raised.value)
    assert re.fullmatch(r"Expected (?!.*\.\s+[A-Z]).*got .*; .+\.", text), text
    return text


@pytest.fixture(scope="module")
def digits():
    return mnist()


def test_mnist_has_the_published_form(digits):
    assert isinstance(digits, Dataset)
    assert digits.name == "mnist"
    assert digits.classes == tuple("0123456789")
    for data, examples in ((digits.train, 60_000), (digits.test, 10_000)):
        assert data.x.shape == (examples, 28, 28)
        assert data.x.dtype == np.uint8
        assert data.y.shape == (examples,)
        assert data.y.dtype == np.int32


def test_mnist_has_the_published_class_counts(digits):
    assert np.bincount(digits.train.y).tolist() == TRAIN_COUNTS
    assert np.bincount(digits.test.y).tolist() == TEST_COUNTS


def test_mnist_images_are_white_on_black(digits):
    assert digits.train.x.min() == 0
    assert digits.train.x.max() == 255
    assert digits.train.x.mean() == pytest.approx(33.318, abs=1e-3)
    assert digits.train.y[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


def test_mnist_is_read_only(digits):
    for leaf in (*digits.train, *digits.test):
        with pytest.raises(ValueError, match="read-only"):
            leaf[0] = 1


def test_mnist_files_unpack_to_the_md5_in_the_notice():
    notice = (SHIPPED / "NOTICE.md").read_text()
    recorded = dict(re.findall(r"^\| (\S+-ubyte) \| ([0-9a-f]{32}) \|$", notice, re.MULTILINE))
    assert len(recorded) == len(FILES) == 4
    for name in FILES:
        raw = gzip.decompress((SHIPPED / name).read_bytes())
        assert hashlib.md5(raw).hexdigest() == recorded[name.removesuffix(".gz")]


def test_mnist_arrays_hold_the_bytes_of_the_files(digits):
    raw = {name: gzip.decompress((SHIPPED / name).read_bytes()) for name in FILES}
    assert raw["train-images-idx3-ubyte.gz"][16:] == digits.train.x.tobytes()
    assert raw["t10k-images-idx3-ubyte.gz"][16:] == digits.test.x.tobytes()
    assert raw["train-labels-idx1-ubyte.gz"][8:] == digits.train.y.astype(np.uint8).tobytes()
    assert raw["t10k-labels-idx1-ubyte.gz"][8:] == digits.test.y.astype(np.uint8).tobytes()


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(SHIPPED, tmp_path / "mnist"))


def test_an_untouched_copy_is_read(copy, digits):
    assert np.array_equal(read_mnist(copy).test.x, digits.test.x)


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_is_refused(copy, name):
    packed = bytearray((copy / name).read_bytes())
    packed[len(packed) // 2] ^= 1
    (copy / name).write_bytes(packed)
    with pytest.raises(DataError) as raised:
        read_mnist(copy)
    assert name in sentence(raised)
    assert "reinstall" in str(raised.value)


@pytest.mark.parametrize("name", [*FILES, "SHA256SUMS"])
def test_a_missing_file_is_refused(copy, name):
    (copy / name).unlink()
    with pytest.raises(DataError) as raised:
        read_mnist(copy)
    assert name in sentence(raised)
    assert "reinstall" in str(raised.value)


def test_a_truncated_file_is_refused(copy):
    name = "train-labels-idx1-ubyte.gz"
    (copy / name).write_bytes((copy / name).read_bytes()[:1000])
    with pytest.raises(DataError) as raised:
        read_mnist(copy)
    assert name in sentence(raised)


def test_a_file_without_a_recorded_sum_is_refused(copy):
    lines = (copy / "SHA256SUMS").read_text().splitlines()
    (copy / "SHA256SUMS").write_text("\n".join(line for line in lines if "train-im" not in line))
    with pytest.raises(DataError) as raised:
        read_mnist(copy)
    assert "train-images" in sentence(raised)


def test_load_knows_mnist(monkeypatch, digits):
    monkeypatch.setattr(datasets, "mnist", lambda: digits)
    assert load("mnist") is digits


def test_load_hands_openml_names_on(monkeypatch, digits):
    monkeypatch.setattr("purefit.io.openml.openml", lambda name: (name, digits))
    assert load("openml:adult:2") == ("adult:2", digits)


@pytest.mark.parametrize("name", ["mnits", "", "openml", "data.csv", "https://example.org/x"])
def test_an_unknown_name_lists_what_is_accepted(name):
    with pytest.raises(DataError) as raised:
        load(name)
    text = sentence(raised)
    assert repr(name) in text
    assert "'mnist'" in text
    assert "openml:NAME" in text
    assert ".npz" in text


ARRAYS = {
    "x_train": np.arange(12, dtype=np.float32).reshape(6, 2),
    "y_train": np.arange(6),
    "x_test": np.ones((2, 2), np.float32),
    "y_test": np.array([0, 1]),
}


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("kind", [str, Path])
def test_npz_with_train_and_test(tmp_path, kind):
    made = load(kind(save(tmp_path / "mine.npz", **ARRAYS, note=np.array(["text"]))))
    assert made.name == "mine"
    assert made.classes is None
    assert np.array_equal(made.train.x, ARRAYS["x_train"])
    assert np.array_equal(made.train.y, ARRAYS["y_train"])
    assert np.array_equal(made.test.x, ARRAYS["x_test"])
    assert np.array_equal(made.test.y, ARRAYS["y_test"])
    assert not made.train.x.flags.writeable


def test_npz_with_train_only(tmp_path):
    made = load(save(tmp_path / "a.npz", x_train=ARRAYS["x_train"], y_train=ARRAYS["y_train"]))
    assert made.test is None
    assert len(made.train.x) == 6


def test_npz_with_x_and_y_only(tmp_path):
    made = load(save(tmp_path / "a.NPZ.npz", x=ARRAYS["x_train"], y=ARRAYS["y_train"]))
    assert made.test is None
    assert np.array_equal(made.train.y, ARRAYS["y_train"])


def test_compressed_npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", **ARRAYS)
    assert np.array_equal(load(tmp_path / "a.npz").train.x, ARRAYS["x_train"])


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("images", "labels"),
        ("x_train",),
        ("y_train",),
        ("x",),
        ("x_test", "y_test"),
        ("x_train", "y_train", "x_test"),
        ("x_train", "y_train", "y_test"),
        ("x_train", "y_train", "x", "y"),
        ("x", "y", "x_test", "y_test"),
    ],
    ids=" ".join,
)
def test_npz_with_other_names_lists_what_it_has(tmp_path, names):
    with pytest.raises(DataError) as raised:
        load(save(tmp_path / "a.npz", **{name: np.ones(3) for name in names}))
    assert "a.npz" in sentence(raised)
    assert (", ".join(names) or "no arrays") in str(raised.value)


def test_npz_of_objects_is_refused_and_not_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("it was unpickled",)

    path = save(tmp_path / "a.npz", x=np.array([Trap()], dtype=object), y=np.ones(1))
    with pytest.raises(DataError) as raised:
        load(path)
    assert "Python objects" in sentence(raised)


def test_npz_that_is_not_there(tmp_path):
    with pytest.raises(DataError) as raised:
        load(tmp_path / "none.npz")
    assert "none.npz, got nothing there" in sentence(raised)


def test_npz_that_is_a_folder(tmp_path):
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(DataError) as raised:
        load(tmp_path / "a.npz")
    assert "got a folder" in sentence(raised)


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"PK\x03\x04", b"\x80\x04K\x01."])
def test_npz_that_is_something_else(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError) as raised:
        load(tmp_path / "a.npz")
    assert "whole .npz file" in sentence(raised)


def test_npz_that_is_a_single_array(tmp_path):
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(DataError) as raised:
        load(tmp_path / "a.npz")
    assert "a single array" in sentence(raised)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_npz_that_is_truncated(tmp_path, share):
    path = save(tmp_path / "a.npz", **ARRAYS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError) as raised:
        load(path)
    assert "whole .npz file" in sentence(raised)


@pytest.mark.parametrize("writer", [np.savez, np.savez_compressed])
def test_npz_with_any_byte_changed_is_refused_or_read_as_it_was(tmp_path, writer):
    writer(tmp_path / "a.npz", x=ARRAYS["x_train"], y=ARRAYS["y_train"])
    whole = (tmp_path / "a.npz").read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        (tmp_path / "b.npz").write_bytes(damaged)
        try:
            made = load(tmp_path / "b.npz")
        except DataError:
            refused += 1
        else:
            assert np.array_equal(made.train.x, ARRAYS["x_train"])
            assert np.array_equal(made.train.y, ARRAYS["y_train"])
    assert refused > len(whole) / 2
