"""A network of your own as two plain functions: `init` makes the weights, `apply` uses them.

`apply` is handed what it names besides: here `key` (a fresh one each step), `train` and the
hyperparameter `dropout`.
"""

import argparse

import jax
import jax.numpy as jnp

import purefit as pf

HIDDEN = 128


def init(key):
    first, second = jax.random.split(key)
    return {
        "into": jax.random.normal(first, (784, HIDDEN)) * 0.05,
        "out": jax.random.normal(second, (HIDDEN, 10)) * 0.1,
        "bias": jnp.zeros(10),
    }


def apply(params, images, *, key, train, dropout):
    hidden = jax.nn.relu(images.reshape(-1, 784) @ params["into"])
    if train:
        kept = jax.random.bernoulli(key, 1 - dropout, hidden.shape)
        hidden = jnp.where(kept, hidden / (1 - dropout), 0)
    return hidden @ params["out"] + params["bias"][None, :]


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    run = pf.fit((init, apply), train, valid=digits.test, epochs=options.epochs, dropout=0.1)
    shapes = jax.tree.map(jnp.shape, run.params)
    print(f"test accuracy {run.history['test_accuracy'][-1]:.4f} with weights {shapes}")
    return run


if __name__ == "__main__":
    main()
