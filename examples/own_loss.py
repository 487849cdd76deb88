"""A loss, a metric and an optimizer of your own.

Loss and metric give one value per example; purefit averages them, exactly also over a short last
batch. The optimizer is any Optax transformation, or a function of the hyperparameters and the
number of steps that makes one, so that the learning rate stays traced.
"""

import argparse

import jax
import jax.numpy as jnp
import optax

import purefit as pf


def smoothed(logits, labels):
    targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)
    return optax.softmax_cross_entropy(logits, targets)


def top_three(logits, labels):
    _, best = jax.lax.top_k(logits, 3)
    return (best == labels[:, None]).any(axis=-1).astype(jnp.float32)


def optimizer(hyper, total_steps):
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_lion(),
        optax.scale_by_schedule(optax.cosine_decay_schedule(1.0, total_steps)),
        optax.scale_by_learning_rate(hyper.learning_rate),
    )


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    own = {"loss": smoothed, "metrics": ("accuracy", top_three), "optimizer": optimizer}
    model = pf.mlp(256, 128, outputs=10)
    run = pf.fit(model, train, valid=digits.test, epochs=options.epochs, learning_rate=3e-4, **own)
    for name in ("test_accuracy", "test_top_three"):
        print(name, f"{run.history[name][-1]:.4f}")
    return run


if __name__ == "__main__":
    main()
