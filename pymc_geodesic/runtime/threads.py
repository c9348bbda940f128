"""Threads: pools for compiled code, limits of BLAS, background tasks, and deferral of Ctrl-C."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise

from threadpoolctl import ThreadpoolController, threadpool_limits


class Workers:
    """Thread pool with as many threads as the BLAS library of this process may use.

    Parameters
    ----------
    n_threads : int, optional
        Number of threads; by default that of BLAS.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self._blas = ThreadpoolController()
        threads = [lib["num_threads"] for lib in self._blas.info() if lib["user_api"] == "blas"]
        allowed = min(threads, default=os.cpu_count() or 1)
        self._n_threads = allowed if n_threads is None else n_threads
        self._pool: ThreadPoolExecutor | None = None

    def run[Result](self, work: Callable[[int], Result], n: int) -> list[Result]:
        """Call a function with 0, …, n − 1 concurrently.

        Parameters
        ----------
        work : callable
            Function of an integer, which should release the interpreter lock.
        n : int

        Returns
        -------
        list
            Return values, in order.
        """
        if n == 1 or self._n_threads == 1:
            return [work(i) for i in range(n)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads)
        return list(self._pool.map(work, range(n)))

    def one_blas_thread(self) -> AbstractContextManager:
        """Limit BLAS to one thread, since BLAS threads busy-wait for each other.

        For thin matrices, on a machine with other load, several BLAS threads were 15 times slower
        than one.
        """
        return self._blas.limit(limits=1, user_api="blas")


def parts_of(n: int, n_parts: int) -> list[slice]:
    """Divide a range into consecutive parts of about the same length.

    Examples
    --------
    >>> from pymc_geodesic.runtime.threads import parts_of
    >>> parts_of(5, 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    bounds = [n * part // n_parts for part in range(n_parts + 1)]
    return [slice(first, last) for first, last in pairwise(bounds)]


class BackgroundTask[Result]:
    """A function that runs in a separate thread.

    The thread ends with the function, so that no idle thread exists when the process forks.

    Parameters
    ----------
    function : callable
        Function without arguments, which is called once.

    Examples
    --------
    >>> from pymc_geodesic.runtime.threads import BackgroundTask
    >>> BackgroundTask(lambda: 6 * 7).result()
    42
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._process = os.getpid()
        self._outcome: list[Result] = []
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._outcome.append(function())
            except BaseException as error:  # raised by `result`
                self._error = error

        self._thread = threading.Thread(target=run, name="pymc_geodesic rows")
        self._thread.start()

    def result(self) -> Result:
        """Wait for the function and return its value.

        Raises
        ------
        BaseException
            The exception of the function.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def abandon(self) -> None:
        """Wait for the function, unless it runs in the parent process."""
        if self._process == os.getpid():
            self._thread.join()


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of a context in which compiled code calls Python functions.

    Python handles signals on entry to a function, before the function can catch an exception. A
    `KeyboardInterrupt` raised at that point does not propagate through compiled frames: ctypes
    prints and discards it.

    Examples
    --------
    >>> import signal
    >>> from pymc_geodesic.runtime.threads import defer_interrupts
    >>> done = False
    >>> try:
    ...     with defer_interrupts():
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


@functools.cache
def limit_blas_threads(process: int) -> None:
    """Limit BLAS in a worker process to its share of the cores, once in each process.

    Parameters
    ----------
    process : int
        Process id.
    """
    if multiprocessing.parent_process() is not None:
        cores = os.cpu_count() or 1
        threadpool_limits(limits=max(1, cores // min(4, cores)), user_api="blas")
