"""Arguments, a library call, a print."""

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from purefit.errors import PurefitError, PurefitWarning

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
        _run(words)
    except PurefitError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("Stopped by Ctrl-C; no run was changed.")
        return 130
    except BrokenPipeError:
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        where = f" ({error.filename})" if error.filename else ""
        _say(
            f"Expected the system to read and write, got {error.strerror or error}{where}; make "
            "room or see to the rights there, then do it again."
        )
        return 1
    return 0


def _run(words: Sequence[str]) -> None:
    from purefit.cli.words import parse

    try:
        options = parse(words)
        from purefit.cli.commands import run_command

        run_command(options)
    finally:
        sys.stdout.flush()


def _say(sentence: str) -> None:
    print(f"purefit: {' '.join(sentence.split())}", file=sys.stderr)


def _drop_output() -> None:
    """Send what is still to be printed nowhere, so that the interpreter can end in peace."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
