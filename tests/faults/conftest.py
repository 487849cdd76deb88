"""A small world of good and bad files, and a trained run in it that nothing may change."""

import contextlib
import hashlib
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

MODELS = """
import sys
from dataclasses import dataclass
import jax.numpy as jnp
import purefit as pf

def init(key, x): return {"w": jnp.full((4, 3), 0.1)}
def apply(p, x): return x @ p["w"]
def model(): return init, apply
def other(): return init, lambda p, x: 2 * apply(p, x)
def fails(): raise RuntimeError("First sentence. Second one.\\nA second line.")
def leaves(): sys.exit(3)
def nothing(): return None
def text(): return "mlp"
def number(): return 3
def triple(): return init, apply, apply
def two_arguments(a, b): return init, apply
def unknown_argument(): return init, lambda p, x, mask: apply(p, x)
def no_inputs(): return init, lambda p: p
def cube(): return init, lambda p, x: apply(p, x)[:, None]
def one_number(): return init, lambda p, x: apply(p, x)[:, 0]
def one_row(): return init, lambda p, x: apply(p, x)[:1]
def whole_numbers(): return init, lambda p, x: apply(p, x).astype(jnp.int32)
def too_few(): return (lambda key, x: {"w": jnp.ones((4, 2))}), apply
def wrong_key(): return init, lambda p, x: x @ p["v"]
def wrong_shape(): return (lambda key, x: {"w": jnp.ones((5, 3))}), apply
def text_inside(): return (lambda key, x: {"w": "text"}), apply
def integers(): return (lambda key, x: {"w": jnp.ones((4, 3), jnp.int32)}), apply
def asks(): return init, lambda p, x: apply(p, x) if x.sum() > 0 else 0 * apply(p, x)

@dataclass
class Unhashable:
    reads: tuple = ()
    def init(self, key, x): return pf.Variables(init(key, x), ())
    def apply(self, variables, x, *, key, train): return apply(variables.params, x), ()
unhashable = Unhashable()
"""


def fingerprint(root):
    """The hash of every file under a folder; locks come and go."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(root).rglob("*"))
        if path.is_file() and path.name not in (".lock", ".owner") and path.suffix != ".pyc"
    }


def one_sentence(message, *words):
    """Check the form *Expected ... got ...; do ...* and that the words are in it."""
    assert re.fullmatch(r"Expected .*\bgot\b.*; .*\.", message), message
    assert not re.search(r"\n|\.\s+[A-Z]|Traceback", message), message
    for word in words:
        assert word in message, (word, message)


def data():
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    return x, np.arange(40, dtype=np.int32) % 3


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with data, models, settings and the run `base`."""
    from purefit.cli import main

    root = tmp_path_factory.mktemp("world")
    x, y = data()
    with contextlib.chdir(root):
        good = {"x_train": x, "y_train": y, "x_test": x[:10], "y_test": y[:10]}
        np.savez("good.npz", **good)
        images = (np.abs(x[:, :, None] + x[:, None]) * 40).astype(np.uint8)
        np.savez("images.npz", x=images, y=y)
        np.save("one.npy", x[:1])
        Path("models.py").write_text(MODELS)
        words = ["--epochs", "2", "--batch-size", "20", "--progress", "none"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["train", "good.npz", "--hidden", "4", *words, "--out", "base"]) == 0
            own = ["--model", "models.py:model", "--out", "own"]
            assert main(["train", "good.npz", *own, *words]) == 0
            assert main(["train", "images.npz", *words, "--out", "seen"]) == 0
    return root


@pytest.fixture
def refuse(world, monkeypatch, capsys):
    """Run the command line in the world: exit code, sentence, and that nothing has changed."""
    from purefit.cli import main

    monkeypatch.chdir(world)

    def run(words, *wanted, code=2, warned=False):
        before = fingerprint(world)
        capsys.readouterr()
        assert main(list(words)) == code
        said = capsys.readouterr()
        assert not said.out
        *warnings, last = said.err.splitlines()
        assert bool(warnings) == warned, said.err
        assert all(line.startswith("purefit: warning: ") for line in warnings)
        assert last.startswith("purefit: ")
        one_sentence(last.removeprefix("purefit: "), *wanted)
        assert fingerprint(world) == before

    return run


@pytest.fixture
def copied(world, tmp_path):
    """A copy of a trained run, to be damaged."""

    def copy(name="base"):
        return Path(shutil.copytree(world / name, tmp_path / name))

    return copy


@pytest.fixture
def sentence():
    return one_sentence


@pytest.fixture
def hashes():
    return fingerprint


@pytest.fixture
def arrays():
    return data()
