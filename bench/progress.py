"""What progress costs: the same run in silence, with plain lines, and with a moving bar.

Lines take 0.99 and the bar 0.98 times the silent run: nothing that can be measured. Medians of 5
rounds of 10 epochs of MNIST, mlp 256-128, batch 128, 2 CPU cores, jax 0.10.2.

All three write to the same pseudo-terminal, which a thread empties, so that the bar is really
drawn. The kinds take turns, after one run of each that is not counted and compiles the programs.
Two times are taken of each run: `run`, its training steps (`Run.timings.run`), and `wall`, all of
the call to `pf.fit` without compiling, in which the bar's own drawing shows as well.
"""

import argparse
import contextlib
import json
import os
import platform
import pty
import statistics
import sys
import threading
import time
from collections.abc import Iterator

import jax

import purefit as pf

KINDS = ("none", "plain", "rich")


@contextlib.contextmanager
def terminal(written: dict[str, int], kind: str) -> Iterator[None]:
    """Put a pseudo-terminal of 100 columns in place of standard error, and count its bytes."""
    ours, theirs = pty.openpty()

    def drain() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                written[kind] += len(part)

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    with os.fdopen(theirs, "w") as stream, contextlib.redirect_stderr(stream):
        yield
    reader.join(timeout=5)
    os.close(ours)


def once(kind: str, epochs: int, train: pf.Data, written: dict[str, int]) -> tuple[float, float]:
    """Train with one kind of progress; give the seconds of the steps, and of the call."""
    with terminal(written, kind):
        begin = time.perf_counter()
        run = pf.fit(pf.mlp(256, 128), train, epochs=epochs, progress=kind)
        wall = time.perf_counter() - begin
    return run.timings.run, wall - run.timings.compile


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


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=int, help="use so many examples only (a trial)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    where = environment()
    x, y = pf.datasets.mnist().train
    train = pf.Data(x[: options.limit], y[: options.limit])
    for kind in KINDS:
        once(kind, options.epochs, train, dict.fromkeys(KINDS, 0))
    written = dict.fromkeys(KINDS, 0)
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for turn in range(options.rounds):
        for kind in KINDS[turn % 3 :] + KINDS[: turn % 3]:
            times[kind].append(once(kind, options.epochs, train, written))
    result: dict = {
        "environment": where,
        "examples": len(train.y),
        "epochs": options.epochs,
        "rounds": options.rounds,
        "kinds": {},
    }
    for kind in KINDS:
        row: dict = {"bytes_a_run": written[kind] // options.rounds}
        for place, clock in enumerate(("run", "wall")):
            own = [pair[place] for pair in times[kind]]
            silent = [pair[place] for pair in times["none"]]
            ratios = [a / b for a, b in zip(own, silent, strict=True)]
            row[clock] = {
                "median_seconds": statistics.median(own),
                "median_ratio_to_none": statistics.median(ratios),
                "seconds": own,
            }
        result["kinds"][kind] = row
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
        return result
    print(f"{len(train.y)} examples, {options.epochs} epochs, {options.rounds} rounds")
    for kind, row in result["kinds"].items():
        print(
            f"{kind:>6}  run {row['run']['median_seconds']:7.3f} s "
            f"({row['run']['median_ratio_to_none']:.3f})  "
            f"wall {row['wall']['median_seconds']:7.3f} s "
            f"({row['wall']['median_ratio_to_none']:.3f})  {row['bytes_a_run']} bytes"
        )
    return result


if __name__ == "__main__":
    main()
