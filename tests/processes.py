"""Run functions in a new process."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import cloudpickle


def _call(payload: bytes) -> Any:
    function, arguments = cloudpickle.loads(payload)
    return function(*arguments)


def in_its_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process and return its result.

    JAX starts threads, after which a process should not fork; the tests of forked chains may run
    later in the same process.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_call, cloudpickle.dumps((function, arguments))).result()
