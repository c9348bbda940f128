"""Log message that a compilation takes long, before the first draw of the progress bar."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE = 2.0
"""Seconds after which the message is logged; compiled code is read from disk in less."""

MESSAGE = (
    "Compiling for this model: some 10 s of processor time the first time, up to a minute with "
    "local variables. Later runs read it from disk."
)


class _Notice:
    """Message that is logged once in a process."""

    def __init__(self) -> None:
        self.is_given = False

    def give(self) -> None:
        if not self.is_given:
            self.is_given = True
            logging.getLogger("pymc").info(MESSAGE)


_NOTICE = _Notice()


@contextmanager
def report_long_compilation(seconds: float = PATIENCE) -> Iterator[None]:
    """Log to PyMC's logger that the model is compiled, if the block takes longer.

    Parameters
    ----------
    seconds : float

    Examples
    --------
    >>> from pymc_geodesic.runtime.patience import report_long_compilation
    >>> with report_long_compilation():
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
