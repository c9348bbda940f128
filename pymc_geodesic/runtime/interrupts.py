"""Ctrl-C while machine code calls back into Python."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Keep an interrupt until the end of the context.

    Python looks for signals where a function begins. What is raised there, before the function can
    catch anything, does not pass through compiled frames: ctypes prints it, and it is forgotten.

    Examples
    --------
    >>> import signal
    >>> from pymc_geodesic.runtime.interrupts import interrupts_later
    >>> done = False
    >>> try:
    ...     with interrupts_later():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done = True
    ... except KeyboardInterrupt:
    ...     print("interrupted, once it was", done)
    interrupted, once it was True
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    seen = []
    signal.signal(signal.SIGINT, lambda *what: seen.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if seen:
            handler(*seen[0])
