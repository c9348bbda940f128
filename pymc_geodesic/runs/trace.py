"""The trace that writes a run to disk while it is going."""

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
from pymc_geodesic.runs.chain import ChainTrace, Replay
from pymc_geodesic.runs.columns import Columns
from pymc_geodesic.runs.encoding import write_tree
from pymc_geodesic.runs.ending import end_run_with, how_to_go_on
from pymc_geodesic.runs.identity import identity_of
from pymc_geodesic.runs.lock import hold, let_go
from pymc_geodesic.runs.pymc_parts import (
    KnowsTheStep,
    coords_and_dims_for_inferencedata,
    is_transformed_name,
)
from pymc_geodesic.runs.reading import FORMAT, RunFiles, tree_of
from pymc_geodesic.runs.recipe import recipe_of, same_steps
from pymc_geodesic.runs.values import ValuesAt


class CheckpointTrace(KnowsTheStep):
    """Trace of `pymc.sample` that keeps a run on disk, from where it can go on.

    Each chain writes segments of draws and sample stats, and after each the whole state of its step
    methods, in the process that draws it. A process that is killed loses what it has drawn since
    the last record; `resume` goes on from there, and its draws are, bit for bit, those of a run
    that was never stopped.

    Parameters
    ----------
    path : path-like
        Folder of the run; it is made.
    every : float, default 5
        Least number of seconds between two records of a chain, at least 0. Where a record takes
        long they are fewer, so that they take a hundredth of the time at most.

    Raises
    ------
    ValueError
        If `every` is negative or not finite.
    FileExistsError
        In `pymc.sample`, if the folder holds a run already.
    TypeError
        In `pymc.sample`, if a step method has a state that cannot be written.

    See Also
    --------
    resume : goes on with the run.
    open_run : reads the draws, also while it is going.

    Notes
    -----
    An interrupt (Ctrl-C, or `KeyboardInterrupt` of a callback) stops the whole run, with
    ``cores=1`` too, where PyMC without this trace ends one chain and samples the next ones.

    With ``cores=`` above 1, PyMC imports zarr before it lets processes write for themselves:
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

    def __init__(self, path: str | Path, every: float = 5.0) -> None:
        # Not those of the base: it would open a store of another kind.
        if not (every >= 0.0 and math.isfinite(every)):
            raise ValueError(f"every={every!r} must be a number of seconds, at least 0")
        self.path = Path(path)
        self.every = float(every)
        self._goes_on: RunFiles | None = None

    @classmethod
    def _of(cls, run: RunFiles) -> CheckpointTrace:
        """Make the trace of a run that goes on."""
        trace = cls(run.path, run.key["every"])
        trace._goes_on = run
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
        """Begin or go on; `pymc.sample` calls this before the first chain begins."""
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
            "every": self.every,
            "var_names": None if vars is None else [v.name for v in named],
            "stats": [{name: kind.str for name, kind in stats.items()} for stats in kinds],
            "step": recipe_of(step),
            "step_before": step.sampling_state,
            "identity": identity_of(self.model),
            "labels": _labels(self.model),
        }
        replays: list[Replay | None] = [None] * chains
        if self._goes_on is None:
            self._make_folder()
            hold(self.path)
        else:
            if where := same_steps(self._goes_on.key["step"], key["step"]):
                message = (
                    f"the run is of another step: {where}. Pass resume the step= it began with."
                )
                raise ValueError(see(message, "stopped-run"))
            hold(self.path)
            # What a step learnt in a run before may be where this one begins, as NUTS does.
            key["step_before"] = step.sampling_state = self._goes_on.key["step_before"]
            replays = [self._goes_on.replay(chain) for chain in range(chains)]
        write_tree(self.path / "run.npz", key)
        self._give_signal_back = end_run_with(self, self.path)
        self.run = RunFiles(self.path)
        values_at = ValuesAt(self.model, named)
        self.straces: list[ChainTrace] = []
        for chain in range(chains):
            trace = ChainTrace(
                self.run.chain(chain),
                chain,
                tune + draws,
                values_at=values_at,
                columns=Columns([v.name for v in named], kinds),
                every=self.every,
                replay=replays[chain],
                previous=self.straces[-1] if chain else None,
            )
            self.straces.append(trace)

    def _make_folder(self) -> None:
        if (self.path / "run.npz").exists():
            message = (
                f"{self.path} holds a run; go on with pymc_geodesic.resume({str(self.path)!r}, "
                "model), or choose another folder"
            )
            raise FileExistsError(see(message, "stopped-run"))
        self.path.mkdir(parents=True, exist_ok=True)

    # What `pymc.sample` asks for when it has ended.

    def split_warmup_groups(self) -> None:
        """Do nothing: tuning is told from its place."""

    @property
    def _sampling_state(self) -> Any:
        counts = np.array([self.run.chain(c).count() for c in range(len(self.straces))])
        return SimpleNamespace(draw_idx=counts, global_warnings=[])

    @property
    def posterior(self) -> Any:
        """What PyMC reads the number of draws from."""
        return SimpleNamespace(draw=range(self.n_draws))

    def to_inferencedata(self, save_warmup: bool = False, eager: bool = True) -> Any:
        """Read all draws from the disk; see `open_run`."""
        self._give_signal_back()
        let_go(self.path)
        self.run = RunFiles(self.path)
        done = sum(self._sampling_state.draw_idx)
        asked = len(self.straces) * (self.tuning_steps + self.n_draws)
        if done < asked:
            message = (
                f"the run was stopped after {done} of {asked} draws, tuning among them; all are "
                f"kept. {how_to_go_on(self.path)}"
            )
            warnings.warn(see(message, "stopped-run"), stacklevel=2)
        return tree_of(self.run, model=self.model, save_warmup=save_warmup)


def _labels(model: pm.Model) -> dict[str, Any]:
    """Coordinates and dimensions, as ArviZ takes them."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    return {
        "coords": {
            name: array.astype(str) if array.dtype.hasobject else array
            for name, values in coords.items()
            for array in [np.asarray(values)]
        },
        "dims": {name: list(of) for name, of in dims.items() if None not in of},
    }
