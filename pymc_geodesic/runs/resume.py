"""Continuation of a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_geodesic.runs.identity import AUTOMATIC, build_step, check_identity, compute_identity
from pymc_geodesic.runs.reading import RunFiles, data_tree
from pymc_geodesic.runs.trace import CheckpointTrace

_FIXED = ("tune", "chains", "random_seed", "trace", "var_names", "nuts_sampler")
"""Arguments of `pymc.sample` that the run determines."""


def resume(
    path: str | Path,
    model: pm.Model | None = None,
    draws: int | None = None,
    *,
    step: Any = None,
    any_version: bool = False,
    **kwargs: Any,
) -> DataTree:
    """Continue a run that `CheckpointTrace` wrote.

    Chains continue from their last checkpoint, chains that have not started start, and complete
    chains are read. The draws are bit-identical to those of an uninterrupted run.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    model : pymc.Model, optional
        The model of the run with its data; by default the model of the context.
    draws : int, optional
        Draws per chain after tuning; by default as many as the run requested.
    step : step method or list of them, optional
        The step method with which the run started. It is required if it has arguments that cannot
        be serialized, such as ``batches=``; otherwise it is constructed from the run.
    any_version : bool, default False
        Whether to continue with other versions of packages; draws may then differ from those of an
        uninterrupted run.
    **kwargs
        Arguments of `pymc.sample` that do not change draws, such as ``cores`` and ``progressbar``,
        and ``initvals`` if the run started with it.

    Returns
    -------
    DataTree
        All draws of the run, as returned by `pymc.sample`.

    Raises
    ------
    ValueError
        If the model, its data, the step or the versions of packages differ from those of the run,
        or if the run has more draws than `draws`.
    FileNotFoundError
        If there is no run.
    BlockingIOError
        If another process samples the run.

    See Also
    --------
    open_run : reads the draws.

    Examples
    --------
    >>> import tempfile
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> path = tempfile.mkdtemp() + "/run"
    >>> quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    ...     step = pg.SGGMC(compile_kwargs={"mode": "FAST_COMPILE"})
    ...     trace = pg.CheckpointTrace(path)
    ...     idata = pm.sample(20, tune=9, chains=1, cores=1, step=step, trace=trace, **quiet)
    >>> longer = pg.resume(path, model, draws=30, cores=1, **quiet)
    >>> bool((longer.posterior["x"][:, :20].values == idata.posterior["x"].values).all())
    True
    """
    model = pm.modelcontext(model)
    run = RunFiles(Path(path))
    if taken := [name for name in _FIXED if name in kwargs]:
        raise TypeError(f"resume takes no {', '.join(taken)}: the run determines them")
    check_identity(run.key["identity"], compute_identity(model), any_version=any_version)
    tune, chains = run.key["tune"], run.key["chains"]
    draws = run.key["draws"] if draws is None else int(draws)
    counts = [run.chain(chain).read(warn=False).n for chain in range(chains)]
    if tune + draws < max(counts):
        raise ValueError(
            f"draws={draws}, but a chain of the run has {max(counts) - tune} already; ask for as "
            "many or more, and cut the DataTree that open_run returns"
        )
    if all(n == tune + draws for n in counts):
        save_warmup = not kwargs.get("discard_tuned_samples", True)
        return data_tree(run, model=model, save_warmup=save_warmup)
    serialized = run.key["step"]
    if step is None and serialized.get(AUTOMATIC):
        kwargs["nuts"] = {**serialized["kept"], **kwargs.get("nuts", {})}
        for unused in ("initial_point", "compile_kwargs"):
            kwargs["nuts"].pop(unused, None)
    elif step is None:
        step = build_step(serialized, model)
    with model:
        return pm.sample(
            draws=draws,
            tune=tune,
            chains=chains,
            step=step,
            random_seed=_seed(run),
            var_names=run.key["var_names"],
            nuts_sampler="pymc",
            trace=CheckpointTrace._resume(run),
            **kwargs,
        )


def _seed(run: RunFiles) -> np.random.Generator:
    """Restore the generator from which `pymc.sample` spawned those of the chains.

    Raises
    ------
    ValueError
        If no chain has started.
    """
    for chain in range(run.key["chains"]):
        start = run.chain(chain).read_start()
        if start is not None:
            state, depth = start.state, 1
            while hasattr(state, "methods"):
                state, depth = state.methods[0], depth + 1
            seeds = dict(state.rng.seed_seq_state)
            key = list(seeds.pop("spawn_key"))
            # Each chain spawns a child of it, and each of several steps a child of that.
            mine = key[len(key) - depth]
            sequence = np.random.SeedSequence(
                entropy=seeds["entropy"],
                spawn_key=tuple(key[: len(key) - depth]),
                pool_size=seeds["pool_size"],
                n_children_spawned=mine - chain,
            )
            kind = getattr(np.random, state.rng.bit_generator_state["bit_generator"])
            return np.random.Generator(kind(sequence))
    raise ValueError(
        f"no chain of the run in {run.path} has started; remove the folder and start again"
    )
