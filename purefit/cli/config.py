"""Settings from a TOML file, as the words of flags."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from purefit.cli.options import Train
from purefit.errors import SettingsError

__all__ = ["read_toml", "words_of"]


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
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"Expected a TOML file, got {path}, which cannot be read ({error}); check it."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"Expected TOML in {path}, got a syntax error ({error}); mend that line."
        ) from None


def words_of(path: str) -> list[str]:
    """Give the words that say on a command line what a TOML file says.

    The names are those of the flags, with underscores; the table `record` of a `run.toml` is left
    alone.

    Raises:
        SettingsError: The file cannot be read, or has a name that is no setting.
    """
    known = [field.name for field in fields(Train) if field.name not in ("config", "json")]
    words: list[str] = []
    for name, value in read_toml(path).items():
        if name == "record" and isinstance(value, dict):
            continue
        if name not in known:
            raise SettingsError(
                f"Expected only settings of purefit train in {path}, got {name!r}; "
                f"use one of: {', '.join(known)}."
            )
        words += _words(name, value, path)
    return words


def _words(name: str, value: Any, path: str) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, dict):
        raise SettingsError(
            f"Expected a value for {name} in {path}, got a table; "
            f"write {name} = ... above any table."
        )
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if name == "data":
        return [str(value)]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, str(value)]
