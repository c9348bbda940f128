"""Trace for `pymc.sample` that writes a run to disk during sampling."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.chain_files import DrawBuffer
from pymc_geodesic.runs.chain_trace import ChainTrace, CheckpointSchedule, PointEvaluator, Replay
from pymc_geodesic.runs.identity import compute_identity, serialize_step, step_differences
from pymc_geodesic.runs.process_control import (
    acquire_lock,
    exit_on_sigterm,
    release_lock,
    resume_instruction,
)
from pymc_geodesic.runs.pymc_backend import (
    ZarrTraceBase,
    coords_and_dims_for_inferencedata,
    is_transformed_name,
)
from pymc_geodesic.runs.reading import FORMAT, RunFiles, data_tree
from pymc_geodesic.runs.serialization import write_tree


class CheckpointTrace(ZarrTraceBase):
    """Trace of `pymc.sample` that writes a run to disk, from which it can be resumed.

    Each chain writes segments of draws and sample stats, and after each a checkpoint with the
    complete state of its step methods, in the process that samples it. A process that is killed
    loses the draws since the last checkpoint; `resume` continues from there, and its draws are
    bit-identical to those of an uninterrupted run.

    Parameters
    ----------
    path : path-like
        Folder of the run; it is created.
    every : float, default 5
        Minimum interval between two checkpoints of a chain in seconds, at least 0.
    max_overhead : float, default 0.01
        Maximum fraction of the time spent on writing checkpoints. If one takes long, the interval
        to the next is longer than `every`.

    Raises
    ------
    ValueError
        If `every` is negative or not finite, or `max_overhead` is not positive.
    FileExistsError
        In `pymc.sample`, if the folder already contains a run.
    TypeError
        In `pymc.sample`, if the state of a step method cannot be serialized.

    See Also
    --------
    resume : continues the run.
    open_run : reads the draws, also during sampling.

    Notes
    -----
    An interrupt (Ctrl-C, or `KeyboardInterrupt` in a callback) stops the whole run, also with
    ``cores=1``, where PyMC's own traces end one chain and continue with the next.

    With ``cores=`` above 1, PyMC requires zarr for traces that worker processes write:
    ``pip install zarr``.

    Examples
    --------
    >>> import tempfile
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> path = tempfile.mkdtemp() + "/run"
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     step = pg.SGGMC(compile_kwargs={"mode": "FAST_COMPILE"})
    ...     idata = pm.sample(
    ...         draws=20, tune=10, chains=1, cores=1, step=step, trace=pg.CheckpointTrace(path),
    ...         progressbar=False, quiet=True, compute_convergence_checks=False,
    ...     )
    >>> pg.open_run(path).posterior["x"].shape
    (1, 20)
    """

    def __init__(self, path: str | Path, every: float = 5.0, *, max_overhead: float = 0.01) -> None:
        # The constructor of the base class would open a Zarr store.
        if not (every >= 0.0 and math.isfinite(every)):
            raise ValueError(f"every={every!r} must be a number of seconds, at least 0")
        if not max_overhead > 0.0:
            raise ValueError(f"max_overhead={max_overhead!r} must be positive")
        self.path = Path(path)
        self.schedule = CheckpointSchedule(float(every), float(max_overhead))
        self._resumed: RunFiles | None = None

    @classmethod
    def _resume(cls, run: RunFiles) -> CheckpointTrace:
        """Trace of a run that is resumed."""
        max_overhead = run.key.get("max_overhead", 0.01)
        trace = cls(run.path, run.key["every"], max_overhead=max_overhead)
        trace._resumed = run
        return trace

    def init_trace(
        self,
        chains: int,
        draws: int,
        tune: int,
        step: Any,
        model: pm.Model | None = None,
        vars: Sequence[Any] | None = None,
        test_point: Any = None,
    ) -> None:
        """Start or resume the run; `pymc.sample` calls this before the first chain starts."""
        self.model = pm.modelcontext(model)
        self.tuning_steps, self.n_draws = tune, draws
        if vars is None:
            named = [v for v in self.model.unobserved_value_vars if not is_transformed_name(v.name)]
        else:
            named = list(vars)
        kinds = [
            {name: np.dtype(kind) for name, kind in stats.items()} for stats in step.stats_dtypes
        ]
        key: dict[str, Any] = {
            "format": FORMAT,
            "chains": chains,
            "draws": draws,
            "tune": tune,
            "every": self.schedule.every,
            "max_overhead": self.schedule.max_overhead,
            "var_names": None if vars is None else [v.name for v in named],
            "stats": [{name: kind.str for name, kind in stats.items()} for stats in kinds],
            "step": serialize_step(step),
            "step_before": step.sampling_state,
            "identity": compute_identity(self.model),
            "labels": _labels(self.model),
        }
        replays: list[Replay | None] = [None] * chains
        if self._resumed is None:
            self._create_folder()
            acquire_lock(self.path)
        else:
            if where := step_differences(self._resumed.key["step"], key["step"]):
                message = (
                    f"the run has another step: {where}. Pass resume the step= with which it "
                    "started."
                )
                raise ValueError(see(message, "stopped-run"))
            acquire_lock(self.path)
            # A step may start from the tuning of an earlier run, as NUTS does.
            key["step_before"] = step.sampling_state = self._resumed.key["step_before"]
            replays = [self._resumed.replay(chain) for chain in range(chains)]
        write_tree(self.path / "run.npz", key)
        self._restore_signal = exit_on_sigterm(self, self.path)
        self.run = RunFiles(self.path)
        evaluate = PointEvaluator(self.model, named)
        self.straces: list[ChainTrace] = []
        for chain in range(chains):
            trace = ChainTrace(
                self.run.chain(chain),
                chain,
                tune + draws,
                evaluate=evaluate,
                buffer=DrawBuffer([v.name for v in named], kinds),
                schedule=self.schedule,
                replay=replays[chain],
                previous=self.straces[-1] if chain else None,
            )
            self.straces.append(trace)

    def _create_folder(self) -> None:
        if (self.path / "run.npz").exists():
            message = (
                f"{self.path} contains a run; resume it with "
                f"pymc_geodesic.resume({str(self.path)!r}, model), or choose another folder"
            )
            raise FileExistsError(see(message, "stopped-run"))
        self.path.mkdir(parents=True, exist_ok=True)

    # Interface that `pymc.sample` uses after sampling.

    def split_warmup_groups(self) -> None:
        """Do nothing: warm-up draws are the first ones."""

    @property
    def _sampling_state(self) -> Any:
        counts = np.array([self.run.chain(c).count() for c in range(len(self.straces))])
        return SimpleNamespace(draw_idx=counts, global_warnings=[])

    @property
    def posterior(self) -> Any:
        """Object whose ``draw`` has the length that PyMC reports."""
        return SimpleNamespace(draw=range(self.n_draws))

    def to_inferencedata(self, save_warmup: bool = False, eager: bool = True) -> Any:
        """Read all draws from the disk; see `open_run`."""
        self._restore_signal()
        release_lock(self.path)
        self.run = RunFiles(self.path)
        done = sum(self._sampling_state.draw_idx)
        asked = len(self.straces) * (self.tuning_steps + self.n_draws)
        if done < asked:
            message = (
                f"the run was stopped after {done} of {asked} draws, tuning included; all are "
                f"kept. {resume_instruction(self.path)}"
            )
            warnings.warn(see(message, "stopped-run"), stacklevel=2)
        tree = data_tree(self.run, model=self.model, save_warmup=save_warmup)
        if self._resumed is None and "posterior" in tree:
            tree["posterior"].attrs["sampling_time"] = self.sampling_time  # set by `pymc.sample`
        return tree


def _labels(model: pm.Model) -> dict[str, Any]:
    """Coordinates and dimensions for ArviZ."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    return {
        "coords": {
            name: array.astype(str) if array.dtype.hasobject else array
            for name, values in coords.items()
            for array in [np.asarray(values)]
        },
        "dims": {name: list(of) for name, of in dims.items() if None not in of},
    }
