"""Arguments, a library call, a print."""

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

from purefit.errors import PurefitError, PurefitWarning, SettingsError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `purefit`.

    Args:
        arguments: The words after `purefit`; those of the process if None.

    Returns:
        The exit code: 0 for success, 2 for bad input, 1 where the work failed, 130 or 143 after
        Ctrl-C or SIGTERM.
    """
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", PurefitWarning)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = parse(words)
        from purefit.cli.commands import run_command

        run_command(options)
    except PurefitError as error:
        print(f"purefit: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("purefit: Stopped before the first step; nothing was begun.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return 0


def parse(words: list[str]) -> Any:
    """Turn words into one of the option records; a TOML file's words come before the flags.

    Raises:
        SettingsError: The words cannot be understood.
        SystemExit: Help was asked for and printed.
    """
    from purefit.cli.options import Train

    if not words:
        words = ["--help"]
    options = _parse_once(words)
    if isinstance(options, Train) and options.config is not None:
        from purefit.cli.config import words_of

        options = _parse_once([words[0], *words_of(options.config), *words[1:]])
    return options


def _parse_once(words: list[str]) -> Any:
    import tyro

    from purefit.cli.options import COMMANDS

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(COMMANDS, args=words, prog="purefit", description=_ABOUT)
    except SystemExit as stop:
        if not stop.code:
            raise
    first = said.getvalue().split("────\n")[0] if "────\n" in said.getvalue() else said.getvalue()
    raise SettingsError(_one_sentence(said.getvalue() or first, words)) from None


_ABOUT = """Train networks in JAX, where a whole run is one pure function.

Start with: purefit train mnist"""


def _one_sentence(box: str, words: list[str]) -> str:
    """Make one sentence of a box drawn for a terminal."""
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()]
    lines = [line for line in lines if line]
    body: list[str] = []
    for line in lines[1:]:
        if set(line) <= {"─"} or line.startswith(("Got errors", "Perhaps you meant")):
            break
        body.append(line)
    text = " ".join(body).replace(" .", ".").rstrip(".")
    hint = ""
    if any(line.startswith("Perhaps you meant") for line in lines):
        at = next(i for i, line in enumerate(lines) if line.startswith("Perhaps you meant"))
        hint = next(
            (f" (perhaps {line.split()[0]})" for line in lines[at + 1 :] if "--" in line), ""
        )
    command = words[0] if words and not words[0].startswith("-") else ""
    known = command in ("train", "resume", "evaluate", "predict", "verify")
    helping = f"purefit {command} --help" if known else "purefit --help"
    return f"Expected arguments that purefit knows, got: {text}{hint}; look at {helping}."


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, PurefitWarning):
        print(f"purefit: warning: {message}", file=sys.stderr)
