"""Settings from a TOML file, as the options of a command."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from purefit.cli.options import Train
from purefit.errors import SettingsError

__all__ = ["options_of", "read_options", "read_toml"]

_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def read_options(path: str) -> Train:
    """Read the options of `purefit train` from a TOML file, such as the `run.toml` of a run.

    The names are those of the flags, with underscores; the table `record` of a `run.toml` is left
    alone.

    Raises:
        SettingsError: The file cannot be read, or says something that is no setting.
    """
    given = read_toml(path)
    if isinstance(given.get("record"), dict):
        del given["record"]
    known = [field.name for field in fields(Train) if field.name not in ("config", "json")]
    for name in given:
        if name not in known:
            raise SettingsError(
                f"Expected only settings of purefit train in {path}, got {name!r}; "
                f"use one of: {', '.join(known)}."
            )
    return options_of(given, path)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        SettingsError: It cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(
            f"Expected a TOML file, got {path}, which does not exist; check the path."
        ) from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"Expected TOML in {path}, got bytes that are no UTF-8 text (at byte {error.start}); "
            "save it as UTF-8."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"Expected a TOML file, got {str(path)!r}, which cannot be read ({error.strerror}); "
            "check the path."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"Expected TOML in {path}, got a syntax error ({error}); mend that line."
        ) from None


def options_of(given: Mapping[str, Any], path: str) -> Train:
    """Make the options of `purefit train` of settings by name, each of its own kind.

    Args:
        given: Some of the settings; the others keep their defaults.
        path: Where they were read, for messages.

    Raises:
        SettingsError: A value is of another kind.
    """
    kinds = get_type_hints(Train)
    for name, value in given.items():
        if isinstance(value, dict):
            raise SettingsError(
                f"Expected a value for {name} in {path}, got a table; "
                f"write {name} = ... above any table."
            )
        if not _fits(value, kinds[name]):
            raise SettingsError(
                f"Expected {name} in {path} to be {_named(kinds[name])}, got {value!r}; change it."
            )
    values: Any = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return Train(**values)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(one, get_args(kind)[0]) for one in value)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, str):
        return kind is str and "\0" not in value
    return isinstance(value, int | float if kind is float else kind)


def _named(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return _named(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return "a list of whole numbers"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return _NAMES[kind]
