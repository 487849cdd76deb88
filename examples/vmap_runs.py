"""A whole run as one pure function: compiled once, mapped over seeds and learning rates.

Two seeds and four learning rates train at the same time in one program. A lane of it and the same
run alone differ by rounding only.
"""

import argparse

import jax
import jax.numpy as jnp

import purefit as pf


def main(argv: list[str] | None = None) -> tuple[pf.Hyper, dict, dict]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, default=6000, help="use so many examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    model = pf.mlp(32, outputs=10)
    run = pf.make_run(model, pf.Plan(epochs=options.epochs, optimizer="sgd", batch_size=64))

    rates = jnp.array([0.003, 0.03, 0.3, 3.0])
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    hyper = pf.Hyper(learning_rate=jnp.tile(rates, 2))
    lanes = jax.jit(jax.vmap(run, in_axes=(0, 0, None, None)))
    _, history = lanes(jnp.repeat(keys, 4), hyper, train, digits.test)

    _, alone = jax.jit(run)(keys[0], pf.Hyper(learning_rate=rates[1]), train, digits.test)
    apart = jnp.abs(history["test_loss"][1] - alone["test_loss"]).max()

    print("learning rate  " + "  ".join(f"{rate:>6.3f}" for rate in rates))
    for seed, row in enumerate(history["test_accuracy"][:, -1].reshape(2, 4)):
        print(f"seed {seed}         " + "  ".join(f"{value:.4f}" for value in row))
    print(f"lane 1 and the same run alone: test losses at most {apart:.1e} apart")
    return hyper, history, alone


if __name__ == "__main__":
    main()
