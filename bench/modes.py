"""Milliseconds a step in each execution mode, for a network without and with convolutions.

Milliseconds a step: mlp scan 0.51, unroll 8 0.56, step 0.66; cnn scan 695, unroll 8 26.0, step
45.1. Medians of 7 (mlp) and 3 (cnn) repeats, batch 128, 2 CPU cores, jax 0.10.2.

This is the evidence for the rule in `purefit.core.run.choose_mode`: on the CPU a program with
a convolution is unrolled, anything else is a loop. Beside the time of a step stands the time that
tracing and compiling the mode's training program took.

A repeat is one epoch of a small data set (`--steps` batches, `--conv-scan-steps` for convolutions
in a loop, which are slow), from the call to the fetched losses. The modes of a model take turns.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
from typing import Any

import jax
import numpy as np

import purefit as pf
from purefit.loop.job import make_job
from purefit.loop.programs import Programs, form_of

BATCH = 128
MODES = {
    "scan": {"mode": "scan"},
    **{f"unroll {n}": {"mode": "unroll", "unroll": n} for n in (2, 4, 8, 16)},
    "step": {"mode": "step"},
}


def linen_cnn() -> Any:
    """Make the twin of `pf.cnn()` in Flax Linen."""
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, images):
            values = images[..., None]
            for channels in (32, 64):
                values = nn.relu(nn.Conv(channels, (3, 3))(values))
                values = nn.max_pool(values, (2, 2), strides=(2, 2))
            values = nn.relu(nn.Dense(128)(values.reshape(values.shape[0], -1)))
            return nn.Dense(10)(values)

    return Net()


MODELS = {"mlp": lambda: pf.mlp(256, 128), "cnn": pf.cnn, "linen-cnn": linen_cnn}


class Runner:
    """A model in one mode: compiled once, then an epoch at a time."""

    def __init__(self, model: Any, mode: dict[str, Any], steps: int, epochs: int) -> None:
        x, y = pf.datasets.mnist().train
        some = (x[: steps * BATCH], y[: steps * BATCH])
        self.job = make_job(model, some, None, 0, {"epochs": epochs, "batch_size": BATCH, **mode})
        self.programs = Programs(
            self.job.model, self.job.plan, self.job.traced, form_of(self.job.train), None
        )
        self.steps, self.index = steps, 0
        self.state = self.programs.start(self.job.traced, jax.random.key(0))
        self.programs.order(self.state.key, 0)
        before = self.programs.seconds
        self.epoch()
        self.compile_seconds = self.programs.seconds - before

    def epoch(self) -> float:
        """Run an epoch and give the milliseconds of a step."""
        order = jax.block_until_ready(self.programs.order(self.state.key, self.index))
        begin = time.perf_counter()
        self.state, infos = self.programs.advance(
            self.state, self.job.traced, self.job.train, order, self.index, 0, self.steps
        )
        fetched = jax.device_get(infos)
        seconds = time.perf_counter() - begin
        self.index += 1
        if not all(np.isfinite(info["loss"].total).all() for info, _ in fetched):
            raise SystemExit("A loss is not finite; these steps cannot be compared.")
        return 1000 * seconds / self.steps


def measure(name: str, steps: int, conv_scan_steps: int, repeats: int) -> list[dict[str, Any]]:
    """Time every mode of one model."""
    model = MODELS[name]()
    runners = {}
    for mode, settings in MODES.items():
        slow = mode == "scan" and name != "mlp"
        runners[mode] = Runner(model, settings, conv_scan_steps if slow else steps, 1 + repeats)
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(repeats):
        for mode, runner in runners.items():
            times[mode].append(runner.epoch())
    chosen = Runner(model, {"mode": "auto"}, 1, 1).programs.mode
    return [
        {
            "model": name,
            "mode": mode,
            "chosen": mode == {"unroll": "unroll 8"}.get(chosen, chosen),
            "median_ms": statistics.median(times[mode]),
            "compile_seconds": runner.compile_seconds,
            "steps": runner.steps,
            "ms": times[mode],
        }
        for mode, runner in runners.items()
    ]


def environment() -> dict[str, object]:
    """Say what was measured on."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "devices": len(jax.devices()),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(
            f"{row['model']:>9}  {row['mode']:<9}  {row['median_ms']:8.2f} ms a step  "
            f"compile {row['compile_seconds']:6.2f} s{'  <- the rule' if row['chosen'] else ''}",
            flush=True,
        )


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--steps", type=int, default=96, help="a multiple of 16")
    parser.add_argument("--conv-scan-steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if options.steps % 16:
        parser.error("--steps must be a multiple of 16, so that no mode has steps left over")
    where = environment()
    rows = []
    for name in options.models:
        if name == "linen-cnn" and importlib.util.find_spec("flax") is None:
            print("flax is not installed: linen-cnn is left out", file=sys.stderr)
            continue
        rows += measure(name, options.steps, options.conv_scan_steps, options.repeats)
        if not options.json:
            show(rows[-len(MODES) :])
    result = {"environment": where, "repeats": options.repeats, "rows": rows}
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    return result


if __name__ == "__main__":
    main()
