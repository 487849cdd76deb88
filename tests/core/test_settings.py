"""Settings: filled in, and refused where they would have no effect."""

import jax
import pytest

from purefit.core import state  # noqa: F401  (makes Hyper a pytree)
from purefit.core.settings import OPTIMIZERS, Hyper, Plan, check_hyper, check_plan, resolve
from purefit.errors import SettingsError


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_defaults_are_filled_in_and_given_values_stay(optimizer):
    resolved = resolve(Hyper(learning_rate=0.5), Plan(optimizer=optimizer))
    expected = {**OPTIMIZERS[optimizer], "learning_rate": 0.5}
    given = {name: value for name, value in vars(resolved).items() if value is not None}
    assert given == expected


def test_what_is_not_given_is_no_leaf():
    assert jax.tree.leaves(Hyper()) == []
    assert sorted(jax.tree.leaves(Hyper(learning_rate=0.1, dropout=0.5))) == [0.1, 0.5]


@pytest.mark.parametrize(
    ("hyper", "plan", "name"),
    [
        (Hyper(momentum=0.9), Plan(), "momentum"),
        (Hyper(weight_decay=0.1), Plan(), "weight_decay"),
        (Hyper(b1=0.9), Plan(optimizer="sgd"), "b1"),
        (Hyper(warmup=0.1), Plan(), "warmup"),
        (Hyper(dropout=0.1), Plan(), "dropout"),
    ],
)
def test_a_setting_without_effect_is_refused_by_name(hyper, plan, name):
    with pytest.raises(SettingsError, match=f"got {name}, which .* does not read; leave it out"):
        resolve(hyper, plan)


def test_a_model_that_reads_dropout_may_be_given_it():
    assert resolve(Hyper(dropout=0.1), Plan(), ("dropout",)).dropout == 0.1


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf"), "fast", True])
def test_a_learning_rate_is_a_positive_number(value):
    with pytest.raises(SettingsError, match="Expected learning_rate to be a positive number, got"):
        check_hyper(Hyper(learning_rate=value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 2.5},
        {"unroll": True},
        {"eval_batch_size": -1},
        {"shuffle": 1},
        {"mode": "fast"},
        {"schedule": "cosine"},
        {"optimizer": "rmsprop"},
        {"optimizer": 3},
    ],
)
def test_a_plan_out_of_range_is_refused_by_name(wrong):
    (name,) = wrong
    with pytest.raises(SettingsError, match=f"Expected {name} to be"):
        check_plan(Plan(**wrong))
