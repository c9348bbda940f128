"""Sampling of a model whose rows lie in shards on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
from pytensor.graph import ancestors
from xarray import Dataset, DataTree

from pymc_geodesic.arguments import check_count
from pymc_geodesic.densities.variables import ManifoldVariable, product_of
from pymc_geodesic.distributed.heterogeneity import (
    Heterogeneity,
    compare_gradients,
    compare_topics,
)
from pymc_geodesic.distributed.laplace import (
    approximate_posterior,
    configure_shards,
    point_to_position,
    position_to_point,
    variables_with_charts,
)
from pymc_geodesic.distributed.shard_actor import Job, ShardActor
from pymc_geodesic.distributed.shard_counts import common_counts, compare_counts
from pymc_geodesic.distributed.shards import Shard, StepSpec, step_spec, validate_shards
from pymc_geodesic.distributed.visits import (
    ProgressBars,
    Visit,
    VisitDraws,
    VisitSchedule,
    default_visit_length,
    run_chains,
    validate_probabilities,
)
from pymc_geodesic.distributed.workers import WorkerPool, working_client
from pymc_geodesic.runs.pymc_backend import (
    SamplerWarning,
    WarningType,
    coords_and_dims_for_inferencedata,
    is_transformed_name,
    log_warnings,
    run_convergence_checks,
)
from pymc_geodesic.sparse import get_containers
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

    The rows are not sent between machines. Chains visit the shards, several at once, and only
    their states are sent. In shard s, visited with probability f_s, minibatches of n of its N_s
    rows estimate

    .. math::

        \nabla \log p(x) + \frac{N_s}{f_s n} \sum_{i \in b} \nabla \log p(y_i \mid x)
        + \sum_t \nabla \log q_t(x) - \frac{1}{f_s} \nabla \log q_s(x) ,

    the second term with the control variates of the step. The last two terms are the conducive
    gradient: the surrogates q_s, quadratic in x, are fitted once to the likelihood of each shard
    near the posterior mode, and approximate the gradients of the other shards.

    For proportions and positive numbers `SCIR` with ``control_variates=True`` does the same with
    counts n_s: those of all shards at a fixed point ω*, and the difference to it in the shard,

    .. math::

        \sum_t n_t(\omega^*) + \frac{1}{f_s} \bigl(\hat n_s(\omega) - \hat n_s(\omega^*)\bigr) .

    Topics of documents (`topics.lda`) are sampled by `SCIR` or `SGRLD` with ``local=`` and
    ``conducive=False``. The proportions of documents stay on the workers. They restart in each
    visit at their prior mean.

    Parameters
    ----------
    model : pymc.Model or None
        Its `pymc.Data` containers hold a few rows of the right type, whose values are not used; by
        default the model of the context.
    step : step method, class or functools.partial
        ``SGGMC(batch_size=100, minibatch=["X", "y"])`` or another step with minibatches, which
        every worker constructs anew, or a `functools.partial` of its class, for which the model
        may have fewer rows than a minibatch.
    client : distributed.Client, optional
        By default a local cluster is started, with one single-threaded process per core.
    shards : list of mappings or functions
        The rows of each shard: a mapping from names of data containers to arrays, paths of
        ``.npy`` files or functions, or a function that returns such a mapping; for `SparseData`,
        sparse matrices or ``.npz`` files of `scipy.sparse.save_npz`. Paths are read and
        functions called by the worker that holds the shard, so that rows need not be sent. They
        must return the same rows each time.
    draws, tune, chains : int
        As in `pymc.sample`.
    conducive : bool, default True
        Whether to add the conducive gradient. Without it the method is DSGLD, which is valid for
        homogeneous shards.
    visit : int, optional
        Draws per visit. By default about 50, and such that all shards are visited equally often
        and at least twice; with ``local=`` one.
    probabilities : sequence of float, optional
        f_s. Shards are then drawn independently with these probabilities; by default all are
        visited once per cycle, in a random order.
    random_seed : int, optional
        The same seed gives the same draws with any number of workers, also if workers are lost.
    progressbar, discard_tuned_samples, compute_convergence_checks : bool
        As in `pymc.sample`.

    Returns
    -------
    DataTree
        As returned by `pymc.sample`, without observed data and variables that depend on rows. The
        sample stat ``shard`` is the shard of each draw. The group ``shards`` has for each shard
        its number of rows ``n_rows``, the number of ``reloads`` after a worker was lost, and if
        gradients or counts can be compared ``shift``, the shift of the mean of its target in
        posterior standard deviations. Its attribute ``bytes_per_draw`` is the traffic per draw,
        and ``variance_inflation`` the relative increase of the variance of topics.

    Raises
    ------
    ImportError
        If dask.distributed is not installed.
    ValueError
        If the step cannot be constructed on workers, variables are left to other steps, shards
        do not match the model, proportions are sampled with ``conducive=True`` and without control
        variates, or ``local=`` is used with either of the two.
    LostWorkerError
        If workers are lost repeatedly.

    Warns
    -----
    Through PyMC's logger: warnings of the step, and heterogeneous shards.

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
    shards = validate_shards(shards)
    for name, value in (("draws", draws), ("chains", chains), ("visit", visit)):
        check_count(name, value)
    spec = step_spec(step, model)
    variables = spec.variables(model)
    is_langevin = issubclass(spec.step_class, SGGMC | gSGNHT | SGLD | SSGNHT)
    expands = is_langevin and not variables_with_charts(variables)
    counts = issubclass(spec.step_class, SCIR) and bool(spec.arguments.get("control_variates"))
    _validate_conducive(spec, variables, expands=expands, counts=counts, conducive=conducive)
    seeds = [int(seed) for seed in np.random.SeedSequence(random_seed).generate_state(5)]
    f = validate_probabilities(probabilities, len(shards))
    local = bool(spec.local_names)
    visit = visit or (1 if local else default_visit_length(draws, len(shards)))
    schedule = VisitSchedule(
        len(shards), chains, tune, draws, visit, seeds[0], f, long_first_visit=not local
    )
    visits = [schedule.visits(chain) for chain in range(chains)]
    points = [model.initial_point(random_seed=seeds[1] + chain) for chain in range(chains)]
    start, heterogeneity = points[0], None
    job = cloudpickle.dumps(Job(model, spec, expands, counts))
    f = schedule.probabilities
    with working_client(client, len(shards)) as working:
        actors = [(job, shard, float(f[s])) for s, shard in enumerate(shards)]
        pool = WorkerPool(working, ShardActor, actors)
        try:
            if expands:
                approximation = approximate_posterior(
                    pool, variables, point_to_position(variables, start)
                )
                positions = approximation.draw_starts(
                    product_of(variables), chains, np.random.default_rng(seeds[2])
                )
                points = [position_to_point(variables, x, start) for x in positions]
                configure_shards(
                    pool, approximation, variables, f, (tune, draws), conducive=conducive
                )
            else:
                common = common_counts(pool, start) if counts else None
                pool.configure_all([(common, None, tune, draws)] * len(shards))
            with ProgressBars(chains, tune + draws, shown=progressbar) as bars:
                found = run_chains(pool, visits, points, seeds[3], bars.advance)
            if expands:
                heterogeneity = compare_gradients(
                    pool, approximation, variables, f, found, conducive=conducive
                )
            elif common is not None:
                heterogeneity = compare_counts(pool, common, f, found)
            elif local:
                heterogeneity = compare_topics(
                    pool, variables[0], f, found, seeds[4], cycles=probabilities is None
                )
            report = _report(pool, heterogeneity, chains * (tune + draws))
        finally:
            pool.close()
    _log_warnings(found, heterogeneity)
    tree = _data_tree(model, spec, visits, found, tune=tune, save_warmup=not discard_tuned_samples)
    tree["shards"] = DataTree(report)
    if compute_convergence_checks:
        log_warnings(run_convergence_checks(tree, model))
    return tree


def _validate_conducive(
    spec: StepSpec,
    variables: Sequence[ManifoldVariable],
    *,
    expands: bool,
    counts: bool,
    conducive: bool,
) -> None:
    """Validate that the step supports what ``conducive=`` requests."""
    name = spec.step_class.__name__
    if counts and not conducive:
        raise ValueError(
            f"the control variates of {name} count the rows of all shards, which is what "
            "conducive=True does; leave conducive= out, or control_variates="
        )
    if conducive and spec.local_names:
        raise ValueError(
            f"there are no conducive gradients for the words of documents (local="
            f"{spec.local_names}), whose topics are drawn; pass conducive=False, and documents "
            "that were shuffled over the shards"
        )
    if conducive and not (expands or counts):
        remedy = "pass conducive=False"
        if issubclass(spec.step_class, SCIR):
            remedy = f"pass control_variates=True to {name}, or conducive=False"
        raise ValueError(
            f"there are no conducive gradients for {name} with {[v.name for v in variables]}: they "
            "need a step with gradients, and variables that are neither proportions nor on a "
            f"half-line; {remedy}"
        )


def _report(pool: WorkerPool, heterogeneity: Heterogeneity | None, n_draws: int) -> Dataset:
    """Rows, reloads and shift of each shard, and the traffic."""
    report = Dataset(
        {"n_rows": ("shard", pool.map("count_rows")), "reloads": ("shard", pool.reloads)}
    )
    if heterogeneity is not None:
        report["shift"] = ("shard", heterogeneity.shifts)
        if heterogeneity.variance_inflation is not None:
            report.attrs["variance_inflation"] = heterogeneity.variance_inflation
    sent = pool.bytes_sent["visit"] + pool.bytes_sent["answer of visit"]
    report.attrs["bytes_per_draw"] = sent / n_draws
    return report


def _log_warnings(
    chains: Sequence[Sequence[VisitDraws]], heterogeneity: Heterogeneity | None
) -> None:
    """Log the warnings of the steps, and that of heterogeneous shards."""
    warnings = [warning for visits in chains for one in visits for warning in one.warnings]
    if heterogeneity is not None and heterogeneity.warning is not None:
        warnings.append(SamplerWarning(WarningType.BAD_PARAMS, heterogeneity.warning, "warn"))
    log_warnings(warnings)


def _data_tree(
    model: pm.Model,
    spec: StepSpec,
    schedule: Sequence[Sequence[Visit]],
    chains: Sequence[Sequence[VisitDraws]],
    *,
    tune: int,
    save_warmup: bool,
) -> DataTree:
    """Draws of all chains, as returned by `pymc.sample`.

    Local variables, and variables computed from rows, are left out.

    Parameters
    ----------
    model : pymc.Model
    spec : StepSpec
    schedule : sequence of sequence of Visit
        Visits of each chain.
    chains : sequence of sequence of VisitDraws
        Draws of these visits.
    tune : int
        Number of warm-up draws.
    save_warmup : bool
        Whether to include them.
    """
    rows = {container for name in spec.row_names for container in get_containers(model, name)}
    rows |= {model.rvs_to_values[model[name]] for name in spec.local_names}
    inputs_of_point = [value for value in model.value_vars if value not in rows]
    named = [
        variable
        for variable in model.unobserved_value_vars
        if not is_transformed_name(variable.name) and rows.isdisjoint(ancestors([variable]))
    ]
    evaluate = model.compile_fn(
        inputs=inputs_of_point, outs=named, point_fn=False, on_unused_input="ignore"
    )
    values, stats = [], []
    for planned, visits in zip(schedule, chains, strict=True):
        points = _joined([visit.values for visit in visits])
        inputs = [points[value.name] for value in inputs_of_point]
        drawn = [[np.array(v) for v in evaluate(*each)] for each in zip(*inputs, strict=True)]
        columns = [np.stack(column) for column in zip(*drawn, strict=True)]
        values.append(dict(zip([v.name for v in named], columns, strict=True)))
        stats_of_visits = [
            visit.stats | {"shard": np.full(at.n_draws, at.shard)}
            for at, visit in zip(planned, visits, strict=True)
        ]
        stats.append(_joined(stats_of_visits))
    parts = {"": slice(tune, None)} | ({"warmup_": slice(0, tune)} if save_warmup else {})
    groups: dict[str, Mapping[str, np.ndarray]] = {}
    for prefix, part in parts.items():
        groups[f"{prefix}posterior"] = _stacked(values, part)
        groups[f"{prefix}sample_stats"] = _stacked(stats, part)
    coords, dims = coords_and_dims_for_inferencedata(model)
    kept = {v.name: list(dims[v.name]) for v in named if None not in dims.get(v.name, [None])}
    used = {dim for of in kept.values() for dim in of}
    tree = az.from_dict(
        groups,
        coords={name: values for name, values in coords.items() if name in used},
        dims=kept,
        save_warmup=save_warmup,
    )
    for group in groups:
        tree[group].attrs["tuning_steps"] = tune
    return tree


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _stacked(chains: Sequence[Mapping[str, np.ndarray]], part: slice) -> dict[str, Any]:
    return {name: np.stack([chain[name][part] for chain in chains]) for name in chains[0]}
