"""Progress on a terminal, plain lines elsewhere, silence on request."""

import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from purefit.core.settings import known_name

__all__ = ["PROGRESS", "Reporter", "make_reporter", "row_text"]

PROGRESS = ("auto", "rich", "plain", "none")
"""The kinds of progress that can be asked for."""


class Reporter(Protocol):
    """What the loop tells while it works. Times are in seconds."""

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """A run of so many epochs and steps begins, `done` of them behind it."""

    def steps(self, epoch: int, done: int, latest: Mapping[str, float], rate: float) -> None:
        """So many steps are done in all; `latest` and `rate` (steps a second) are the epoch's."""

    def row(self, row: Mapping[str, Any], epochs: int) -> None:
        """An epoch ended; `row` is its line of the history."""

    def note(self, text: str) -> None:
        """Something to say once."""

    def end(self) -> None:
        """The run ended, well or not."""


def make_reporter(kind: str = "auto", stream: TextIO | None = None) -> Reporter:
    """Make a reporter.

    Args:
        kind: "rich" for a bar, "plain" for a line an epoch, "none" for silence; "auto" takes the
            bar on a terminal and lines elsewhere.
        stream: Where to; standard error if None.

    Raises:
        SettingsError: The kind is unknown.
    """
    known_name("progress", kind, PROGRESS)
    stream = sys.stderr if stream is None else stream
    if kind == "auto":
        kind = "rich" if stream.isatty() else "plain"
    if kind == "rich":
        return Bar(stream)
    return Lines(stream) if kind == "plain" else Silence(stream)


def row_text(row: Mapping[str, Any], epochs: int) -> str:
    """Write a row of the history as one line for people."""
    parts = [f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}"]
    for name, value in row.items():
        if name not in ("epoch", "step"):
            parts.append(f"{name.replace('_', ' ')} {_number(name, value)}")
    return "  ".join(parts)


def _number(name: str, value: float) -> str:
    return f"{100 * value:.2f} %" if name.endswith("accuracy") else f"{value:.4f}"


@final
class Silence:
    """Says nothing."""

    def __init__(self, stream: TextIO) -> None:
        pass

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """Say nothing."""

    def steps(self, epoch: int, done: int, latest: Mapping[str, float], rate: float) -> None:
        """Say nothing."""

    def row(self, row: Mapping[str, Any], epochs: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def end(self) -> None:
        """Say nothing."""


@final
class Lines:
    """Writes one plain line an epoch."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rate = 0.0

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """Say nothing yet."""

    def steps(self, epoch: int, done: int, latest: Mapping[str, float], rate: float) -> None:
        """Say nothing, but remember how fast it goes: lines are for epochs."""
        self._rate = rate

    def row(self, row: Mapping[str, Any], epochs: int) -> None:
        """Write the line."""
        self.note(f"{row_text(row, epochs)}  {self._rate:.0f} steps/s")

    def note(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._stream, flush=True)

    def end(self) -> None:
        """Nothing is open."""


@final
class Bar:
    """Draws a bar that moves with every segment, and writes a line above it for every epoch."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, force_terminal=True)
        self._epochs = 0
        self._bar = Progress(
            TextColumn("[bold]epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} steps"),
            TextColumn("[cyan]{task.fields[rate]}"),
            TextColumn("{task.fields[latest]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self._console,
            refresh_per_second=4,
            transient=True,
        )
        self._task = self._bar.add_task("train", total=1, epoch="-", rate="compiling", latest="")

    def begin(self, epochs: int, steps: int, done: int) -> None:
        """Show the bar; until the first segment is back, the programs are being compiled."""
        self._epochs = epochs
        self._bar.update(self._task, total=steps, completed=done, epoch=f"-/{epochs}")
        self._bar.start()

    def steps(self, epoch: int, done: int, latest: Mapping[str, float], rate: float) -> None:
        """Move the bar."""
        means = "  ".join(f"{name} {_number(name, value)}" for name, value in latest.items())
        self._bar.update(
            self._task,
            completed=done,
            epoch=f"{epoch + 1}/{self._epochs}",
            rate=f"{rate:.0f} steps/s",
            latest=means,
        )

    def row(self, row: Mapping[str, Any], epochs: int) -> None:
        """Write the epoch's line above the bar."""
        self._console.print(row_text(row, epochs), highlight=False)

    def note(self, text: str) -> None:
        """Write a line above the bar."""
        self._console.print(text, highlight=False, markup=False)

    def end(self) -> None:
        """Take the bar away."""
        self._bar.stop()
