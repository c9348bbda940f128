"""One piece of work in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class BackgroundWork[Result]:
    """A function that runs while something else does.

    The thread ends with the function: one that waited for more work would still be there when
    the process forks.

    Parameters
    ----------
    function : callable
        Called once, without arguments.

    Examples
    --------
    >>> from pymc_geodesic.runtime.background import BackgroundWork
    >>> BackgroundWork(lambda: 6 * 7).result()
    42
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._process = os.getpid()
        self._outcome: list[Result] = []
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._outcome.append(function())
            except BaseException as error:  # raised where the result is asked for
                self._error = error

        self._thread = threading.Thread(target=run, name="pymc_geodesic rows")
        self._thread.start()

    def result(self) -> Result:
        """Wait for the function and return its value.

        Raises
        ------
        BaseException
            Whatever the function raised.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def abandon(self) -> None:
        """Wait until the function has ended, unless it ran in the process this one came from."""
        if self._process == os.getpid():
            self._thread.join()
