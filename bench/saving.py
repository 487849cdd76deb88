"""Saving an MLP 784-256-128-10 with Adam blocks training for 0.9 ms; the thread writes for 31 ms.

Medians of 20 saves on 2 CPU cores (0.8 to 1.3 ms, and 29 to 115 ms). Each save is 2.8 MB in Orbax's
format, every file hashed and forced onto a local disk, the oldest of three steps deleted. Run it
with `python bench/saving.py`.
"""

import statistics
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from purefit.core.state import start
from purefit.io.checkpoints import Saver
from purefit.models.mlp import mlp

SAVES = 20
WARM_UP = 2


def measure(root: Path) -> tuple[list[float], list[float]]:
    model = mlp(256, 128, outputs=10)
    state = start(model, optax.adam(1e-3), jax.random.key(0), jnp.zeros((1, 784)))
    blocking, writing = [], []
    with Saver(root, keep_last=3, keep_best=False) as saver:
        for step in range(WARM_UP + SAVES):
            before = saver.seconds_blocking, saver.seconds_writing
            saver.save(step, jax.tree.map(jnp.copy, state), {"epoch": step})
            blocking.append(1e3 * (saver.seconds_blocking - before[0]))
            saver.wait()
            writing.append(1e3 * (saver.seconds_writing - before[1]))
    return blocking[WARM_UP:], writing[WARM_UP:]


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as root:
        blocking, writing = measure(Path(root))
    for name, values in (("blocking", blocking), ("writing", writing)):
        print(
            f"{name:9} median {statistics.median(values):6.1f} ms, "
            f"range {min(values):.1f} to {max(values):.1f} ms, n = {len(values)}"
        )


if __name__ == "__main__":
    main()
