"""A Flax Linen module with BatchNorm and Dropout, handed over as it is.

purefit tells it when it trains (`train=`), gives Dropout a fresh key each step, and carries
BatchNorm's running means along. Needs `pip install 'purefit[flax]'`.
"""

import argparse

from flax import linen as nn

import purefit as pf


class Net(nn.Module):
    """Two layers."""

    hidden: int = 128

    @nn.compact
    def __call__(self, images, train: bool):
        """Give the logits for a batch of images."""
        values = images.reshape(images.shape[0], -1)
        values = nn.Dense(self.hidden)(values)
        values = nn.BatchNorm(use_running_average=not train, momentum=0.9)(values)
        values = nn.Dropout(0.2, deterministic=not train)(nn.relu(values))
        return nn.Dense(10)(values)


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    run = pf.fit(Net(), train, valid=digits.test, epochs=options.epochs)
    print(f"test accuracy {run.history['test_accuracy'][-1]:.4f}")
    print("trained:", ", ".join(run.params), "  carried along:", ", ".join(run.state.model_state))
    return run


if __name__ == "__main__":
    main()
