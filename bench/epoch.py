"""One steady epoch of MNIST by purefit against a loop of jitted steps over the same data.

The mlp takes 0.272 s against 0.352 (host) and 0.399 (device), the cnn 12.6 s against 20.5 and 20.8.
Medians of 5 (mlp) and 3 (cnn) interleaved rounds, 60,000 examples, batch 128, 2 CPU cores,
jax 0.10.2.

The other side is written in plain JAX and Optax, without purefit, in the same process: a jitted
step with donated parameters, called once a batch from Python. It comes in two variants:

- host: rows are gathered with NumPy from the uint8 array on the host, as most people write it;
- device: the epoch's shuffled copy is made on the device, and the step cuts its batch out of it.

Every side computes loss and accuracy of each batch, fetches them at the end of the epoch, visits
every example once in a new order, and is compiled before the clock starts. In each round each side
runs one epoch; who begins takes turns.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

BATCH = 128
RATE = 1e-3


def he_normal(key, shape):
    weights = jax.random.normal(key, shape) * (2 / np.prod(shape[:-1])) ** 0.5
    return {"w": weights, "b": jnp.zeros(shape[-1])}


def init_mlp(key):
    shapes = [(784, 256), (256, 128), (128, 10)]
    return [he_normal(k, s) for k, s in zip(jax.random.split(key, 3), shapes, strict=True)]


def apply_mlp(params, images):
    values = images.reshape(images.shape[0], -1)
    for layer in params[:-1]:
        values = jax.nn.relu(values @ layer["w"] + layer["b"])
    return values @ params[-1]["w"] + params[-1]["b"]


def init_cnn(key):
    shapes = [(3, 3, 1, 32), (3, 3, 32, 64), (7 * 7 * 64, 128), (128, 10)]
    return [he_normal(k, s) for k, s in zip(jax.random.split(key, 4), shapes, strict=True)]


def apply_cnn(params, images):
    values = images[..., None]
    for layer in params[:2]:
        form = ("NHWC", "HWIO", "NHWC")
        values = lax.conv_general_dilated(
            values, layer["w"], (1, 1), "SAME", dimension_numbers=form
        )
        values = jax.nn.relu(values + layer["b"])
        n, height, width, channels = values.shape
        values = values.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
    values = values.reshape(values.shape[0], -1)
    values = jax.nn.relu(values @ params[2]["w"] + params[2]["b"])
    return values @ params[3]["w"] + params[3]["b"]


REFERENCES = {"mlp": (init_mlp, apply_mlp), "cnn": (init_cnn, apply_cnn)}


def update(apply, optimizer, params, opt_state, images, labels):
    def objective(params):
        logits = apply(params, images.astype(jnp.float32) / 255)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), (logits.argmax(-1) == labels).mean()

    (loss, accuracy), grads = jax.value_and_grad(objective, has_aux=True)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss, accuracy


def host_loop(model: str, x, y) -> Iterator[float]:
    """Train an epoch each time the next value, the epoch's mean loss, is asked for."""
    init, apply = REFERENCES[model]
    optimizer = optax.adam(RATE)
    params = jax.jit(init)(jax.random.key(0))
    opt_state = jax.jit(optimizer.init)(params)
    step = jax.jit(partial(update, apply, optimizer), donate_argnums=(0, 1))
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(len(y))
        infos = []
        for first in range(0, len(y), BATCH):
            rows = order[first : first + BATCH]
            params, opt_state, *info = step(params, opt_state, x[rows], y[rows])
            infos.append(info)
        losses, _ = zip(*jax.device_get(infos), strict=True)
        yield float(np.mean(losses))


def device_loop(model: str, x, y) -> Iterator[float]:
    """Do the same on a copy that lies shuffled on the device."""
    init, apply = REFERENCES[model]
    optimizer = optax.adam(RATE)
    params = jax.jit(init)(jax.random.key(0))
    opt_state = jax.jit(optimizer.init)(params)
    x, y = jnp.asarray(x), jnp.asarray(y)

    @jax.jit
    def shuffled(key):
        order = jax.random.permutation(key, len(y))
        return x[order], y[order]

    @partial(jax.jit, donate_argnums=(0, 1), static_argnums=5)
    def step(params, opt_state, x, y, first, size):
        images, labels = (lax.dynamic_slice_in_dim(leaf, first, size) for leaf in (x, y))
        return update(apply, optimizer, params, opt_state, images, labels)

    key = jax.random.key(1)
    while True:
        key, drawn = jax.random.split(key)
        images, labels = shuffled(drawn)
        infos = []
        for first in range(0, len(y), BATCH):
            size = min(BATCH, len(y) - first)
            params, opt_state, *info = step(
                params, opt_state, images, labels, np.int32(first), size
            )
            infos.append(info)
        losses, _ = zip(*jax.device_get(infos), strict=True)
        yield float(np.mean(losses))


