"""One process at a time writes to a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pymc_geodesic.failure_modes import see

_HELD: dict[Path, int] = {}
"""Files that this process has locked; the lock of a process that is killed goes with it."""


def hold(folder: Path) -> None:
    """Keep other processes from writing to a run, until `let_go` or the end of this one.

    Raises
    ------
    BlockingIOError
        If another process writes to it.
    """
    path = folder.resolve() / "lock"
    if path in _HELD:  # sampling has failed in this process before
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        message = f"another process draws for the run in {folder}; wait for it, or end it"
        raise BlockingIOError(see(message, "stopped-run")) from error
    _HELD[path] = file


def let_go(folder: Path) -> None:
    """Let other processes write to the run."""
    file = _HELD.pop(folder.resolve() / "lock", None)
    if file is not None:
        os.close(file)
