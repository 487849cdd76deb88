"""The door for Flax NNX modules."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array

from purefit.core.types import Key, PyTree, Variables
from purefit.errors import ModelError
from purefit.models.shared import (
    identity_of,
    kept_dtype,
    missing,
    mode_arguments,
    named_leaves,
    parameters_of,
)

try:
    from flax import nnx
except ModuleNotFoundError as error:
    raise missing("flax", "flax") from error

__all__ = ["NnxModel", "from_nnx"]


def from_nnx(module: Any) -> "NnxModel":
    """Make a model of a Flax NNX module.

    Each `nnx.Param` is trained; every other variable is state, but for the random streams: those
    get new keys at each call, so that no mask comes twice. In training the module is in the mode
    of its `train()`, else in that of its `eval()`; a `__call__` with an argument such as `train`
    or `deterministic` is told the mode as well.

    Args:
        module: An `nnx.Module`, whose weights are where every run starts, whatever its seed; or
            a function (or class) that makes one of an `nnx.Rngs`, so that the run's seed draws
            the weights. The module takes a batch of inputs (any pytree) as one argument. It is
            copied, never changed.

    Raises:
        ModelError: This is no module and makes none, or one that cannot be traced.
    """
    identity: Hashable
    if isinstance(module, nnx.Module):
        identity, make = object(), _with_weights_of(module)
    elif callable(module):
        identity, make = identity_of(module), _with_rngs(module)
    else:
        raise ModelError(
            f"Expected an nnx.Module or a function that makes one of nnx.Rngs, got "
            f"{type(module).__name__}; write from_nnx(lambda rngs: Net(rngs=rngs))."
        )
    parts, kind = _look(make)
    return NnxModel(identity, kind.__name__, make, parts, parameters_of(kind.__call__))


def _with_weights_of(module: nnx.Module) -> Callable[[nnx.Rngs], Any]:
    split = jax.tree.map(jnp.array, nnx.split(module))
    return lambda rngs: nnx.merge(*split)


def _with_rngs(factory: Callable[..., Any]) -> Callable[[nnx.Rngs], Any]:
    """Call a factory as it wants to be: `rngs` is by custom an argument for keywords only."""
    if "rngs" in parameters_of(factory):
        return lambda rngs: factory(rngs=rngs)
    return factory


class _Parts(NamedTuple):
    definition: Any
    params: Any
    keys: Any
    counts: Any
    rest: Any


@final
@dataclass(frozen=True)
class NnxModel:
    """A Flax NNX module as a model: see `from_nnx`."""

    identity: Hashable = field(repr=False)
    name: str
    make: Callable[..., Any] = field(compare=False, repr=False)
    parts: _Parts = field(compare=False, repr=False)
    takes: tuple[str, ...] = field(compare=False, repr=False)
    reads: tuple[str, ...] = ()

    def init(self, key: Key, inputs: PyTree) -> Variables:
        """Draw the variables, or copy those of the module that was given."""
        parts = _split(self.make(nnx.Rngs(key)))
        return Variables(_values(parts.params), _values(parts.rest))

    def apply(
        self, variables: Variables, inputs: PyTree, *, key: Key, train: bool, **traced: Any
    ) -> tuple[PyTree, PyTree]:
        """Give the outputs for a batch, and in training the other variables' new values."""
        module = self.module(variables, key)
        if train:
            module.train()
        else:
            module.eval()
        outputs = module(inputs, **mode_arguments(self.takes, train))
        if not train:
            return outputs, variables.state
        after = _values(_split(module).rest)
        old = variables.state
        return outputs, {name: kept_dtype(after[name], old[name]) for name in old}

    def module(self, variables: Variables, key: Key) -> Any:
        """Put variables into a new module of the user's own class; its streams start at `key`."""
        definition, params, keys, counts, rest = self.parts
        return nnx.merge(
            definition,
            _filled(params, variables.params),
            _fresh(keys, key),
            jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), counts),
            _filled(rest, variables.state),
        )


def _look(make: Callable[..., Any]) -> tuple[_Parts, type]:
    seen: list[Any] = []

    def look(key: Key) -> _Parts:
        module = make(nnx.Rngs(key))
        seen.append(type(module))
        if not isinstance(module, nnx.Module) or not callable(module):
            raise ModelError(
                "Expected a function that makes an nnx.Module with __call__, got one that makes "
                f"{type(module).__name__}; return the module."
            )
        parts = _split(module)
        _refuse_bare_arrays(parts.definition)
        return parts

    return jax.eval_shape(look, jax.random.key(0)), seen[0]


def _refuse_bare_arrays(definition: Any) -> None:
    for name, attribute in definition.attributes:
        if isinstance(getattr(attribute, "value", None), jax.core.Tracer):
            raise ModelError(
                f"Expected every array of an nnx.Module in a variable, got a bare one as {name!r}; "
                "wrap it in nnx.Variable, or in nnx.Param to train it."
            )


def _split(module: Any) -> _Parts:
    return _Parts(*nnx.split(module, nnx.Param, nnx.RngKey, nnx.RngCount, ...))


def _values(state: Any) -> dict[str, Array]:
    return {
        name.removesuffix(".value"): jnp.array(leaf) for name, leaf in named_leaves(state).items()
    }


def _filled(shapes: Any, values: dict[str, Array]) -> Any:
    names = [name.removesuffix(".value") for name in named_leaves(shapes)]
    return jax.tree.unflatten(jax.tree.structure(shapes), [values[name] for name in names])


def _fresh(shapes: Any, key: Key) -> Any:
    """Make the streams' keys, each from a number of its own."""
    leaves, structure = jax.tree.flatten(shapes)
    folded = [jax.random.fold_in(key, number) for number in range(len(leaves))]
    keys = [
        jax.random.split(one, leaf.shape) if leaf.shape else one
        for one, leaf in zip(folded, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, keys)
