"""Going on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_geodesic.runs.identity import check_identity, identity_of
from pymc_geodesic.runs.reading import RunFiles, tree_of
from pymc_geodesic.runs.recipe import AUTOMATIC, make_step
from pymc_geodesic.runs.trace import CheckpointTrace

_OF_THE_RUN = ("tune", "chains", "random_seed", "trace", "var_names", "nuts_sampler")


def resume(
    path: str | Path,
    model: pm.Model | None = None,
    draws: int | None = None,
    *,
    step: Any = None,
    any_version: bool = False,
    **kwargs: Any,
) -> DataTree:
    """Go on with a run that `CheckpointTrace` has written.

    Chains go on from their last record, those that have not begun begin, and those that are done
    are read. The draws are, bit for bit, those of a run that was never stopped.

    Parameters
    ----------
    path : path-like
        Folder of the run.
    model : pymc.Model, optional
        The model of the run with its data; by default that of the context.
    draws : int, optional
        Draws that a chain is to have after tuning; by default as many as were asked for.
    step : step method or list of them, optional
        The step method with which the run began. It is made again from its arguments, but for those
        that a file cannot hold, such as ``batches=``.
    any_version : bool, default False
        Go on with other versions of packages; draws may then differ from those of a run that was
        never stopped.
    **kwargs
        Arguments of `pymc.sample` that change no draw, such as ``cores`` and ``progressbar``, and
        ``initvals`` where the run began with it.

    Returns
    -------
    DataTree
        All draws of the run, as `pymc.sample` returns them.

    Raises
    ------
    ValueError
        If the model, its data, the step or the versions of packages are not those of the run; it
        names what differs. If the run has more draws than `draws`.
    FileNotFoundError
        If there is no run.
    BlockingIOError
        If another process is drawing for the run.

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
    if taken := [name for name in _OF_THE_RUN if name in kwargs]:
        raise TypeError(f"resume takes no {', '.join(taken)}: they are those of the run")
    check_identity(run.key["identity"], identity_of(model), any_version=any_version)
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
        return tree_of(run, model=model, save_warmup=save_warmup)
    recipe = run.key["step"]
    if step is None and recipe.get(AUTOMATIC):
        kwargs["nuts"] = {**recipe["kept"], **kwargs.get("nuts", {})}
        for own in ("initial_point", "compile_kwargs"):
            kwargs["nuts"].pop(own, None)
    elif step is None:
        step = make_step(recipe, model)
    with model:
        return pm.sample(
            draws=draws,
            tune=tune,
            chains=chains,
            step=step,
            random_seed=_seed(run),
            var_names=run.key["var_names"],
            nuts_sampler="pymc",
            trace=CheckpointTrace._of(run),
            **kwargs,
        )


def _seed(run: RunFiles) -> np.random.Generator:
    """Make the generator from which `pymc.sample` made those of the chains.

    Raises
    ------
    ValueError
        If no chain has begun.
    """
    for chain in range(run.key["chains"]):
        start = run.chain(chain).read_start()
        if start is not None:
            state, depth = start.state, 1
            while hasattr(state, "methods"):
                state, depth = state.methods[0], depth + 1
            seeds = dict(state.rng.seed_seq_state)
            key = list(seeds.pop("spawn_key"))
            # Each chain takes a child of this one, and of that, each step among several another.
            mine = key[len(key) - depth]
            sequence = np.random.SeedSequence(
                entropy=seeds["entropy"],
                spawn_key=tuple(key[: len(key) - depth]),
                pool_size=seeds["pool_size"],
                n_children_spawned=mine - chain,
            )
            kind = getattr(np.random, state.rng.bit_generator_state["bit_generator"])
            return np.random.Generator(kind(sequence))
    raise ValueError(f"no chain of the run in {run.path} has begun; remove it and begin again")
