"""From what --model says to a model."""

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from purefit.core.settings import check_widths
from purefit.errors import ModelError, SettingsError
from purefit.io.datasets import reason

__all__ = ["model_named"]


def model_named(
    name: str, hidden: tuple[int, ...] | None = None, channels: tuple[int, ...] | None = None
) -> Any:
    """Give the model that a name stands for.

    Args:
        name: `mlp`, `cnn`, or `FILE.py:NAME` for something in a Python file: a model, or a function
            without arguments that gives one.
        hidden: Widths of the hidden layers; None for the default.
        channels: Channels of the cnn; None for the default.

    Raises:
        SettingsError: The name is unknown, or a width has no effect or is not positive.
        ModelError: The file cannot be run, or has no such name.
    """
    _check_widths(name, hidden, channels)
    if name == "mlp":
        from purefit.models.mlp import mlp

        return mlp(*(hidden if hidden is not None else (256, 128)))
    if name == "cnn":
        from purefit.models.cnn import cnn

        return cnn(*(channels or ()), hidden=(hidden or (128,))[0])
    path, colon, attribute = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise SettingsError(
            f"Expected model to be mlp, cnn or FILE.py:NAME, got {name!r}; choose one of them."
        )
    return _from_file(Path(path), attribute)


def _check_widths(
    name: str, hidden: tuple[int, ...] | None, channels: tuple[int, ...] | None
) -> None:
    for setting, widths in (("hidden", hidden), ("channels", channels)):
        check_widths(setting, widths or ())
    if channels == ():
        raise SettingsError("Expected channels to be one or more widths, got none; give them.")
    if channels is not None and name != "cnn":
        raise SettingsError(
            f"Expected channels only with model cnn, got it with {name!r}; leave it out."
        )
    if hidden is not None and name not in ("mlp", "cnn"):
        raise SettingsError(
            f"Expected hidden only with model mlp or cnn, got it with {name!r}; leave it out."
        )
    if name == "cnn" and hidden is not None and len(hidden) != 1:
        raise SettingsError(
            f"Expected one hidden width for model cnn, got {list(hidden)}; give one number."
        )


def _from_file(path: Path, attribute: str) -> Any:
    if not path.is_file():
        raise ModelError(
            f"Expected a Python file, got {path}, which does not exist; check --model."
        )
    spec = importlib.util.spec_from_file_location(f"purefit_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"Expected {path} to run, got {type(error).__name__} ({reason(error)}); mend the file."
        ) from error
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        raise ModelError(
            f"Expected a model named {attribute!r} in {path}, got only "
            f"{', '.join(names) or 'an empty file'}; check --model."
        )
    value = getattr(module, attribute)
    if not callable(value) or not _without_arguments(value):
        return value
    try:
        return value()
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"Expected {attribute}() in {path} to give a model, got {type(error).__name__} "
            f"({reason(error)}); mend the function."
        ) from error


def _without_arguments(function: Any) -> bool:
    """Whether a function can be called with nothing, and is meant to: a model's own call is not."""
    if not (inspect.isfunction(function) or inspect.isclass(function)):
        return False
    needed = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is inspect.Parameter.empty
        and p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    return not needed
