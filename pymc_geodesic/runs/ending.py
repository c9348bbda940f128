"""How a run ends that does not come to its end."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

TERMINATED = 128 + signal.SIGTERM
"""Exit status of a process that was asked to end, as shells have it."""

_TOLD = threading.Event()
"""That a run was told to end. The exception that says so is lost if the signal comes in the moment
in which C code calls Python, as a gradient that is not compiled by Numba is called."""


def end_if_told() -> None:
    """Raise again what was lost.

    Raises
    ------
    SystemExit
        If the run was told to end and went on.
    """
    if _TOLD.is_set():
        raise SystemExit(TERMINATED)


def how_to_go_on(path: Path) -> str:
    """Say which call goes on with a run."""
    return f"Go on with pymc_geodesic.resume({str(path)!r}, model)"


def tell_how_to_go_on(error: BaseException, path: Path) -> None:
    """Add to an error, once, where the draws are."""
    note = f"The draws so far are kept in {path}. {how_to_go_on(path)}"
    if note not in getattr(error, "__notes__", []):
        error.add_note(note)


def end_run_with(trace: Any, path: Path) -> Callable[[], None]:
    """Let SIGTERM end the sampling of a trace in order, while that trace is there.

    What samples gets `SystemExit`, on whose way chains write the draws that wait.

    Returns
    -------
    callable
        Gives the signal back to whom it belonged; for when the run is done.
    """
    _TOLD.clear()
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # signals are taken by the main thread alone
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    of_trace = weakref.ref(trace)

    def end(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, before)
        if of_trace() is None:
            os.kill(os.getpid(), number)
            return
        _TOLD.set()
        os.write(2, f"Stopped by SIGTERM; draws are kept. {how_to_go_on(path)}\n".encode())
        raise SystemExit(TERMINATED)

    def give_back() -> None:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is end
        ):
            signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, end)
    return give_back


def end_worker_with(close: Callable[[], None]) -> None:
    """Let SIGTERM, or the death of its parent, end the process of a chain that closes its trace.

    Not by an exception: a process of PyMC would report it, and wait for an answer. Nor would it
    notice that nobody asks for its draws any more: a fork holds both ends of its pipe, and the lock
    of the run.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end(number: int, frame: Any) -> None:
        try:
            close()
        finally:
            os._exit(TERMINATED)

    def outlive() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=outlive, name="outlive parent", daemon=True).start()
