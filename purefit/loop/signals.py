"""Signals set a flag; the loop looks at it between segments."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Flag", "listening"]


@dataclass
class Flag:
    """What has come so far: the number of a signal, or None."""

    signal_number: int | None = None


@contextmanager
def listening(wanted: bool = True) -> Iterator[Flag]:
    """Turn the first SIGINT or SIGTERM into a flag, and let the second end the process at once.

    Outside of the main thread, where Python handles no signals, the flag just stays unset.

    Args:
        wanted: False leaves the signals alone.
    """
    flag = Flag()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if flag.signal_number is not None:
            os._exit(128 + number)
        flag.signal_number = number

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
