"""Runs that are interrupted and resumed."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_geodesic as pg
from pymc_geodesic.adaptation import gradient_noise
from pymc_geodesic.runs import chain_trace
from tests.steps.runs import sample

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False, "cores": 1}


TIMES = {"process_time_diff", "perf_counter_diff", "perf_counter_start"}
"""Sample stats that differ between runs."""


class StoppedError(Exception):
    """Exception that ends a process."""


def stop_after(n: int) -> Any:
    """Make a callback that stops a run after n draws of all its chains."""
    seen = []

    def callback(trace: Any, draw: Any) -> None:
        seen.append(draw)
        if len(seen) == n:
            raise StoppedError

    return callback


def checkpoint_every(monkeypatch: Any, n: int) -> None:
    """Replace seconds by draws, so that with every=n a checkpoint is due after every n draws."""
    calls = iter(range(10**9))
    monkeypatch.setattr(chain_trace.time, "monotonic", lambda: float(next(calls)))


def checkpoints(path: Path | str, every: float = 5.0) -> pg.CheckpointTrace:
    """Trace with unlimited overhead of checkpoints."""
    return pg.CheckpointTrace(path, every, max_overhead=np.inf)


def lose_tail(path: Path) -> None:
    """Remove draws after the last checkpoint, which only a process that exits regularly writes."""
    for folder in path.glob("chain-*"):
        last = max((int(p.stem.split("-")[1]) for p in folder.glob("state-*.npz")), default=0)
        for segment in folder.glob("draws-*.npz"):
            if int(segment.stem.split("-")[1]) >= last:
                segment.unlink()


@contextmanager
def interpreted_runs() -> Iterator[None]:
    """Run without compilation, and estimate gradient noise from few pairs."""
    with (
        pytensor.config.change_flags(mode="FAST_COMPILE"),
        pytest.MonkeyPatch.context() as patch,
    ):
        few_pairs = replace(gradient_noise.SETTINGS, max_pairs=24)  # irrelevant for these tests
        patch.setattr(gradient_noise, "SETTINGS", few_pairs)
        yield


def stopped(model: pm.Model, step: Any, path: Path, at: int, every: float, **kwargs: Any) -> None:
    """Stop a run after ``at`` draws, like SIGKILL: nothing is written after the last checkpoint."""
    try:
        sample(model, step, trace=checkpoints(path, every), callback=stop_after(at), **kwargs)
    except StoppedError:
        lose_tail(path)
    else:
        raise AssertionError("the run was over before it could be stopped")


def assert_same_trees(one: Any, other: Any, but: Collection[str] = ()) -> None:
    """Compare draws and sample stats bit by bit, apart from some stats."""
    for group in ("posterior", "sample_stats"):
        missing = set(one[group].data_vars) - set(other[group].data_vars)
        assert missing <= {"warning"}, missing
        for name, values in one[group].data_vars.items():
            if values.dtype != object and name not in TIMES.union(but):
                np.testing.assert_array_equal(other[group][name].values, values.values, name)
