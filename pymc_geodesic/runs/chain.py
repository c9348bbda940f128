"""One chain of a run: draws on their way to the disk, and a chain that goes on from there."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.chain_files import ChainFiles, Draws, Record
from pymc_geodesic.runs.columns import Columns
from pymc_geodesic.runs.ending import end_if_told, end_worker_with, tell_how_to_go_on
from pymc_geodesic.runs.pymc_parts import RecordsInWorker
from pymc_geodesic.runs.values import ValuesAt

_SHARE = 0.01
"""Part of the time that writing may take: where it takes long, it is done less often."""


class Replay(NamedTuple):
    """What a chain has drawn before.

    Attributes
    ----------
    start : Record
    draws : Draws
        Those before the record.
    record : Record
        From which it goes on.
    n_on_disk : int
        Draws on the disk, some behind the record, that only as many may replace.
    """

    start: Record
    draws: Draws
    record: Record
    n_on_disk: int


class ChainTrace(RecordsInWorker):
    """What PyMC calls with every draw of a chain, in the process that draws it.

    PyMC links the step method before the first draw. Its method ``step`` is shadowed for as long
    as draws are there already: these are handed out again, and the state that follows them is set.

    Parameters
    ----------
    files : ChainFiles
        Where draws go.
    chain : int
        Number of the chain.
    n_draws : int
        How many draws it is to have, with tuning.
    values_at : ValuesAt
        Function of a point that returns the values of the variables.
    columns : Columns
        For the values and the sample stats.
    every : float
        Least number of seconds between two records.
    replay : Replay, optional
        What is there already.
    previous : ChainTrace, optional
        Trace of the chain that one process samples before this one.
    """

    def __init__(
        self,
        files: ChainFiles,
        chain: int,
        n_draws: int,
        *,
        values_at: ValuesAt,
        columns: Columns,
        every: float,
        replay: Replay | None = None,
        previous: ChainTrace | None = None,
    ) -> None:
        # Not those of the base: it would open a store of another kind.
        self.files, self.chain, self.n_draws = files, chain, n_draws
        self.values_at, self.columns = values_at, columns
        self.every = every
        self.replay = replay
        self.previous = previous
        self.n = 0
        self._step: Any = None
        self._first = 0 if replay is None else replay.record.n
        self._n_on_disk = 0 if replay is None else replay.n_on_disk
        self._has_failed = False
        self._is_handled = id(sys.exception())  # one that sampling has nothing to do with
        self._first_waiting = self._first
        self._due = time.monotonic() + self.every

    def link_stepper(self, step_method: Any) -> None:
        """Take hold of the step method, in the process that calls it.

        Raises
        ------
        KeyboardInterrupt
            If the previous chain was interrupted. PyMC catches the interrupt of a chain and
            samples the next one, so that a run in one process would not stop.
        """
        in_main = multiprocessing.parent_process() is None
        if in_main and self.previous is not None and self.previous.n < self.previous.n_draws:
            raise KeyboardInterrupt
        self._step = step_method
        step_method.step = self._begin
        if not in_main:
            # Nothing closes a trace in a process that is told to end.
            multiprocessing.util.Finalize(self, self.close, exitpriority=10)
            end_worker_with(self.close)

    def _unshadow(self) -> None:
        for name in ("step", "stop_tuning"):
            self._step.__dict__.pop(name, None)

    def _begin(self, point: dict[str, np.ndarray]) -> Any:
        """Take the place of the first call of ``step``."""
        self._unshadow()
        start = Record(0, {k: np.array(v) for k, v in point.items()}, self._step.sampling_state)
        if self.replay is None:
            self.files.write_start(start)
            self._due = time.monotonic() + self.every
            return self._step.step(point)
        check_start(self.replay.start, start, self.chain)
        if self.replay.record.n == 0:
            return self._step.step(point)
        self._step.step = self._again
        self._step.stop_tuning = lambda: None  # what the state holds already
        return self._again(point)

    def _again(self, point: dict[str, np.ndarray]) -> Any:
        """Take the place of ``step`` while there are draws on the disk."""
        assert self.replay is not None
        record, draws = self.replay.record, self.replay.draws
        stats = [
            {
                name: None if name == "warning" else column[self.n]
                for name, column in columns.items()
            }
            for columns in draws.stats
        ]
        if self.n + 1 == record.n:
            self._unshadow()
            self._step.sampling_state = record.state
            self._due = time.monotonic() + self.every
        return {k: v.copy() for k, v in record.point.items()}, stats

    def record(
        self, draw: Mapping[str, np.ndarray], stats: Sequence[Mapping[str, Any]], **_: Any
    ) -> None:
        """Keep a draw, and write what is kept when it is time."""
        end_if_told()
        self.n += 1
        if self.n <= self._first:
            return
        self.columns.append(self.values_at(draw), stats)
        if self.n == self.n_draws or (self.n >= self._n_on_disk and time.monotonic() >= self._due):
            begin = time.monotonic()
            point = {name: np.array(value) for name, value in draw.items()}
            try:
                self._write_draws()
                self.files.write_record(Record(self.n, point, self._step.sampling_state))
            except OSError as error:
                self._has_failed = True
                raise OSError(
                    error.errno,
                    f"chain {self.chain} cannot be written, {error.strerror or error}; draws to "
                    f"the last record are safe in {self.files.folder}. Make room, or mend what "
                    "is wrong with the folder, and go on",
                    error.filename,
                ) from error
            now = time.monotonic()
            self._due = now + max(self.every, (now - begin) / _SHARE)

    def _write_draws(self) -> None:
        n = self.columns.n
        if n and self._first_waiting + n >= self._n_on_disk:
            self.files.write_draws(self._first_waiting, self.columns.content())
            # In an order that an interruption anywhere leaves right: what waits is what is counted.
            self.columns.clear()
            self._first_waiting += n

    def record_sampling_state(self, step: Any = None) -> None:
        """Do nothing: PyMC calls this when a draw was interrupted, and its state is of no use."""

    def close(self) -> None:
        """Write the draws that wait; the state after them is that of the last record."""
        if self._step is not None:
            self._unshadow()
        if not self._has_failed:
            self._write_draws()
        error = sys.exception()
        in_main = multiprocessing.parent_process() is None
        if in_main and error is not None and id(error) != self._is_handled:
            tell_how_to_go_on(error, self.files.folder.parent)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_step": None, "previous": None}

    @property
    def _posterior(self) -> Any:
        """What PyMC asks for its store before it lets processes write for themselves."""
        return self

    store = None


def check_start(old: Record, new: Record, chain: int) -> None:
    """Refuse a chain that does not begin as the one on the disk began.

    Raises
    ------
    ValueError
        If the point or the state of the step is another; it names where.
    """
    for what, was, now in (("point", old.point, new.point), ("step", old.state, new.state)):
        where = difference(was, now, what)
        if where:
            message = (
                f"chain {chain} does not begin as the one in the run: {where} is another. Pass the "
                "step= and the initvals= with which the run began."
            )
            raise ValueError(see(message, "stopped-run"))


def difference(one: Any, other: Any, where: str) -> str:
    """Name the first place where two states differ by more than rounding; empty if nowhere."""
    if hasattr(one, "__dataclass_fields__") and type(one) is type(other):
        return difference(vars(one), vars(other), where)
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return where
        return next(filter(None, (difference(one[k], other[k], f"{where}.{k}") for k in one)), "")
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return where
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(a, b, f"{where}[{i}]") for i, (a, b) in pairs)), "")
    if isinstance(one, np.ndarray | np.generic | float):
        a, b = np.asarray(one), np.asarray(other)
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return where
        if a.dtype.kind in "fc":
            return "" if np.allclose(a, b, rtol=1e-6, atol=1e-12, equal_nan=True) else where
        return "" if np.array_equal(a, b) else where
    return "" if one == other else where
