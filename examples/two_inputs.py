"""Two inputs in a dict: from the pictures of two digits, say what they add up to.

Inputs may be any nesting of arrays; every leaf is gathered and scaled alike, and `apply` gets the
same nesting back. One small network reads both pictures.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import purefit as pf


def init(key, inputs):
    read, add, out = jax.random.split(key, 3)
    pixels = inputs["left"][0].size
    return {
        "read": jax.random.normal(read, (pixels, 128)) * (2 / pixels) ** 0.5,
        "add": jax.random.normal(add, (256, 128)) * (2 / 256) ** 0.5,
        "out": jax.random.normal(out, (128, 19)) * (2 / 128) ** 0.5,
    }


def apply(params, inputs):
    images = [inputs[side].reshape(len(inputs[side]), -1) for side in ("left", "right")]
    codes = jnp.concatenate([jax.nn.relu(one @ params["read"]) for one in images], axis=-1)
    return jax.nn.relu(codes @ params["add"]) @ params["out"]


def pairs(data, limit, seed):
    """Put each digit beside another one."""
    order = np.random.default_rng(seed).permutation(len(data.y))
    inputs = {"left": data.x[:limit], "right": data.x[order][:limit]}
    return inputs, (data.y + data.y[order])[:limit]


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train, test = pairs(digits.train, options.limit, 0), pairs(digits.test, None, 1)
    run = pf.fit((init, apply), train, valid=test, epochs=options.epochs)
    print(
        f"test accuracy {run.history['test_accuracy'][-1]:.4f} (1 in 19 by chance or little more)"
    )
    return run


if __name__ == "__main__":
    main()
