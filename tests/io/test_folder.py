import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import jax
import pytest

from purefit.errors import RunFolderError, SaveError
from purefit.io import disk
from purefit.io.folder import RunFolder, environment, name_run

HOLD = """
import sys
from purefit.io.folder import RunFolder
folder = RunFolder.open(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path):
    with RunFolder.create(tmp_path / "runs" / "one") as folder:
        folder.write_settings({"plan": {"epochs": 3}})
    return folder.path


def test_names_are_fresh(tmp_path):
    now = datetime(2026, 12, 1, 15, 20)
    first = name_run(tmp_path, "mnist", "mlp", now)
    assert first == tmp_path / "mnist-mlp-20261201-152000"
    first.mkdir()
    second = name_run(tmp_path, "mnist", "mlp", now)
    assert second.name == "mnist-mlp-20261201-152000-2"
    second.write_text("")
    assert name_run(tmp_path, "mnist", "mlp", now).name.endswith("-152000-3")
    assert name_run(tmp_path, "../my data", "a/b", now).name == "my-data-a-b-20261201-152000"


def test_create_makes_parents_and_takes_an_empty_folder(tmp_path):
    with RunFolder.create(tmp_path / "a" / "b") as folder:
        assert folder.checkpoints.is_dir()
        assert folder.checkpoints == tmp_path / "a" / "b" / "checkpoints"
    (tmp_path / "c").mkdir()
    RunFolder.create(str(tmp_path / "c")).close()


def test_create_overwrites_nothing(tmp_path, run):
    (tmp_path / "file").write_text("mine")
    for taken in (run, tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunFolderError, match=r"choose another out=, or resume"):
            RunFolder.create(taken)
    assert (tmp_path / "file").read_text() == "mine"


def test_open_names_what_is_missing(tmp_path, run):
    with pytest.raises(RunFolderError, match=r"got no .*nowhere;"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"got no .*run\.toml;"):
        RunFolder.open(tmp_path)
    with RunFolder.open(run) as folder:
        assert folder.path == run


def test_settings_come_back(run):
    settings = {
        "name": "é\n",
        "record": {"seed": 2**62, "rate": 1e-07, "on": True, "sizes": [1, 2]},
        "rows": [{"a": 1}, {"a": 2}],
    }
    with RunFolder.open(run) as folder:
        folder.write_settings(settings)
        assert folder.read_settings() == settings
        assert RunFolder.open(run, lock=False).read_settings() == settings
    assert not [name for name in os.listdir(run) if name.startswith(".tmp")]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = 1\nb = \n", "line 2"), (b"a = 1\n\n\xff = 2", "line 3"), (b"a = 1\na = 2\n", "line 2")],
)
def test_damaged_settings_are_told_with_their_line(run, content, message):
    (run / "run.toml").write_bytes(content)
    folder = RunFolder.open(run, lock=False)
    with pytest.raises(RunFolderError, match=rf"run\.toml to hold .* as TOML, got.*{message}"):
        folder.read_settings()
    (run / "run.toml").unlink()
    with pytest.raises(RunFolderError, match="No such file"):
        folder.read_settings()


def test_settings_survive_a_failed_write(run, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk.os, "fsync", full)
    folder = RunFolder.open(run, lock=False)
    for act in (
        lambda: folder.write_settings({}),
        lambda: folder.write_history([]),
        folder.write_environment,
    ):
        with pytest.raises(SaveError, match="got No space left on device; make room"):
            act()
    assert folder.read_settings() == {"plan": {"epochs": 3}}
    assert not [name for name in os.listdir(run) if name.startswith(".tmp")]


def test_environment_tells_versions_and_devices(run):
    folder = RunFolder.open(run, lock=False)
    folder.write_environment()
    told = json.loads((run / "environment.json").read_text())
    assert told == environment()
    assert told["jax"] == jax.__version__
    assert told["device_count"] == 2
    assert told["backend"] == "cpu"
    names = {"purefit", "jaxlib", "optax", "orbax-checkpoint", "numpy", "python", "platform"}
    assert all(told[name] for name in names)


def test_history_grows_line_by_line(run):
    folder = RunFolder.open(run, lock=False)
    folder.append_history({"step": 1, "loss": 0.5})
    folder.append_history({"step": 2, "loss": 0.25})
    text = (run / "metrics.jsonl").read_text()
    assert text == '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'
    folder.write_history([{"step": 1}])
    folder.append_history({"step": 2})
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1}, {"step": 2}]


def test_history_that_cannot_grow_is_told(run):
    (run / "metrics.jsonl").mkdir()
    with pytest.raises(SaveError, match=r"Expected to write .*metrics\.jsonl, got Is a directory"):
        RunFolder.open(run, lock=False).append_history({})


def test_one_owner_at_a_time_also_in_this_process(run):
    with RunFolder.open(run):
        with pytest.raises(RunFolderError, match="that this process is using"):
            RunFolder.open(run)
        RunFolder.open(run, lock=False).close()
        (run / ".owner").write_text("?")
        with pytest.raises(RunFolderError, match="that another process is using"):
            RunFolder.open(run)
    folder = RunFolder.open(run)
    folder.close()
    folder.close()


def test_another_process_is_kept_out_until_the_owner_dies(run):
    root = Path(__file__).parents[2]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=rf"another process \(pid {holder.pid}\) is using"):
            RunFolder.open(run)
        RunFolder.open(run, lock=False).close()
    finally:
        holder.kill()
        holder.communicate()
    with RunFolder.open(run):
        assert int((run / ".owner").read_text()) == os.getpid()
    assert not (run / ".owner").exists()
