"""Runs on real MNIST that are killed, interrupted and resumed, as processes of their own."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from purefit.io.checkpoints import steps, verify
from purefit.io.steps import step_path

TRAIN = ["train", "mnist", "--epochs", "12", "--save-every-steps", "150", "--progress", "none"]


def start(*arguments, **more):
    command = [sys.executable, "-m", "purefit", *arguments]
    pipe = subprocess.PIPE
    # One device as for a user; the tests' own session has two.
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, **more)


def finish(*arguments):
    with start(*arguments) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def saved(folder: Path):
    checkpoints = folder / "checkpoints"
    return steps(checkpoints) if checkpoints.exists() else []


def wait_for_a_new_step(process, folder, before, seconds=120):
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if saved(folder)[-1:] > before[-1:]:
            return
        time.sleep(0.005)


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory):
    """Train without being stopped."""
    return finish(*TRAIN, "--json", "--out", str(tmp_path_factory.mktemp("whole") / "run"))


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_bit(whole, tmp_path):
    draw = random.Random(20)
    folder = tmp_path / "run"
    arguments = [*TRAIN, "--json", "--out", str(folder)]
    kills = 0
    while kills < 20:
        before = saved(folder)
        with start(*arguments) as process:
            if draw.random() < 0.7:
                # Two in three after a fresh checkpoint, anywhere in the training or a save ...
                wait_for_a_new_step(process, folder, before)
                time.sleep(draw.uniform(0, 0.08))
            else:
                # ... the others anywhere in the start-up.
                time.sleep(draw.uniform(0, 3))
            assert process.poll() is None, process.stderr.read()
            process.send_signal(signal.SIGKILL)
            process.wait()
        kills += 1
        for step in saved(folder):
            verify(step_path(folder / "checkpoints", step))
        if (folder / "run.toml").exists():
            arguments = ["resume", str(folder), "--progress", "none", "--json"]
        elif folder.exists():
            for leftover in folder.rglob("*"):  # killed before there was anything to resume
                assert leftover.name in (".lock", ".owner", "checkpoints") or "tmp" in leftover.name
            arguments[-1] = str(tmp_path / f"run-{kills}")
            folder = Path(arguments[-1])
    result = finish(*arguments)
    assert result["state_hash"] == whole["state_hash"]
    assert result["test_accuracy"] == whole["test_accuracy"]
    assert result["steps"] == whole["steps"] == 12 * 469


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_says_how_to_go_on_and_changes_no_bit(whole, tmp_path, number, code):
    folder = tmp_path / "run"
    with start(*TRAIN, "--out", str(folder)) as process:
        wait_for_a_new_step(process, folder, [])
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"go on with: purefit resume {folder}" in err
    assert "Traceback" not in err
    step = int(err.split("after step ")[1].split(",")[0])
    assert saved(folder)[-1] == step
    assert 0 < step < whole["steps"]
    result = finish("resume", str(folder), "--progress", "none", "--json")
    assert result["state_hash"] == whole["state_hash"]


@pytest.mark.slow
def test_a_folder_in_use_is_refused_and_free_again_after_a_kill(tmp_path):
    folder = tmp_path / "run"
    with start(*TRAIN, "--out", str(folder)) as process:
        wait_for_a_new_step(process, folder, [])
        with start("resume", str(folder), "--progress", "none") as second:
            _, err = second.communicate(timeout=60)
        assert second.returncode == 2
        assert str(process.pid) in err
        assert len(err.strip().splitlines()) == 1
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert finish("resume", str(folder), "--progress", "none", "--json")["steps"] == 12 * 469


@pytest.mark.slow
def test_verify_proves_it(whole):
    result = finish("verify", whole["run"], "--kills", "2", "--seed", "1", "--json")
    assert result["exact"] is True
    assert len(result["killed_at_steps"]) >= 1
    assert result["hash"] == result["resumed_hash"]
