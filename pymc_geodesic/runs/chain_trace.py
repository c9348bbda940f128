"""Trace of one chain: buffers its draws, writes checkpoints, and replays draws when resumed."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor

from pymc_geodesic.runs.chain_files import ChainFiles, Checkpoint, DrawBuffer, Draws
from pymc_geodesic.runs.identity import check_start
from pymc_geodesic.runs.process_control import (
    add_resume_note,
    close_worker_on_sigterm,
    raise_if_terminated,
)
from pymc_geodesic.runs.pymc_backend import ZarrChainBase


class PointEvaluator:
    """Function of a point that returns the values of variables.

    Only transformed and deterministic variables are compiled; the others are entries of the point.
    A call of a compiled function takes microseconds, as long as storing the rest of a draw.

    Parameters
    ----------
    model : pymc.Model
    variables : list of TensorVariable
        In the order of the values.
    """

    def __init__(self, model: pm.Model, variables: Sequence[Any]) -> None:
        entries = set(model.value_vars)
        computed = [v for v in variables if v not in entries]
        self._inputs = [v.name for v in model.value_vars]
        self._names = [v.name for v in variables]
        self._computed = [v.name for v in computed]
        self._evaluate = None
        if computed:
            self._evaluate = model.compile_fn(
                inputs=[pytensor.In(v, borrow=True) for v in model.value_vars],
                outs=[pytensor.Out(v, borrow=True) for v in computed],
                point_fn=False,
                on_unused_input="ignore",
            )
            self._evaluate.trust_input = True  # points of PyMC have the right types

    def __call__(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Values at a point; some may be its own arrays."""
        if self._evaluate is None:
            return [point[name] for name in self._names]
        found = self._evaluate(*[point[name] for name in self._inputs])
        if len(found) == len(self._names):
            return found
        all_values = {**point, **dict(zip(self._computed, found, strict=True))}
        return [all_values[name] for name in self._names]


class Replay(NamedTuple):
    """Draws of a chain before it is resumed.

    Attributes
    ----------
    start : Checkpoint
        Initial point and state.
    draws : Draws
        Draws before the checkpoint.
    checkpoint : Checkpoint
        From which the chain is resumed.
    n_on_disk : int
        Number of draws on disk. Those after the checkpoint are drawn again, and stay on disk until
        as many have been drawn.
    """

    start: Checkpoint
    draws: Draws
    checkpoint: Checkpoint
    n_on_disk: int


class CheckpointSchedule(NamedTuple):
    """When to write checkpoints.

    Attributes
    ----------
    every : float
        Minimum interval in seconds.
    max_overhead : float
        Maximum fraction of the time spent on writing; long writes increase the interval.
    """

    every: float
    max_overhead: float


