"""Processes of a run: lock on its folder, and orderly termination by SIGTERM."""

from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymc_geodesic.failure_modes import see

_LOCKED: dict[Path, int] = {}
"""Lock files of this process by path; the operating system releases them when it ends."""


def acquire_lock(folder: Path) -> None:
    """Lock a run against other writing processes, until `release_lock` or the end of this process.

    Raises
    ------
    BlockingIOError
        If another process writes to it.
    """
    path = folder.resolve() / "lock"
    if path in _LOCKED:  # an earlier call of pymc.sample in this process failed
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        message = f"another process draws for the run in {folder}; wait for it, or terminate it"
        raise BlockingIOError(see(message, "stopped-run")) from error
    _LOCKED[path] = file


def release_lock(folder: Path) -> None:
    """Let other processes write to the run."""
    file = _LOCKED.pop(folder.resolve() / "lock", None)
    if file is not None:
        os.close(file)


TERMINATED = 128 + signal.SIGTERM
"""Exit status of a process that SIGTERM ends, as in shells."""

_SIGTERM_RECEIVED = threading.Event()
"""Set by the signal handler. Its `SystemExit` is lost if it is raised in a callback from C code, as
in a gradient that is not compiled by Numba."""


def raise_if_terminated() -> None:
    """Raise the `SystemExit` of the signal handler again, in case it was lost.

    Raises
    ------
    SystemExit
        If the run received SIGTERM.
    """
    if _SIGTERM_RECEIVED.is_set():
        raise SystemExit(TERMINATED)


def resume_instruction(path: Path) -> str:
    """Sentence with the call that resumes a run."""
    return f"Resume with pymc_geodesic.resume({str(path)!r}, model)"


def add_resume_note(error: BaseException, path: Path) -> None:
    """Add a note to an exception, once, that states where the draws are and how to resume."""
    note = f"The draws so far are kept in {path}. {resume_instruction(path)}"
    if note not in getattr(error, "__notes__", []):
        error.add_note(note)


def exit_on_sigterm(trace: Any, path: Path) -> Callable[[], None]:
    """Install a handler of SIGTERM that raises `SystemExit`, during which chains write their draws.

    Parameters
    ----------
    trace : object
        The handler is disabled once this object is garbage.
    path : Path
        Folder of the run.

    Returns
    -------
    callable
        Restores the previous handler.
    """
    _SIGTERM_RECEIVED.clear()
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread handles signals
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    reference = weakref.ref(trace)

    def handle(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, before)
        if reference() is None:
            os.kill(os.getpid(), number)
            return
        _SIGTERM_RECEIVED.set()
        os.write(2, f"Stopped by SIGTERM; draws are kept. {resume_instruction(path)}\n".encode())
        raise SystemExit(TERMINATED)

    def restore() -> None:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is handle
        ):
            signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, handle)
    return restore


def close_worker_on_sigterm(close: Callable[[], None]) -> None:
    """End the process of a chain, after closing its trace, on SIGTERM or when its parent ends.

    The handler raises no exception: PyMC's worker would send it to the parent and wait for an
    answer. The worker does not notice the end of its parent either: after a fork it holds both ends
    of its pipe, and the lock of the run.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def handle(number: int, frame: Any) -> None:
        try:
            close()
        finally:
            os._exit(TERMINATED)

    def watch_parent() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)
    threading.Thread(target=watch_parent, name="watch parent process", daemon=True).start()