def purefit_epochs(model: str, x, y, epochs: int) -> Iterator[float]:
    """Do the same with the programs that `pf.fit` uses, called as it calls them."""
    import purefit as pf
    from purefit.loop.job import make_job
    from purefit.loop.programs import form_of, programs_for
    from purefit.loop.record import Tally

    network = pf.mlp(256, 128) if model == "mlp" else pf.cnn(32, 64)
    settings = {"learning_rate": RATE, "batch_size": BATCH, "epochs": epochs}
    job = make_job(network, (x, y), None, 0, settings)
    programs = programs_for(job.model, job.plan, job.hyper, form_of(job.train), None)
    programs.prepare(0, resumed=False)
    state = programs.start(job.traced, jax.random.key(job.seed))
    for epoch in range(epochs):
        order = programs.order(state.key, epoch)
        state, infos = programs.advance(
            state, job.traced, job.train, order, epoch, 0, programs.batches.steps
        )
        tally = Tally()
        for info, rows in jax.device_get(infos):
            tally.add(info, rows)
        yield tally.means("")["loss"]


def measure(sides: dict[str, Iterator[float]], pairs: int) -> tuple[dict, dict]:
    """Run one epoch of each side to warm up, then `pairs` rounds of one timed epoch each."""
    seconds = {name: [] for name in sides}
    losses = {name: [next(side)] for name, side in sides.items()}
    names = list(sides)
    for turn in range(pairs):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            begin = time.perf_counter()
            loss = next(sides[name])
            seconds[name].append(time.perf_counter() - begin)
            losses[name].append(loss)
    return seconds, losses


def check_learning(losses: dict[str, list[float]]) -> None:
    """Refuse figures of sides that do not do the same work: all must learn, and about as well."""
    for name, column in losses.items():
        if not column[-1] < 0.7 * column[0]:
            raise SystemExit(f"{name} has not learned: losses {column}")
    last = [column[-1] for column in losses.values()]
    if max(last) > 1.5 * min(last) + 0.01:
        raise SystemExit(f"The sides end too far apart: {losses}")


def environment() -> dict[str, object]:
    """Say what was measured on."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "optax": optax.__version__,
        "backend": jax.default_backend(),
        "devices": len(jax.devices()),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def report(result: dict, write: Callable[[str], None]) -> None:
    write(
        f"{result['model']}, {result['examples']} examples, batch {BATCH}, "
        f"{result['pairs']} rounds, load before {result['environment']['load_before']}"
    )
    for name, median in result["median_seconds"].items():
        ratio = result["ratio_to_purefit"][name]
        loss = result["losses"][name][-1]
        write(f"{name:>8}  {median:8.3f} s an epoch  {ratio:5.2f}  last loss {loss:.4f}")


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--pairs", type=int, default=5, help="timed epochs of each side")
    parser.add_argument("--limit", type=int, help="use so many examples only (a trial)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    where = environment()

    from purefit import datasets

    x, y = datasets.mnist().train
    x, y = x[: options.limit], y[: options.limit]
    sides = {
        "purefit": purefit_epochs(options.model, x, y, 1 + options.pairs),
        "host": host_loop(options.model, x, y),
        "device": device_loop(options.model, x, y),
    }
    seconds, losses = measure(sides, options.pairs)
    check_learning(losses)
    ours = seconds["purefit"]
    result = {
        "model": options.model,
        "examples": len(y),
        "pairs": options.pairs,
        "environment": where,
        "median_seconds": {name: statistics.median(column) for name, column in seconds.items()},
        "ratio_to_purefit": {
            name: statistics.median(a / b for a, b in zip(column, ours, strict=True))
            for name, column in seconds.items()
        },
        "seconds": seconds,
        "losses": losses,
    }
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        print()
    else:
        report(result, print)
    return result


if __name__ == "__main__":
    main()