class ChainTrace(ZarrChainBase):
    """Trace of one chain, in the process that samples it.

    PyMC passes the step method before the first draw. In a resumed chain the method ``step`` of
    this object is replaced: it returns the draws on disk, and then restores the sampling state.

    Parameters
    ----------
    files : ChainFiles
    chain : int
        Number of the chain.
    n_draws : int
        Draws of the chain, warm-up included.
    evaluate : PointEvaluator
    buffer : DrawBuffer
    schedule : CheckpointSchedule
    replay : Replay, optional
        Draws of a resumed chain.
    previous : ChainTrace, optional
        Trace of the chain that is sampled before this one if all chains use one process.
    """

    def __init__(
        self,
        files: ChainFiles,
        chain: int,
        n_draws: int,
        *,
        evaluate: PointEvaluator,
        buffer: DrawBuffer,
        schedule: CheckpointSchedule,
        replay: Replay | None = None,
        previous: ChainTrace | None = None,
    ) -> None:
        # The constructor of the base class would open a Zarr store.
        self.files, self.chain, self.n_draws = files, chain, n_draws
        self.evaluate, self.buffer = evaluate, buffer
        self.schedule = schedule
        self.replay = replay
        self.previous = previous
        self.n = 0
        self._step: Any = None
        self._first = 0 if replay is None else replay.checkpoint.n
        self._n_on_disk = 0 if replay is None else replay.n_on_disk
        self._has_failed = False
        self._earlier_exception = id(sys.exception())  # one that is handled already
        self._first_buffered = self._first
        self._due = time.monotonic() + schedule.every

    def link_stepper(self, step_method: Any) -> None:
        """Replace the method ``step`` of the step method, in the process that calls it.

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
        step_method.step = self._first_step
        if not in_main:
            # PyMC does not close the trace in a worker that is terminated.
            multiprocessing.util.Finalize(self, self.close, exitpriority=10)
            close_worker_on_sigterm(self.close)

    def _restore_methods(self) -> None:
        for name in ("step", "stop_tuning"):
            self._step.__dict__.pop(name, None)

    def _first_step(self, point: dict[str, np.ndarray]) -> Any:
        """Replace the first call of ``step``: write the start, or compare it with that on disk."""
        self._restore_methods()
        start = Checkpoint(0, {k: np.array(v) for k, v in point.items()}, self._step.sampling_state)
        if self.replay is None:
            self.files.write_start(start)
            self._due = time.monotonic() + self.schedule.every
            return self._step.step(point)
        check_start(self.replay.start[1:], start[1:], self.chain)
        if self.replay.checkpoint.n == 0:
            return self._step.step(point)
        self._step.step = self._replay_step
        self._step.stop_tuning = lambda: None  # the restored state includes it
        return self._replay_step(point)

    def _replay_step(self, point: dict[str, np.ndarray]) -> Any:
        """Replace ``step`` for the draws on disk; restore the state after the last of them."""
        assert self.replay is not None
        checkpoint, draws = self.replay.checkpoint, self.replay.draws
        stats = [
            {
                name: None if name == "warning" else column[self.n]
                for name, column in columns.items()
            }
            for columns in draws.stats
        ]
        if self.n + 1 == checkpoint.n:
            self._restore_methods()
            self._step.sampling_state = checkpoint.state
            self._due = time.monotonic() + self.schedule.every
        return {k: v.copy() for k, v in checkpoint.point.items()}, stats

    def record(
        self, draw: Mapping[str, np.ndarray], stats: Sequence[Mapping[str, Any]], **_: Any
    ) -> None:
        """Append a draw to the buffer; write a checkpoint if one is due."""
        raise_if_terminated()
        self.n += 1
        if self.n <= self._first:
            return
        self.buffer.append(self.evaluate(draw), stats)
        if self.n == self.n_draws or (self.n >= self._n_on_disk and time.monotonic() >= self._due):
            began = time.monotonic()
            point = {name: np.array(value) for name, value in draw.items()}
            try:
                self._write_draws()
                self.files.write_checkpoint(Checkpoint(self.n, point, self._step.sampling_state))
            except OSError as error:
                self._has_failed = True
                raise OSError(
                    error.errno,
                    f"chain {self.chain} cannot be written, {error.strerror or error}; draws to "
                    f"the last checkpoint are safe in {self.files.folder}. Free disk space or "
                    "repair the folder, and resume the run",
                    error.filename,
                ) from error
            now = time.monotonic()
            self._due = now + max(self.schedule.every, (now - began) / self.schedule.max_overhead)

    def _write_draws(self) -> None:
        n = self.buffer.n
        if n and self._first_buffered + n >= self._n_on_disk:
            self.files.write_draws(self._first_buffered, self.buffer.content())
            # In this order the number of buffered draws is right after an interruption anywhere.
            self.buffer.clear()
            self._first_buffered += n

    def record_sampling_state(self, step: Any = None) -> None:
        """Do nothing. PyMC calls this after an interrupted draw, whose state is not valid."""

    def close(self) -> None:
        """Write the buffered draws, without a checkpoint."""
        if self._step is not None:
            self._restore_methods()
        if not self._has_failed:
            self._write_draws()
        error = sys.exception()
        in_main = multiprocessing.parent_process() is None
        if in_main and error is not None and id(error) != self._earlier_exception:
            add_resume_note(error, self.files.folder.parent)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_step": None, "previous": None}

    @property
    def _posterior(self) -> Any:
        """Object whose ``store`` PyMC reads before it starts processes that write their chains."""
        return self

    store = None
