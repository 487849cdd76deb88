"""Bad data and bad models: one sentence, exit code 2, and no folder for the run."""

from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest


def npz(name, *wanted, **arrays):
    return pytest.param(arrays, wanted, id=name)


X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = np.arange(40, dtype=np.int32) % 3
TRAIN = {"x_train": X, "y_train": Y}


def but(array, value, *place):
    changed = array.copy()
    changed[place] = value
    return changed


ARRAYS = [
    npz("no arrays", "bad.npz", "no arrays"),
    npz("arrays of other names", "bad.npz", "images, labels", images=X, labels=Y),
    npz("x without y", "bad.npz", "x_train", x_train=X),
    npz("only a test split", "bad.npz", "x_test, y_test", x_test=X, y_test=Y),
    npz("both namings", "bad.npz", "x_train", **TRAIN, x=X, y=Y),
    npz("array of objects", "bad.npz", "objects", x=np.array([{}, {}]), y=Y[:2]),
    npz("other lengths", "40 and 39", x=X, y=Y[:-1]),
    npz("NaN", "train.x", "index [3, 2]", x=but(X, np.nan, 3, 2), y=Y),
    npz("infinity", "train.x", "index [3, 2]", x=but(X, np.inf, 3, 2), y=Y),
    npz("beyond float32", "train.x", "float32", x=X.astype(np.float64) * 1e300, y=Y),
    npz("no examples", "train.x", "(0, 4)", x=X[:0], y=Y[:0]),
    npz("examples of nothing", "train.x", "(40, 0)", x=X[:, :0], y=Y),
    npz("a single number", "train.x", "single number", x=X[0, 0], y=Y[0]),
    npz("texts", "train.x", "<U", x=X.astype(str), y=Y),
    npz("complex numbers", "train.x", "complex64", x=X.astype(np.complex64), y=Y),
    npz("dates", "train.x", "datetime64", x=X.astype(int).astype("M8[s]"), y=Y),
    npz("records", "train.x", "'a'", x=np.zeros(40, [("a", "f4")]), y=Y),
    npz("labels below 0", "train.y", "-1 in row 0", x=X, y=Y - 1),
    npz("labels of floats", "train.y", "float32", "int32", x=X, y=Y.astype(np.float32)),
    npz("labels of truths", "train.y", "bool", x=X, y=Y > 0),
    npz("labels as texts", "train.y", "<U", x=X, y=Y.astype(str)),
    npz("one-hot labels", "train.y", "(40, 3)", "argmax", x=X, y=np.eye(3, dtype=np.int32)[Y]),
    npz("labels of shape [n, 1]", "train.y", "(40, 1)", "y[:, 0]", x=X, y=Y[:, None]),
    npz("labels that would wrap", "train.y", "8589934592", x=X, y=Y.astype(np.int64) + 2**33),
    npz("labels that are numbers", "train.y", "2147483647", x=X, y=but(Y, 2**31 - 1, 5)),
    npz("test of other shape", "valid.x", "(3,)", **TRAIN, x_test=X[:, :3], y_test=Y),
    npz("test of other dtype", "valid.x", "uint8", **TRAIN, x_test=X.astype("u1"), y_test=Y),
    npz("test of other lengths", "valid.x", "40 and 5", **TRAIN, x_test=X, y_test=Y[:5]),
    npz("test of other classes", "valid.y", "5 in row 0", **TRAIN, x_test=X, y_test=Y + 5),
    npz("test of nothing", "valid.x", "(0, 4)", **TRAIN, x_test=X[:0], y_test=Y[:0]),
]

