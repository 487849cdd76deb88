"""Bad words, settings and TOML files: one sentence, exit code 2, and nothing changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bad(name, words, *wanted):
    return pytest.param(words.split(), wanted, id=name)


WORDS = [
    bad("unknown command", "frobnicate", "frobnicate", "train, resume"),
    bad("flag for a command", "--epochs 3", "--epochs", "train, resume"),
    bad("misspelt flag", "train good.npz --epoch 3", "--epoch 3", "mean --epochs"),
    bad("unknown flag", "train good.npz --colour 1", "--colour 1"),
    bad("flag of another command", "resume base --epochs 5", "--epochs 5", "purefit resume"),
    bad("one word too many", "train good.npz more", "more"),
    bad("flag without its value", "train good.npz --epochs", "--epochs"),
    bad("text for a whole number", "train good.npz --epochs three", "--epochs", "'three'"),
    bad("fraction for a whole number", "train good.npz --batch-size 1.5", "'1.5'"),
    bad("text for a number", "train good.npz --learning-rate fast", "--learning-rate", "'fast'"),
    bad("text among widths", "train good.npz --hidden 8 wide", "--hidden", "'wide'"),
    bad("word behind a switch", "train good.npz --shuffle maybe", "maybe"),
    bad("unknown choice", "train good.npz --progress loud", "--progress", "'loud'", "plain"),
    bad("unknown split", "evaluate base --split valid", "--split", "'valid'", "test, train"),
    bad("unknown step", "predict base one.npy --which first", "--which", "'first'"),
    bad("no data", "train", "purefit train mnist"),
    bad("no run to resume", "resume", "RUN"),
    bad("no run to evaluate", "evaluate", "RUN"),
    bad("no run to verify", "verify", "RUN"),
    bad("nothing to predict", "predict base", "digit.png"),
    bad("no epochs to verify", "verify base --epochs 0", "got 0"),
    bad("no kills to verify", "verify base --kills 0", "0"),
]

SETTINGS = [
    bad(name, f"train good.npz {words}", *wanted)
    for name, words, *wanted in [
        ("epochs 0", "--epochs 0", "epochs", "got 0"),
        ("epochs below 0", "--epochs -3", "epochs", "got -3"),
        ("too many steps", "--epochs 99999999999", "99999999999"),
        ("batch_size 0", "--batch-size 0", "batch_size", "got 0"),
        ("batch_size beyond int32", "--batch-size 99999999999999999999", "2**31"),
        ("batch_size without a batch", "--batch-size 41 --drop-remainder", "40", "41"),
        ("eval_batch_size 0", "--eval-batch-size 0", "eval_batch_size"),
        ("unroll 0", "--mode unroll --unroll 0", "unroll", "got 0"),
        ("unroll without effect", "--mode scan --unroll 4", "unroll", "'scan'"),
        ("seed below 0", "--seed -1", "seed", "got -1"),
        ("seed too large", "--seed 4294967296", "seed", "4294967296"),
        ("seed a fraction", "--seed 0.5", "--seed", "'0.5'"),
        ("learning_rate 0", "--learning-rate 0", "learning_rate", "0.0"),
        ("learning_rate below 0", "--learning-rate -1", "learning_rate", "-1.0"),
        ("learning_rate NaN", "--learning-rate nan", "learning_rate", "nan"),
        ("learning_rate infinite", "--learning-rate inf", "learning_rate", "inf"),
        ("learning_rate beyond float32", "--learning-rate 1e39", "1e+39", "float32"),
        ("eps that vanishes in float32", "--eps 1e-60", "eps", "float32"),
        ("b1 that rounds to 1", "--b1 0.9999999999999", "b1", "float32"),
        ("b2 of 1", "--b2 1", "b2", "1.0"),
        ("dropout of 1", "--dropout 1", "dropout", "1.0"),
        ("clip_norm 0", "--clip-norm 0", "clip_norm", "0.0"),
        ("weight_decay below 0", "--optimizer adamw --weight-decay -0.1", "-0.1"),
        ("momentum of 1", "--optimizer sgd --momentum 1", "momentum"),
        ("warmup of 1", "--schedule warmup_cosine --warmup 1", "warmup"),
        ("final_scale above 1", "--schedule warmup_cosine --final-scale 2", "final_scale"),
        ("unknown optimizer", "--optimizer adm", "'adm'", "adamw"),
        ("unknown schedule", "--schedule cosine", "'cosine'", "warmup_cosine"),
        ("unknown loss", "--loss hinge", "'hinge'", "cross_entropy"),
        ("unknown mode", "--mode fast", "'fast'", "scan"),
        ("momentum with adam", "--momentum 0.9", "momentum", "'adam'"),
        ("b1 with sgd", "--optimizer sgd --b1 0.9", "b1", "'sgd'"),
        ("weight_decay with adam", "--weight-decay 0.1", "weight_decay", "'adam'"),
        ("warmup with constant", "--warmup 0.1", "warmup", "'constant'"),
        ("final_scale with constant", "--final-scale 0.1", "final_scale", "'constant'"),
        ("hidden 0", "--hidden 0", "hidden", "got 0"),
        ("hidden beyond all bounds", "--hidden 99999999999", "hidden", "99999999999"),
        ("channels with mlp", "--channels 8", "channels", "'mlp'"),
        ("channels without a number", "--model cnn --channels", "channels"),
        ("two hidden widths for cnn", "--model cnn --hidden 8 8", "[8, 8]"),
        ("cnn for rows", "--model cnn", "images", "(1, 4)"),
        ("keep_last 0", "--keep-last 0", "keep_last", "got 0"),
        ("save_every_epochs 0", "--save-every-epochs 0", "save_every_epochs"),
        ("save_every_epochs text", "--save-every-epochs never", "--save-every-epochs", "'never'"),
        ("save_every_steps 0", "--save-every-steps 0", "save_every_steps"),
        ("save_every_seconds 0", "--save-every-seconds 0", "save_every_seconds"),
        ("save_every_seconds NaN", "--save-every-seconds nan", "save_every_seconds"),
        ("out in use", "--out base", "base"),
        ("out a file", "--out good.npz", "good.npz"),
        ("out below a file", "--out good.npz/run", "good.npz/run"),
        ("out empty", "--out=", "out", "''"),
        ("out without rights", "--out /proc/run", "/proc/run"),
        ("out too long", f"--out {'x' * 300}", "File name too long"),
    ]
]

TOML = {
    "syntax": (b"epochs = = 3\n", "bad.toml", "line 1"),
    "key twice": (b"epochs = 1\nepochs = 2\n", "bad.toml"),
    "not UTF-8": (b"\xff\xfe", "bad.toml", "UTF-8"),
    "unknown key": (b"epoch = 3\n", "bad.toml", "'epoch'", "epochs"),
    "text for a whole number": (b'epochs = "3"\n', "bad.toml", "epochs", "'3'"),
    "fraction for a whole number": (b"epochs = 3.0\n", "bad.toml", "3.0"),
    "truth for a whole number": (b"epochs = true\n", "bad.toml", "True"),
    "number for truth": (b"shuffle = 1\n", "bad.toml", "shuffle", "true or false"),
    "date for a number": (b"learning_rate = 2020-01-01\n", "bad.toml", "learning_rate"),
    "number for a list": (b"hidden = 16\n", "bad.toml", "hidden", "16"),
    "list of texts": (b'hidden = ["a"]\n', "bad.toml", "hidden", "'a'"),
    "table for a value": (b"[epochs]\nlast = 3\n", "bad.toml", "epochs", "table"),
    "unknown choice": (b'progress = "loud"\n', "bad.toml", "'loud'"),
    "path with a NUL": (b'out = "a\\u0000b"\n', "bad.toml", "a\\x00b"),
    "out of range": (b"epochs = 0\n", "epochs", "got 0"),
    "without effect": (b"momentum = 0.9\n", "momentum", "'adam'"),
}


@pytest.mark.parametrize(("words", "wanted"), WORDS + SETTINGS)
def test_words(words, wanted, refuse):
    refuse(words, *wanted)


@pytest.mark.parametrize("name", TOML)
def test_toml(name, refuse, world):
    text, *wanted = TOML[name]
    Path(world, "bad.toml").write_bytes(text)
    refuse(["train", "good.npz", "--config", "bad.toml"], *wanted)


@pytest.mark.parametrize("path", ["missing.toml", "base", "''"])
def test_no_toml(path, refuse):
    refuse(["train", "good.npz", "--config", path.strip("'")], path)


def test_flags_stand_before_the_file(world, monkeypatch, capsys):
    from purefit.cli.words import parse

    monkeypatch.chdir(world)
    Path("bad.toml").write_text('data = "good.npz"\nhidden = [8]\nepochs = 2\nkeep_best = false\n')
    options = parse(["train", "images.npz", "--config", "bad.toml", "--epochs", "5"])
    assert (options.data, options.hidden, options.epochs) == ("images.npz", (8,), 5)
    assert parse(["train", "--config", "bad.toml"]).data == "good.npz"
    assert not options.keep_best


def test_words_that_are_no_text(refuse):
    refuse(["train", "b\udcff.npz"], "UTF-8", "udcff")


def test_there_are_more_than_fifty_kinds():
    kinds = [param.id for param in WORDS + SETTINGS] + [f"toml {name}" for name in TOML]
    assert len(set(kinds)) == len(kinds) >= 85


def python_purefit(words, world, **options):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-m", "purefit", *words],
        cwd=world, env=env, stderr=subprocess.PIPE, text=True, check=False, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("frobnicate", 2),
        ("train good.npz --hidden 2147483647 2147483647", 2),
        ("train good.npz --hidden 3000000 3000000", 1),
    ],
)
def test_a_real_process_shows_no_traceback(words, code, world, sentence, hashes):
    before = hashes(world / "base")
    done = python_purefit(words.split(), world)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    sentence(last.removeprefix("purefit: "))
    assert hashes(world / "base") == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_nobody_takes(world, sentence):
    with open("/dev/full", "w") as full:
        done = python_purefit(["--help"], world, stdout=full)
    assert done.returncode == 1
    sentence(done.stderr.strip().removeprefix("purefit: "), "No space left")
    reading, writing = os.pipe()
    os.close(reading)
    done = python_purefit(["train", "--help"], world, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
