"""An Equinox module with BatchNorm and Dropout, handed over as the function that makes it.

It takes one example; purefit maps it over the batch, gives each example a key of its own, and
carries the `eqx.nn.State` along. Needs `pip install 'purefit[equinox]'`.
"""

import argparse

import equinox as eqx
import jax

import purefit as pf


class Net(eqx.Module):
    """Two layers."""

    into: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.into = eqx.nn.Linear(784, 128, key=first)
        self.norm = eqx.nn.BatchNorm(128, axis_name="batch", mode="batch", momentum=0.9)
        self.dropout = eqx.nn.Dropout(0.2)
        self.out = eqx.nn.Linear(128, 10, key=second)

    def __call__(self, image, *, key, state):
        """Give the logits for one image."""
        values, state = self.norm(self.into(image.reshape(-1)), state)
        return self.out(self.dropout(jax.nn.relu(values), key=key)), state


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    run = pf.fit(eqx.nn.make_with_state(Net), train, valid=digits.test, epochs=options.epochs)
    print(f"test accuracy {run.history['test_accuracy'][-1]:.4f}")
    print("trained:", ", ".join(run.params))
    return run


if __name__ == "__main__":
    main()
