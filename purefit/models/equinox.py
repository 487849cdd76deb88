"""The door for Equinox modules."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from purefit.core.types import Key, PyTree, Variables
from purefit.errors import ModelError
from purefit.models.shared import identity_of, missing, named_leaves, parameters_of

try:
    import equinox as eqx
except ModuleNotFoundError as error:
    raise missing("equinox", "equinox") from error

__all__ = ["EquinoxModel", "from_equinox"]

_MODULE = "module."


def from_equinox(module: Any) -> "EquinoxModel":
    """Make a model of an Equinox module, which takes one example and not a batch.

    It is mapped over the batch with `vmap`; each example has a dropout key of its own. Arrays of
    floating point are trained; other arrays, and all that is in an `eqx.nn.State`, are state.
    Evaluation is `eqx.nn.inference_mode`; in training the module is as it was made.

    Args:
        module: An `eqx.Module`, or a pair of one and its `eqx.nn.State`, whose weights are where
            every run starts, whatever its seed; or a function that makes either of a key, such
            as `lambda key: eqx.nn.make_with_state(Net)(key=key)`, so that the run's seed draws
            the weights. `__call__` takes one example (any pytree) as one argument, and is handed
            `key` and `state` by keyword where it names them; with `state` it returns a pair of
            the output and the new state.

    Raises:
        ModelError: This is no module and makes none, or a stateful one without its state.
    """
    if isinstance(module, eqx.Module) or _is_pair(module):
        leaves, structure = jax.tree.flatten(_as_pair(module))
        identity: Hashable = object()

        def make(key: Key) -> Any:
            return jax.tree.unflatten(structure, leaves)

    elif callable(module):
        identity, make = identity_of(module), module
    else:
        raise ModelError(
            "Expected an eqx.Module, a pair of one and its eqx.nn.State, or a function that makes "
            f"either of a key, got {type(module).__name__}; write from_equinox(lambda key: ...)."
        )
    shapes = eqx.filter_eval_shape(lambda key: _as_pair(make(key)), jax.random.key(0))
    return EquinoxModel(identity, type(shapes[0]).__name__, make, _look(*shapes))


class _Parts(NamedTuple):
    shapes: Any
    takes_key: bool
    takes_state: bool
    axis: Hashable


@final
@dataclass(frozen=True)
class EquinoxModel:
    """An Equinox module as a model: see `from_equinox`."""

    identity: Hashable = field(repr=False)
    name: str
    make: Callable[[Key], Any] = field(compare=False, repr=False)
    parts: _Parts = field(compare=False, repr=False)
    reads: tuple[str, ...] = ()

    def init(self, key: Key, inputs: PyTree) -> Variables:
        """Draw the variables, or copy those of the module that was given."""
        leaves = _leaves(*_as_pair(self.make(key)))
        arrays = {name: jnp.array(leaf) for name, leaf in leaves.items() if _is_array(leaf)}
        trained = {name for name, leaf in arrays.items() if _is_trained(name, leaf)}
        params = {name.removeprefix(_MODULE): arrays[name] for name in arrays if name in trained}
        return Variables(params, {name: arrays[name] for name in arrays if name not in trained})

    def apply(
        self, variables: Variables, inputs: PyTree, *, key: Key, train: bool, **traced: Any
    ) -> tuple[PyTree, PyTree]:
        """Give the outputs for a batch, and in training the new state."""
        module, state = self.module(variables)
        if not train:
            module = eqx.nn.inference_mode(module)
        size = jax.tree.leaves(inputs)[0].shape[0]
        keys = jax.random.split(key, size) if self.parts.takes_key else None

        def one(example: PyTree, key: Key | None, state: Any) -> tuple[PyTree, Any]:
            handed = {"key": key} if self.parts.takes_key else {}
            if not self.parts.takes_state:
                return module(example, **handed), state
            returned = module(example, state=state, **handed)
            return _checked(returned)

        mapped = jax.vmap(one, in_axes=(0, 0, None), out_axes=(0, None), axis_name=self.parts.axis)
        outputs, after = mapped(inputs, keys, state)
        if not train:
            return outputs, variables.state
        return outputs, {**variables.state, **_leaves(None, after)}

    def module(self, variables: Variables) -> tuple[Any, Any]:
        """Put variables into a new module of the user's own class, and its State (or None)."""
        params = {_MODULE + name: leaf for name, leaf in variables.params.items()}
        values = {**params, **variables.state}
        leaves = [values.get(name, leaf) for name, leaf in _leaves(*self.parts.shapes).items()]
        return jax.tree.unflatten(jax.tree.structure(self.parts.shapes), leaves)


def _look(module: Any, state: Any) -> _Parts:
    name = type(module).__name__
    if not callable(module):
        raise ModelError(
            f"Expected an Equinox module with __call__, got {name} without one; "
            "define __call__(self, example)."
        )
    takes = parameters_of(type(module).__call__)
    stateful = any(
        isinstance(leaf, eqx.nn.StateIndex) for leaf in _nodes(module, eqx.nn.StateIndex)
    )
    if stateful and state is None:
        raise ModelError(
            f"Expected a stateful module together with its State, got {name} alone; "
            f"make both with eqx.nn.make_with_state({name})(...)."
        )
    if stateful and "state" not in takes:
        raise ModelError(
            f"Expected __call__ of the stateful {name} to have an argument named state, got "
            f"({', '.join(takes)}); name it state and return (output, state)."
        )
    takes_state = state is not None and "state" in takes
    return _Parts((module, state), "key" in takes, takes_state, _axis(module))


def _axis(module: Any) -> Hashable:
    """Find the name that the BatchNorm layers give the batch's axis."""
    names: set[Hashable] = set()
    for layer in _nodes(module, eqx.nn.BatchNorm):
        axis = layer.axis_name
        names.update(axis if isinstance(axis, tuple | list) else (axis,))
    if len(names) > 1:
        raise ModelError(
            "Expected one axis_name in all BatchNorm layers, got "
            f"{', '.join(sorted(map(str, names)))}; give them the same."
        )
    return names.pop() if names else "batch"


def _nodes(tree: PyTree, kind: Any) -> list[Any]:
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return [leaf for leaf in leaves if isinstance(leaf, kind)]


def _is_pair(made: Any) -> bool:
    kinds = (eqx.Module, eqx.nn.State)
    return isinstance(made, tuple) and len(made) == 2 and all(map(isinstance, made, kinds))


def _as_pair(made: Any) -> tuple[Any, Any]:
    if isinstance(made, eqx.Module):
        return made, None
    if isinstance(made, tuple) and len(made) == 2 and (_is_pair(made) or made[1] is None):
        return made[0], made[1]
    raise ModelError(
        "Expected a function that makes an eqx.Module, or a pair of one and its eqx.nn.State, got "
        f"one that makes {type(made).__name__}; return the module."
    )


def _leaves(module: Any, state: Any) -> dict[str, Any]:
    return named_leaves({"module": module, "state": state})


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def _is_trained(name: str, leaf: Array) -> bool:
    return name.startswith(_MODULE) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _checked(returned: Any) -> tuple[PyTree, Any]:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], eqx.nn.State):
        return returned[0], returned[1]
    raise ModelError(
        "Expected __call__ of a stateful module to return (output, state), got "
        f"{type(returned).__name__}; return both."
    )