MODELS = {
    "fails": ("RuntimeError", "First sentence"),
    "leaves": ("SystemExit", "leaves()"),
    "nothing": ("NoneType",),
    "text": ("got str",),
    "number": ("got int",),
    "triple": ("got tuple",),
    "two_arguments": ("two_arguments", "TypeError"),
    "unknown_argument": ("mask",),
    "no_inputs": ("(params, inputs)",),
    "cube": ("[2, 1, 3]", "logits"),
    "one_number": ("float32[2]", "logits"),
    "one_row": ("float32[1, 3]",),
    "whole_numbers": ("int32[2, 3]",),
    "too_few": ("train.y", "from 0 to 1", "2 in row 2"),
    "wrong_key": ("KeyError", "'v'"),
    "wrong_shape": ("TypeError", "(4,)"),
    "text_inside": ("TypeError", "str"),
    "integers": ("int32", "params['w']"),
    "asks": ("TracerBoolConversionError",),
    "unhashable": ("Unhashable", "hashed"),
    "absent": ("'absent'", "models.py"),
}

FILES = {
    "gone.py:model": (None, "gone.py"),
    "bad.py:model": ("def model(:", "bad.py", "SyntaxError"),
    "late.py:model": ("import no_such_package_at_all", "no_such_package_at_all"),
    "loud.py:model": ("raise ValueError('One. Two.\\nThree.')", "loud.py", "ValueError (One)"),
    "exit.py:model": ("import sys; sys.exit(5)", "exit.py", "SystemExit"),
    "empty.py:model": ("", "'model'", "empty.py"),
    "models.py": (None, "'models.py'", "FILE.py:NAME"),
    "resnet": (None, "'resnet'", "mlp, cnn"),
}


@pytest.mark.parametrize(("arrays", "wanted"), ARRAYS)
def test_arrays(arrays, wanted, refuse, world):
    np.savez(world / "bad.npz", **arrays)
    refuse(["train", "bad.npz", "--out", "never"], *wanted)


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("gone.npz", None, ("gone.npz", "nothing there")),
        ("base", None, ("'base'", "'mnist'")),
        ("table.csv", b"1,2\n", ("'table.csv'", ".npz")),
        ("", None, ("''", "'mnist'")),
        ("openml:", None, ("adult:2",)),
        ("openml:adult:x", None, ("'adult:x'",)),
        ("cut.npz", "cut", ("cut.npz", "whole .npz file")),
        ("flipped.npz", "flipped", ("flipped.npz", "whole .npz file")),
        ("text.npz", b"hello", ("text.npz", "whole .npz file")),
        ("nothing.npz", b"", ("nothing.npz", "whole .npz file")),
    ],
)
def test_files(name, content, wanted, refuse, world):
    good = bytearray(Path(world, "good.npz").read_bytes())
    if content == "cut":
        content = good[:300]
    elif content == "flipped":
        good[200] ^= 1
        content = good
    if content is not None:
        Path(world, name).write_bytes(content)
    refuse(["train", name, "--out", "never"], *wanted)


def test_no_network(refuse, monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")

    def unreachable(*arguments, **options):
        raise URLError("Name or service not known")

    monkeypatch.setattr(datasets, "fetch_openml", unreachable)
    refuse(["train", "openml:adult"], "'adult'", "Name or service not known", ".npz")


@pytest.mark.parametrize("name", MODELS)
def test_models(name, refuse):
    words = ["train", "good.npz", "--model", f"models.py:{name}", "--out", "never"]
    refuse(words, *MODELS[name])


@pytest.mark.parametrize("name", FILES)
def test_model_files(name, refuse, world):
    text, *wanted = FILES[name]
    if text is not None:
        Path(world, name.partition(":")[0]).write_text(text)
    refuse(["train", "good.npz", "--model", name, "--out", "never"], *wanted)


@pytest.mark.parametrize(
    ("words", "wanted"), [("--dropout 0.1", "dropout"), ("--hidden 8", "hidden")]
)
def test_settings_that_a_model_does_not_read(words, wanted, refuse):
    refuse(["train", "good.npz", "--model", "models.py:model", *words.split()], wanted)


def test_there_are_more_than_fifty_kinds():
    assert len({param.id for param in ARRAYS} | set(MODELS) | set(FILES)) >= 55
