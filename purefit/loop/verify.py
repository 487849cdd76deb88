"""The proof that a run resumes bit for bit: train, kill, resume, compare hashes."""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from purefit.errors import PurefitError
from purefit.io.checkpoints import steps as saved_steps
from purefit.io.folder import RunFolder

__all__ = ["verify"]


def verify(
    folder: Path,
    *,
    epochs: int = 2,
    kills: int = 1,
    seed: int | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """Train a short copy of a run twice, once killed with SIGKILL and resumed, and compare.

    Both copies are processes of their own in a temporary folder; the run's folder is only read.

    Args:
        folder: A run folder made by `purefit train`.
        epochs: Epochs of the copies.
        kills: How often the second copy is killed, each time after a random step.
        seed: Seed of the random steps; None draws one.
        model: What --model was for the run.

    Returns:
        `exact` (whether the hashes are equal), `hash`, `resumed_hash`, `killed_at_steps`, `steps`,
        `mode`.

    Raises:
        PurefitError: A copy failed.
    """
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="purefit-verify-") as temporary:
        root = Path(temporary)
        config = ["--config", str(folder / "run.toml"), "--epochs", str(epochs)]
        config += ["--model", model] if model is not None else []
        config += ["--save-every-steps", str(_spacing(folder, epochs)), "--json"]
        whole = _finish(["train", *config, "--out", str(root / "whole")])
        killed: list[int] = []
        arguments = ["train", *config, "--out", str(root / "killed")]
        again = ["resume", str(root / "killed"), "--json"]
        again += ["--model", model] if model is not None and ":" in model else []
        for target in sorted(draw.sample(range(1, whole["steps"]), min(kills, whole["steps"] - 1))):
            done = _kill_after(arguments, root / "killed" / "checkpoints", target)
            if done is None:
                break
            killed.append(done)
            arguments = again
        resumed = _finish(again)
    return {
        "exact": whole["state_hash"] == resumed["state_hash"],
        "hash": whole["state_hash"],
        "resumed_hash": resumed["state_hash"],
        "killed_at_steps": killed,
        "steps": whole["steps"],
        "mode": whole["mode"],
    }


def _spacing(folder: Path, epochs: int) -> int:
    """Choose how often the copies save: about fifty times, at steps that fall inside an epoch."""
    with RunFolder.open(folder, lock=False) as opened:
        saved = opened.read_settings()
    examples, batch = saved["record"]["examples"], saved["batch_size"]
    return max(1, epochs * (examples // batch) // 50)


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "purefit", *arguments, "--progress", "none"]


def _finish(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run(_command(arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise PurefitError(
            f"Expected the copy to train, got exit code {done.returncode} ({reason}); mend that."
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def _kill_after(arguments: list[str], checkpoints: Path, target: int) -> int | None:
    """Start a copy and kill it once it has saved step `target` or a later one.

    Returns:
        The newest saved step when it was killed, or None if it had finished before.
    """
    with subprocess.Popen(
        _command(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            done = saved_steps(checkpoints) if checkpoints.exists() else []
            if done and done[-1] >= target:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return saved_steps(checkpoints)[-1]
            time.sleep(0.002)
    return None
