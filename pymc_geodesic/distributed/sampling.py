"""Sampling with rows that stay on many machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from xarray import Dataset, DataTree

from pymc_geodesic.arguments import check_count
from pymc_geodesic.densities.variables import ManifoldVariable, product_of
from pymc_geodesic.distributed.agreement import Agreement, judged
from pymc_geodesic.distributed.chains import travel
from pymc_geodesic.distributed.cluster import working_client
from pymc_geodesic.distributed.crew import Crew
from pymc_geodesic.distributed.draws import tree_of
from pymc_geodesic.distributed.positions import point_of, position_of, variables_with_charts
from pymc_geodesic.distributed.progress import Lines
from pymc_geodesic.distributed.pymc_parts import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
)
from pymc_geodesic.distributed.recipe import StepRecipe, recipe_for
from pymc_geodesic.distributed.resident import Job, VisitDraws
from pymc_geodesic.distributed.schedule import Plan, checked_probabilities, usual_visit
from pymc_geodesic.distributed.settling import common_centre, last_points, settle, shifts_at
from pymc_geodesic.distributed.shard_counts import common_counts, shifts_of_counts
from pymc_geodesic.distributed.shard_topics import agreement_on_topics
from pymc_geodesic.distributed.shards import Shard, check_shards
from pymc_geodesic.steps.gsgnht import gSGNHT
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sggmc import SGGMC
from pymc_geodesic.steps.sgld import SGLD
from pymc_geodesic.steps.ssgnht import SSGNHT


def sample(
    model: pm.Model | None,
    step: Any,
    client: Any = None,
    *,
    shards: Sequence[Shard],
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    conducive: bool = True,
    visit: int | None = None,
    probabilities: Sequence[float] | None = None,
    random_seed: int | None = None,
    progressbar: bool = True,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
) -> DataTree:
    r"""Sample a model whose rows lie in shards on the workers of a Dask cluster.

    Rows stay where they are. Chains visit the shards, several at once, and only their states
    travel. In shard s, visited with probability f_s, minibatches of n of its N_s rows estimate

    .. math::

        \nabla \log p(x) + \frac{N_s}{f_s n} \sum_{i \in b} \nabla \log p(y_i \mid x)
        + \sum_t \nabla \log q_t(x) - \frac{1}{f_s} \nabla \log q_s(x) ,

    the second term with the control variates of the step. The last two are the conducive gradient:
    the surrogates q_s, quadratic in x, are fitted once to the likelihood of each shard at a centre
    that all shards have found together, so that they bring to each shard what the others say.

    For proportions and positive numbers `SCIR` with ``control_variates=True`` does the same with
    counts n_s: those of all shards at one place ω*, and their change in the shard,

    .. math::

        \sum_t n_t(\omega^*) + \frac{1}{f_s} \bigl(\hat n_s(\omega) - \hat n_s(\omega^*)\bigr) .

    Topics of documents (`topics.lda`) go from shard to shard by `SCIR` or `SGRLD` with ``local=``
    and ``conducive=False``. The proportions of documents stay on the workers and begin anew in each
    visit, at the mean of their prior.

    Parameters
    ----------
    model : pymc.Model or None
        Its `pymc.Data` containers hold a few rows of the right type, which are not looked at; None
        takes the model of the context.
    step : step method, class or functools.partial
        ``SGGMC(batch_size=100, minibatch=["X", "y"])`` or another step with minibatches, which
        is made again on every worker, or a `functools.partial` of its class, which needs not
        as many rows in the model as a minibatch has.
    client : distributed.Client, optional
        By default a cluster of this machine is started, a process with one thread for each core.
    shards : list of mappings or functions
        The rows of each shard: a mapping from names of data containers to arrays, paths of
        ``.npy`` files or functions, or a function that returns such a mapping; for `SparseData`,
        sparse matrices or ``.npz`` files of `scipy.sparse.save_npz`. Paths are read and
        functions called by the worker that holds the shard, so that rows need not pass through
        here; what they return must always be the same.
    draws, tune, chains : int
        As `pymc.sample` has them.
    conducive : bool, default True
        Without the conducive gradient this is DSGLD, right for shards that are like each other.
    visit : int, optional
        Draws of a visit. By default about 50, and as many as let every shard be visited equally
        often and at least twice; with ``local=`` one.
    probabilities : sequence of float, optional
        f_s. Shards are then drawn independently with these; by default all come equally often, in
        an order that is drawn anew for each cycle.
    random_seed : int, optional
        The same seed gives the same draws, on any number of workers, lost ones too.
    progressbar, discard_tuned_samples, compute_convergence_checks : bool
        As `pymc.sample` has them.

    Returns
    -------
    DataTree
        As `pymc.sample` returns it, without observed data and what belongs to rows or is computed
        from them. The sample stat ``shard`` says where a draw was made. The group ``shards`` has
        for each its number of rows ``n_rows``, how often it was loaded again as ``reloads``, and
        where there are gradients or counts to compare ``shift``, by how many standard deviations
        its own target is displaced; its attribute ``bytes_per_draw`` is what travelled for each
        draw, and ``variance_inflation`` what different documents add to the variance of topics.

    Raises
    ------
    ImportError
        Without dask.
    ValueError
        For a step that cannot be made on workers, variables that are left to other steps, shards
        that do not fit the model, proportions with ``conducive=True`` and without control
        variates, or ``local=`` with either of the two.
    LostWorkerError
        If workers are lost again and again.

    Warns
    -----
    Through PyMC's logger: what the step has to say, and shards that are too unlike.

    References
    ----------
    Ahn, Shahbaba, Welling (2014), Distributed stochastic gradient MCMC, section 3.
    El Mekkaoui, Mesquita, Blomstedt, Kaski (2021), Federated stochastic gradient Langevin dynamics,
    section 3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> from distributed import Client
    >>> y = np.random.default_rng(1).normal(size=(2, 500)) + [[2.0], [-2.0]]
    >>> with pm.Model() as model:
    ...     rows = pm.Data("rows", y[0])
    ...     mu = pm.Normal("mu", sigma=10.0)
    ...     _ = pm.Normal("y", mu, 1.0, observed=rows)
    ...     step = pg.SGLD(batch_size=50, minibatch="rows", step_size=1e-4)
    >>> with Client(processes=False, n_workers=1, dashboard_address=":0") as client:
    ...     idata = pg.distributed.sample(
    ...         model, step, client, shards=[{"rows": part} for part in y], draws=200, tune=0,
    ...         chains=1, random_seed=1, progressbar=False, compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["mu"].mean() - y.mean()) < 0.05)
    True
    """
    model = pm.modelcontext(model)
    shards = check_shards(shards)
    for name, value in (("draws", draws), ("chains", chains), ("visit", visit)):
        check_count(name, value)
    recipe = recipe_for(step, model)
    variables = recipe.variables(model)
    is_langevin = issubclass(recipe.kind, SGGMC | gSGNHT | SGLD | SSGNHT)
    expands = is_langevin and not variables_with_charts(variables)
    counts = issubclass(recipe.kind, SCIR) and bool(recipe.arguments.get("control_variates"))
    _check_kind(recipe, variables, expands=expands, counts=counts, conducive=conducive)
    seeds = [int(seed) for seed in np.random.SeedSequence(random_seed).generate_state(5)]
    f = checked_probabilities(probabilities, len(shards))
    local = bool(recipe.local_names)
    visit = visit or (1 if local else usual_visit(draws, len(shards)))
    plan = Plan(len(shards), chains, tune, draws, visit, seeds[0], f, stays=not local)
    plans = [plan.of_chain(chain) for chain in range(chains)]
    points = [model.initial_point(random_seed=seeds[1] + chain) for chain in range(chains)]
    start, agreement = points[0], None
    with working_client(client, len(shards)) as working:
        job = Job(model, recipe, expands, counts)
        crew = Crew(working, job, shards, list(plan.probabilities))
        try:
            if expands:
                centre = common_centre(crew, variables, position_of(variables, start))
                places = centre.starts(
                    product_of(variables), chains, np.random.default_rng(seeds[2])
                )
                points = [point_of(variables, place, start) for place in places]
                lengths = (tune, draws)
                settle(crew, centre, variables, plan.probabilities, lengths, conducive=conducive)
            else:
                common = common_counts(crew, start) if counts else None
                crew.settle_all([(common, None, tune, draws)] * len(shards))
            with Lines(chains, tune + draws, shown=progressbar) as lines:
                visits = travel(crew, plans, points, seeds[3], lines.advance)
            if expands:
                shifts = shifts_at(crew, centre, variables, plan.probabilities, visits)
                agreement = judged(shifts, conducive=conducive)
            elif common is not None:
                last = last_points(visits)
                shifts = shifts_of_counts(crew, common, plan.probabilities, last)
                agreement = judged(shifts, conducive=conducive)
            elif local:
                agreement = agreement_on_topics(
                    crew, variables[0], plan.probabilities, visits, seeds[4], cycles=f is None
                )
            report = _report(crew, agreement, chains * (tune + draws))
        finally:
            crew.close()
    _warn(visits, agreement)
    tree = tree_of(
        model,
        recipe.row_names,
        recipe.local_names,
        plans,
        visits,
        tune=tune,
        save_warmup=not discard_tuned_samples,
    )
    tree["shards"] = DataTree(report)
    if compute_convergence_checks:
        log_warnings(run_convergence_checks(tree, model))
    return tree


def _check_kind(
    recipe: StepRecipe,
    variables: Sequence[ManifoldVariable],
    *,
    expands: bool,
    counts: bool,
    conducive: bool,
) -> None:
    """Refuse what the others cannot be told of, and what would count one shard for all."""
    name = recipe.kind.__name__
    if counts and not conducive:
        raise ValueError(
            f"the control variates of {name} count the rows of all shards, which is what "
            "conducive=True does; leave conducive= out, or control_variates="
        )
    if conducive and recipe.local_names:
        raise ValueError(
            f"there are no conducive gradients for the words of documents (local="
            f"{recipe.local_names}), whose topics are drawn; pass conducive=False, and documents "
            "that were shuffled over the shards"
        )
    if conducive and not (expands or counts):
        remedy = "pass conducive=False"
        if issubclass(recipe.kind, SCIR):
            remedy = f"pass control_variates=True to {name}, or conducive=False"
        raise ValueError(
            f"there are no conducive gradients for {name} with {[v.name for v in variables]}: they "
            "need a step with gradients, and variables that are neither proportions nor on a "
            f"half-line; {remedy}"
        )


def _report(crew: Crew, agreement: Agreement | None, n_draws: int) -> Dataset:
    """Say of each shard how many rows it has, and what became of it."""
    report = Dataset({"n_rows": ("shard", crew.map("count")), "reloads": ("shard", crew.reloads)})
    if agreement is not None:
        report["shift"] = ("shard", agreement.shifts)
        if agreement.variance_inflation is not None:
            report.attrs["variance_inflation"] = agreement.variance_inflation
    travelled = crew.bytes_sent["visit"] + crew.bytes_sent["answer of visit"]
    report.attrs["bytes_per_draw"] = travelled / n_draws
    return report


def _warn(chains: Sequence[Sequence[VisitDraws]], agreement: Agreement | None) -> None:
    """Pass on what steps have to say, and say whether shards are too unlike."""
    warnings = [warning for visits in chains for one in visits for warning in one.warnings]
    if agreement is not None and agreement.complaint is not None:
        warnings.append(SamplerWarning(WarningType.BAD_PARAMS, agreement.complaint, "warn"))
    log_warnings(warnings)
