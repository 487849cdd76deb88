"""Losses of 100 steps on MNIST against PyTorch's, recorded by `reference/record_torch.py`."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purefit as pf
from purefit.core.batches import Batching
from purefit.core.run import segment, step_of, straight
from purefit.core.settings import Hyper, Plan, resolve
from purefit.core.state import TrainState, trace_hyper
from purefit.core.types import Data
from tests.reference.inputs import batch_indices, cnn_weights, mlp_weights

RECORDED = json.loads((Path(__file__).parent / "reference" / "torch_losses.json").read_text())
STEPS, SIZE = RECORDED["steps"], RECORDED["batch_size"]

MLP = pf.mlp(256, 128, outputs=10)
CNN = pf.cnn(outputs=10)


@pytest.fixture(scope="module", name="train")
def _train():
    train = pf.datasets.mnist().train
    return Data(jnp.asarray(train.x), jnp.asarray(train.y))


def losses_of(model, params, train, plan, hyper):
    """Take the recorded steps from the recorded weights; give every loss and the final state."""
    hyper = trace_hyper(resolve(hyper, plan))
    step = step_of(model, plan, hyper, STEPS)
    params = jax.tree.map(jnp.asarray, params)
    opt_state = jax.jit(optimizer_of(plan, hyper).init)(params)
    state = TrainState(jnp.int32(0), jax.random.key(0), params, (), opt_state)
    order = jnp.asarray(batch_indices(STEPS, SIZE).reshape(-1), jnp.int32)
    if model is MLP:
        loop = jax.jit(partial(segment, step, Batching(SIZE, STEPS, 0)))
        state, info = loop(state, train, order, *map(jnp.int32, (0, 0, STEPS)))
        return np.asarray(info["loss"].total) / SIZE, state
    block = jax.jit(partial(straight, step, SIZE, 4))
    losses = []
    for i in range(0, STEPS, 4):
        state, info = block(state, train, order, jnp.int32(i * SIZE), jnp.int32(i))
        losses += (np.asarray(info["loss"].total) / SIZE).tolist()
    return np.array(losses), state


def optimizer_of(plan, hyper):
    from purefit.core.optimizers import make_optimizer

    return make_optimizer(plan, hyper, STEPS)


# The second number is for how many steps rounding alone keeps PyTorch's own float32 and float64
# losses within the tolerance; the recording holds both.
CASES = {
    "mlp_adam": (Plan(), Hyper(learning_rate=1e-3), 2e-6, 100),
    "mlp_sgd": (Plan(optimizer="sgd"), Hyper(learning_rate=0.1), 2e-6, 100),
    "mlp_sgd_momentum": (
        Plan(optimizer="sgd"),
        Hyper(learning_rate=0.05, momentum=0.9),
        2e-6,
        100,
    ),
    "mlp_adam_clipped": (Plan(), Hyper(learning_rate=1e-3, clip_norm=0.5), 5e-6, 100),
    "mlp_adamw": (
        # PyTorch decays the biases too; the small difference grows with the steps.
        Plan(optimizer="adamw"),
        Hyper(learning_rate=1e-3, weight_decay=1e-2),
        2e-6,
        25,
    ),
    "cnn_adam": (Plan(), Hyper(learning_rate=1e-3), 5e-6, 35),
    "cnn_sgd": (Plan(optimizer="sgd"), Hyper(learning_rate=0.1), 5e-6, 15),
}


@pytest.mark.parametrize("name", list(CASES))
def test_losses_are_pytorchs(name, train):
    plan, hyper, tolerance, steps = CASES[name]
    model, params = (MLP, mlp_weights()) if name.startswith("mlp") else (CNN, cnn_weights())
    found, state = losses_of(model, params, train, plan, hyper)
    expected = np.array(RECORDED["losses"][name])
    rounding = np.abs(expected - np.array(RECORDED["losses"][f"{name}_float64"]))
    assert rounding[:steps].max() < max(tolerance, 1e-5)
    np.testing.assert_allclose(found[:steps], expected[:steps], rtol=0, atol=tolerance)
    assert np.abs(found - expected).mean() < 0.02
    if steps == STEPS:
        for path, norm in RECORDED["final_norms"][name].items():
            layer, leaf = path.split(".")
            mine = np.linalg.norm(np.asarray(state.params[int(layer)][leaf], np.float64))
            assert mine == pytest.approx(norm, rel=1e-4)


def test_the_networks_start_near_the_log_of_ten(train):
    for name, losses in RECORDED["losses"].items():
        assert abs(losses[0] - np.log(10)) < 0.5, name
    for model in (MLP, CNN):
        variables = jax.jit(model.init)(jax.random.key(0), train.x[:1].astype(jnp.float32))
        images = train.x[:1000].astype(jnp.float32) / 255
        logits, _ = model.apply(variables, images, key=jax.random.key(0), train=False)
        assert abs(float(pf.cross_entropy(logits, train.y[:1000]).mean()) - np.log(10)) < 0.5
