"""A word while something compiles, before a progress bar that stands at zero looks dead."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["telling_if_it_takes_long"]

PATIENCE = 2.0
"""Seconds; what is read from disk takes less."""

MESSAGE = (
    "Compiling for this model: some 10 s of processor time the first time, up to a minute with "
    "local variables. Later runs read it from disk."
)


class _Notice:
    """What is said once in a process."""

    def __init__(self) -> None:
        self.is_given = False

    def give(self) -> None:
        if not self.is_given:
            self.is_given = True
            logging.getLogger("pymc").info(MESSAGE)


_NOTICE = _Notice()


@contextmanager
def telling_if_it_takes_long(seconds: float = PATIENCE) -> Iterator[None]:
    """Say through PyMC's logger that something compiles if the block takes longer.

    Parameters
    ----------
    seconds : float

    Examples
    --------
    >>> from pymc_geodesic.runtime.patience import telling_if_it_takes_long
    >>> with telling_if_it_takes_long():
    ...     2 + 2
    4
    """
    timer = Timer(seconds, _NOTICE.give)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # no thread is left where chains fork
