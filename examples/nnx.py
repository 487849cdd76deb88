"""A Flax NNX module with BatchNorm and Dropout, handed over as its class.

That way the run's seed draws the weights; a module that is already made would start every run
from its own. Needs `pip install 'purefit[flax]'`.
"""

import argparse

from flax import nnx

import purefit as pf


class Net(nnx.Module):
    """Two layers."""

    def __init__(self, rngs: nnx.Rngs):
        self.into = nnx.Linear(784, 128, rngs=rngs)
        self.norm = nnx.BatchNorm(128, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images):
        """Give the logits for a batch of images."""
        values = self.norm(self.into(images.reshape(images.shape[0], -1)))
        return self.out(self.dropout(nnx.relu(values)))


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    run = pf.fit(Net, train, valid=digits.test, epochs=options.epochs)
    print(f"test accuracy {run.history['test_accuracy'][-1]:.4f}")
    print("trained:", ", ".join(run.params), "  carried along:", ", ".join(run.state.model_state))
    return run


if __name__ == "__main__":
    main()
