"""Bad run folders: every command says so in one sentence, and leaves the folder as it is."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from purefit.io.checkpoints import steps, verify
from purefit.io.folder import RunFolder

READING = (["evaluate"], ["predict", "one.npy"])
ALL = (["resume", "--progress", "none"], *READING)


def edited(old, new):
    def edit(run):
        text = (run / "run.toml").read_text()
        assert old in text
        (run / "run.toml").write_text(text.replace(old, new))

    return edit


def replaced(content):
    return lambda run: (run / "run.toml").write_bytes(content)


def without_steps(edit):
    def both(run):
        shutil.rmtree(run / "checkpoints")
        edit(run)

    return both


def each_step(damage, last=False):
    def edit(run):
        found = sorted((run / "checkpoints").glob("step_*"))
        assert len(found) == 2
        for step in found[-1:] if last else found:
            damage(step)

    return edit


def largest(step):
    files = [path for path in (step / "arrays").rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


def flip(step):
    content = bytearray(largest(step).read_bytes())
    content[len(content) // 2] ^= 1
    largest(step).write_bytes(content)


def edit_manifest(step):
    text = (step / "manifest.json").read_text()
    (step / "manifest.json").write_text(text.replace('"epochs": 2', '"epochs": 3'))


def is_a_file(run):
    shutil.rmtree(run)
    run.write_text("no folder")


BAD = {
    "not there": (shutil.rmtree, ALL, "base"),
    "a file": (is_a_file, ALL, "run.toml"),
    "not a run": (lambda run: (run / "run.toml").unlink(), ALL, "run.toml"),
    "run.toml no text": (replaced(b"\x00\xff"), ALL, "run.toml", "UTF-8"),
    "run.toml no TOML": (replaced(b"epochs = = 2"), ALL, "run.toml", "line 1"),
    "run.toml empty": (replaced(b""), ALL, "run.toml", "data"),
    "run made in Python": (edited('"good.npz"', '"arrays"'), ALL, "pf.fit", "pf.load"),
    "value of another kind": (edited("[\n    4,\n]", '"four"'), ALL, "hidden", "'four'"),
    "value out of range": (edited("epochs = 2", "epochs = 0"), ALL, "epochs"),
    "epochs edited": (edited("epochs = 2", "epochs = 3"), ALL, "epochs = 2", "3"),
    "width edited": (edited("    4,\n]\nseed", "    5,\n]\nseed"), ALL, "hidden", "[5]"),
    "scaling edited": (edited("scale_bytes = true", "scale_bytes = false"), ALL, "scale_bytes"),
    "key added": (edited("seed = 0", "seed = 0\ncolour = 1"), ALL, "colour"),
    "seed taken out": (edited("seed = 0\n", ""), ALL, "seed"),
    "data's hash edited": (edited('train_data = "', 'train_data = "0'), ALL, "train_data"),
    "dtype edited": (edited('"float32"', '"uint8"'), ALL[:2], "input_dtypes"),
    "dtype unknown": (edited('"float32"', '"floaty"'), READING, "[record]"),
    "outputs edited": (edited("outputs = 3", "outputs = 5"), ALL, "outputs"),
    "table taken out": (edited("[record]", "[other]"), ALL),
    "data gone": (edited("good.npz", "gone.npz"), ALL[:2], "gone.npz"),
    "data of another run": (edited("good.npz", "images.npz"), ALL[:1], "train_data"),
    "model changed": (edited('"mlp"', '"cnn"'), ALL),
    "model of code": (edited('"mlp"', '"evil.py:model"'), ALL, "evil.py:model", "--model"),
    "all steps flipped": (each_step(flip), ALL, "other content", "another out="),
    "all manifests edited": (each_step(edit_manifest), ALL, "manifest.json"),
    "all manifests gone": (
        each_step(lambda step: (step / "manifest.json").unlink()), ALL, "manifest.json",
    ),
    "leaves gone": (each_step(lambda step: largest(step).unlink()), ALL, "no such file"),
    "a file too many": (each_step(lambda step: (step / "more").write_text("")), ALL, "more"),
    "nothing saved": (without_steps(lambda run: None), READING, "resume the run first"),
    "bad value, nothing saved": (
        without_steps(edited("batch_size = 20", 'batch_size = "x"')), ALL, "batch_size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_folders(name, copied, refuse, hashes):
    damage, commands, *wanted = BAD[name]
    run = copied()
    damage(run)
    before = hashes(run)
    for command, *words in commands:
        refuse([command, str(run), *words], *wanted)
    assert hashes(run) == before


def test_there_are_more_than_twenty_kinds():
    assert len(BAD) >= 25


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("resume own", ("models.py:model", "never runs code")),
        ("evaluate own --model mlp", ("'mlp'", "models.py:model")),
        ("evaluate own --model models.py:other", ("'models.py:other'",)),
        ("predict base one.npy --model cnn", ("'cnn'", "mlp")),
        ("verify own", ("models.py:model",)),
        ("evaluate base --data gone.npz", ("gone.npz",)),
        ("evaluate base --data images.npz --split train", ("(4,)", "(4, 4)")),
        ("evaluate seen", ("test split", "--split train")),
        ("predict base gone.npy", ("gone.npy",)),
        ("predict base base", ("base", ".png")),
        ("predict base good.npz", ("good.npz", "named x")),
        ("predict seen one.npy", ("one.npy", "(4, 4)", "(1, 4)")),
        ("predict base models.py", ("models.py", ".npy")),
    ],
)
def test_words_that_do_not_fit_the_run(words, wanted, refuse):
    refuse(words.split(), *wanted)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros((2, 5), np.float32), "(2, 5)"),
        (np.zeros((0, 4), np.float32), "(0, 4)"),
        (np.full((1, 4), np.nan, np.float32), "NaN"),
        (np.full((1, 4), 1e300), "float32"),
        (np.array([["a"] * 4]), "<U1"),
        (np.zeros((1, 4), np.complex64), "complex64"),
        (None, "whole .npy file"),
    ],
)
def test_arrays_to_predict(array, wanted, refuse, world):
    if array is None:
        Path(world, "bad.npy").write_bytes(b"no array")
    else:
        np.save(world / "bad.npy", array)
    refuse(["predict", "base", "bad.npy"], "bad.npy", wanted)


def test_images_to_predict(refuse, world):
    images = pytest.importorskip("PIL.Image")
    images.new("L", (9, 9)).save(world / "nine.png")
    Path(world, "text.png").write_text("no image")
    refuse(["predict", "seen", "nine.png"], "nine.png", "9 x 9", "--resize")
    refuse(["predict", "seen", "text.png"], "text.png")
    refuse(["predict", "base", "nine.png"], "nine.png", "(4,)")


@pytest.mark.parametrize("command", READING)
def test_one_damaged_step_is_told_and_the_one_before_used(command, copied, world, capsys, hashes):
    from purefit.cli import main

    run = copied()
    each_step(flip, last=True)(run)
    before = hashes(run)
    words = [str(world / word) if word.endswith("npy") else word for word in command[1:]]
    data = ["--data", str(world / "good.npz")] if command[0] == "evaluate" else []
    assert main([command[0], str(run), *words, *data]) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "step_00000004" in warning
    assert "step_00000002 is used instead" in warning
    assert hashes(run) == before


def test_a_folder_in_use(copied, refuse, hashes):
    run = copied()
    before = hashes(run)
    with RunFolder.open(run):
        refuse(["resume", str(run), "--progress", "none"], str(run), "this process")
    assert hashes(run) == before


def test_a_loss_that_diverges_leaves_what_was_saved(tmp_path, refuse):
    words = ["--learning-rate", "1e30", "--batch-size", "10", "--save-every-steps", "1"]
    run = tmp_path / "run"
    words += ["--progress", "none", "--out", str(run)]
    refuse(["train", "good.npz", *words], "nan", "step ", "params", "is saved in", code=1)
    saved = steps(run / "checkpoints")
    assert saved
    for step in saved:
        verify(run / "checkpoints" / f"step_{step:08d}")


def test_a_full_disk_leaves_what_was_saved(copied, world, monkeypatch, refuse, hashes):
    from purefit.io import steps as module

    def full(*arguments):
        raise OSError(28, "No space left on device")

    run = copied()
    shutil.rmtree(run / "checkpoints" / "step_00000004")
    before = hashes(run)
    monkeypatch.setattr(module, "write_arrays", full)
    words = ["resume", str(run), "--progress", "none"]
    refuse(words, "No space left on device", "step 4", "untouched", code=1)
    after = hashes(run)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed <= {"metrics.jsonl"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no SIGTERM between processes")
def test_a_signal_saves_and_says_how_to_go_on(world, tmp_path):
    run = tmp_path / "run"
    words = ["--epochs", "100000", "--hidden", "4", "--progress", "none", "--out", str(run)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-m", "purefit", "train", str(world / "good.npz"), *words],
        cwd=root, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while process.poll() is None and not steps(run / "checkpoints"):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[1]
    assert process.returncode == 143, said
    assert "Traceback" not in said
    assert f"purefit resume {run}" in said.splitlines()[-1]
    verify(run / "checkpoints" / f"step_{steps(run / 'checkpoints')[-1]:08d}")
