"""Stop a run with Ctrl-C, go on later, and end in the same state, bit for bit.

A thread presses Ctrl-C here, as soon as the first epoch is on disk. The run saves itself and
raises `pf.Interrupted`; `resume=True` goes on from there.
"""

import argparse
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import purefit as pf


def press_ctrl_c(folder: Path) -> None:
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n")):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


def main(argv: list[str] | None = None) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    model, settings = pf.mlp(256, 128), {"epochs": options.epochs, "dropout": 0.1}

    straight = pf.state_hash(pf.fit(model, train, **settings).state)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        threading.Thread(target=press_ctrl_c, args=(folder,), daemon=True).start()
        try:
            pf.fit(model, train, out=folder, **settings)
            raise SystemExit("The run was over before Ctrl-C came; give it more epochs.")
        except pf.Interrupted as stopped:
            print(stopped)
            step = stopped.step
        resumed = pf.state_hash(pf.fit(model, train, out=folder, resume=True, **settings).state)
    print("in one go:", straight[:16], "  stopped and resumed:", resumed[:16])
    print("the same" if straight == resumed else "NOT the same")
    return step, straight, resumed


if __name__ == "__main__":
    main()
