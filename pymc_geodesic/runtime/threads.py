"""Threads that run compiled code side by side."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise

from threadpoolctl import ThreadpoolController


class Workers:
    """As many threads as this process may keep busy: those that its BLAS library may use.

    Parameters
    ----------
    n_threads : int, optional
        Another number of threads.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self._blas = ThreadpoolController()
        threads = [lib["num_threads"] for lib in self._blas.info() if lib["user_api"] == "blas"]
        allowed = min(threads, default=os.cpu_count() or 1)
        self._n_threads = allowed if n_threads is None else n_threads
        self._pool: ThreadPoolExecutor | None = None

    def run[Result](self, work: Callable[[int], Result], n: int) -> list[Result]:
        """Call a function with 0, …, n − 1, side by side.

        Parameters
        ----------
        work : callable
            To be called with an integer; does not hold the interpreter lock for long.
        n : int

        Returns
        -------
        list
            What the calls returned, in order.
        """
        if n == 1 or self._n_threads == 1:
            return [work(i) for i in range(n)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads)
        return list(self._pool.map(work, range(n)))

    def one_blas_thread(self) -> AbstractContextManager:
        """Keep BLAS to one thread: its threads wait for each other busily.

        Where products are thin, and on a machine that does anything else, a team of BLAS threads
        was measured to be fifteen times slower than one.
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
