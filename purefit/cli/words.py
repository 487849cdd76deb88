"""From words to the option records, and from what the parser says of bad ones to one sentence."""

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

from purefit.errors import SettingsError

__all__ = ["parse"]

_COMMANDS = ("train", "resume", "evaluate", "predict", "verify")

_ABOUT = """Train networks in JAX, where a whole run is one pure function.

Start with: purefit train mnist"""

_KINDS = (
    (r"invalid literal for int", "a whole number"),
    (r"could not convert string to float", "a number"),
    (r"no type matching .*INT \[INT", "one or more whole numbers"),
    (r"no type matching .*INT", "a whole number or None"),
    (r"no type matching .*FLOAT", "a number or None"),
)


def parse(words: Sequence[str]) -> Any:
    """Turn words into one of the option records; what a TOML file says stands behind the flags.

    Raises:
        SettingsError: The words cannot be understood.
        SystemExit: Help was asked for and printed.
    """
    from purefit.cli.options import COMMANDS, Train

    words = list(words) or ["--help"]
    for word in words:
        if "\0" in word or not _is_text(word):
            raise SettingsError(
                f"Expected words of UTF-8 text, got {word!a}; rename the file or mend the word."
            )
    options = _read(COMMANDS, words, words, "purefit", description=_ABOUT)
    if isinstance(options, Train) and options.config is not None:
        from purefit.cli.config import read_options

        saved = read_options(options.config)
        options = _read(Train, words[1:], words, "purefit train", default=saved)
    return options


def _read(kind: Any, words: list[str], said: list[str], prog: str, **more: Any) -> Any:
    import tyro

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, args=words, prog=prog, **more)
    except SystemExit as stop:
        if not stop.code:
            raise
    raise SettingsError(_sentence(box.getvalue(), said)) from None


def _is_text(word: str) -> bool:
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _sentence(box: str, words: list[str]) -> str:
    """Say in one sentence what a box drawn for a terminal says."""
    if words[0] not in _COMMANDS:
        return (
            f"Expected a command, one of {', '.join(_COMMANDS)}, got {words[0]!r}; "
            "see purefit --help."
        )
    prog = f"purefit {words[0]}"
    see = f"see {prog} --help"
    fault, *rest = _parts(box)
    if "Unrecognized" in fault:
        hint = _similar(rest, prog)
        remedy = f"perhaps you mean {hint}" if hint else "leave it out"
        return f"Expected only what {prog} takes, got {_unknown(fault)}; {remedy} ({see})."
    told = _of_value(fault)
    if told is None and (missing := re.search(r"Missing from .*?: (\S+)", fault)):
        told = f"{missing[1]} behind {prog}, got nothing; give it"
    if told is None:
        told = f"words that {prog} takes, got {' '.join(words[1:])!r}; change them"
    return f"Expected {told} ({see})."


def _of_value(fault: str) -> str | None:
    if found := re.search(r"Error parsing (\S+): (.*)", fault):
        kind = next((name for sign, name in _KINDS if re.search(sign, found[2])), "of another kind")
        value = re.search(r"(?:10|float): ('.*')|from \[(.*?)\]", found[2])
        got = (value[1] or value[2]) if value else "something else"
        return f"{found[1]} to be {kind}, got {got}; change it"
    if found := re.search(r"invalid choice '(.*)' for argument '(.*)'\..*\((.*?),?\)", fault):
        choices = found[3].replace("'", "")
        return f"{found[2]} to be one of {choices}, got {found[1]!r}; choose one of them"
    if found := re.search(r"Missing value for argument '(.*)'\.", fault):
        flag = found[1].startswith("-")
        return f"a value {f'after {found[1]}' if flag else found[1].upper()}, got none; give one"
    return None


def _parts(box: str) -> list[str]:
    """Cut a box at its rules, and make each part one line; its title is left out."""
    parts = [""]
    for line in box.splitlines()[1:]:
        text = line.strip("│|+╭╮╰╯ ")
        if text and set(text) <= {"─", "-"}:
            parts.append("")
        elif text:
            parts[-1] = f"{parts[-1]} {text}".strip()
    return [part for part in parts if part] or [""]


def _unknown(fault: str) -> str:
    listed = re.search(r"Unrecognized options: (.*)", fault)
    if listed:
        return repr(listed[1].replace(", ", " "))
    return repr(" ".join(re.findall(r"(\S+) \(applied to", fault)))


def _similar(rest: list[str], prog: str) -> str | None:
    """Find the first flag that the parser offers for this very command."""
    offered = " ".join(part for part in rest if part.startswith("Perhaps"))
    flag = None
    for word in re.findall(rf"--[a-z0-9-]+(?= [A-Z|{{])|in {prog} --help|in purefit", offered):
        if word == f"in {prog} --help":
            return flag
        flag = word if word.startswith("--") else flag
    return None
