"""All of MNIST against a loop in plain NumPy: gradients by hand, no purefit, nothing compiled.

Only the seed's contract is shared: which key draws the weights and the order of an epoch.
"""

import jax
import numpy as np
import pytest

import purefit as pf

EPOCHS, SIZE, SEED = 2, 128, 0
# With a larger rate, a hidden unit that one side rounds to just above zero and the other to just
# below makes float32 and float64 themselves differ by 1e-4 within two epochs, in this loop alone.
RATE = 1e-3


def drawn(seed):
    """Draw the weights and the orders that a seed stands for."""
    key = jax.random.key(seed)
    init = jax.random.fold_in(jax.random.fold_in(key, 0), 0)
    layers = []
    widths = (784, 256, 128, 10)
    for one, rows, columns in zip(jax.random.split(init, 3), widths, widths[1:], strict=False):
        normal = np.array(jax.random.normal(one, (rows, columns), "float32"))
        layers.append([normal * np.float32(np.sqrt(2 / rows)), np.zeros(columns, np.float32)])
    orders = []
    for epoch in range(EPOCHS):
        one = jax.random.fold_in(jax.random.fold_in(key, 1), epoch)
        high, low = np.asarray(jax.random.bits(one, (2, 60000), "uint32"))
        orders.append(np.lexsort((low, high)))
    return layers, orders


def forward(layers, x):
    activations = [x]
    for number, (weights, biases) in enumerate(layers):
        z = activations[-1] @ weights + biases
        activations.append(np.maximum(z, 0) if number < len(layers) - 1 else z)
    return activations


def loss_and_hits(logits, y):
    shifted = logits - logits.max(axis=1, keepdims=True)
    logsum = np.log(np.exp(shifted).sum(axis=1))
    losses = logsum - shifted[np.arange(len(y)), y]
    return losses, (logits.argmax(axis=1) == y), np.exp(shifted - logsum[:, None])


def gradients(layers, x, y):
    activations = forward(layers, x)
    losses, hits, softmax = loss_and_hits(activations[-1], y)
    delta = softmax
    delta[np.arange(len(y)), y] -= 1
    delta /= np.float32(len(y))
    found = []
    for number in reversed(range(len(layers))):
        found.append([activations[number].T @ delta, delta.sum(axis=0)])
        if number:
            delta = (delta @ layers[number][0].T) * (activations[number] > 0)
    return found[::-1], losses, hits


def sgd(rate):
    def update(layers, grads, step):
        for layer, grad in zip(layers, grads, strict=True):
            for i in range(2):
                layer[i] = layer[i] - np.float32(rate) * grad[i]

    return update


def adam(rate, b1=0.9, b2=0.999, eps=1e-8):
    moments = {}

    def update(layers, grads, step):
        for number, (layer, grad) in enumerate(zip(layers, grads, strict=True)):
            for i in range(2):
                m, v = moments.get((number, i), (0.0, 0.0))
                m = b1 * m + (1 - b1) * grad[i].astype(np.float64)
                v = b2 * v + (1 - b2) * grad[i].astype(np.float64) ** 2
                moments[number, i] = m, v
                direction = (m / (1 - b1 ** (step + 1))) / (
                    np.sqrt(v / (1 - b2 ** (step + 1))) + eps
                )
                layer[i] = (layer[i] - rate * direction).astype(np.float32)

    return update


def reference(train, test, update, steps=None):
    """Train with the plainest loop there is."""
    x, y = train.x.reshape(-1, 784), train.y
    layers, orders = drawn(SEED)
    losses, rows, done = [], [], 0
    for order in orders:
        seen = []
        for first in range(0, 60000, SIZE):
            batch = order[first : first + SIZE]
            images = x[batch].astype(np.float32) / np.float32(255)
            grads, each, hits = gradients(layers, images, y[batch])
            update(layers, grads, done)
            losses.append(each.mean())
            seen.append((each.sum(), hits.sum()))
            done += 1
            if done == steps:
                return layers, losses, rows
        images = test.x.reshape(-1, 784).astype(np.float32) / np.float32(255)
        each, hits, _ = loss_and_hits(forward(layers, images)[-1], test.y)
        totals = np.sum(seen, axis=0) / 60000
        rows.append((*totals, each.mean(), hits.mean()))
    return layers, losses, rows


@pytest.fixture(scope="module", name="digits")
def _digits():
    return pf.datasets.mnist()


def test_with_sgd_every_loss_parameter_and_metric_agrees_over_two_epochs(digits):
    layers, losses, rows = reference(digits.train, digits.test, sgd(RATE))
    plan = {"optimizer": "sgd", "epochs": EPOCHS, "batch_size": SIZE}
    run = pf.make_run(pf.mlp(256, 128, outputs=10), pf.Plan(**plan))
    hyper = pf.Hyper(learning_rate=RATE)
    _, history = jax.jit(run)(
        jax.random.key(SEED), hyper, jax.tree.map(jax.numpy.asarray, digits.train)
    )
    assert len(losses) == history["step_loss"].size == EPOCHS * 469
    np.testing.assert_allclose(history["step_loss"].reshape(-1), losses, rtol=1e-5, atol=1e-5)

    fitted = pf.fit(
        pf.mlp(256, 128),
        digits.train,
        digits.test,
        seed=SEED,
        learning_rate=RATE,
        progress="none",
        **plan,
    )
    for mine, (weights, biases) in zip(fitted.params, layers, strict=True):
        np.testing.assert_allclose(mine["w"], weights, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mine["b"], biases, rtol=1e-5, atol=1e-5)
    names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
    found = np.stack([fitted.history[name] for name in names], axis=1)
    np.testing.assert_allclose(found, rows, rtol=1e-5, atol=1e-5)


def test_with_adam_the_first_twenty_losses_agree(digits):
    _, losses, _ = reference(digits.train, digits.test, adam(1e-3), steps=20)
    run = pf.make_run(pf.mlp(256, 128, outputs=10), pf.Plan(epochs=1, batch_size=SIZE))
    train = jax.tree.map(jax.numpy.asarray, digits.train)
    _, history = jax.jit(run)(jax.random.key(SEED), pf.Hyper(), train)
    np.testing.assert_allclose(history["step_loss"][0, :20], losses, rtol=0, atol=1e-6)
