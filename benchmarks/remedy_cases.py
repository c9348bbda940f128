"""Small models that have each warning about draws, and the changes that the warnings recommend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

import pymc_geodesic as pg
from benchmarks import detectors
from pymc_geodesic.datasets import row_blocks


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with a known posterior.

    Attributes
    ----------
    model : pymc.Model
    rows : list of str
        Data containers with a row for each observation.
    standardize : callable
        Posterior → array, shape (chain, draw, ...), with mean 0 and standard deviation 1.
    start : dict
        Initial values near the posterior mean.
    """

    model: pm.Model
    rows: list[str]
    standardize: Callable[[xr.Dataset], np.ndarray]
    start: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """Arguments of a run.

    Attributes
    ----------
    change : str
        Text of the table.
    step : callable
        Problem → step method, within the model.
    problem : callable, optional
        Another problem than that of the case: the model written in another way.
    arguments : dict
        Arguments of `pymc.sample`. ``{"initvals": None}`` starts at `Problem.start`.
    """

    change: str
    step: Callable[[Problem], Any]
    problem: Callable[[], Problem] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A warning, a run that has it, and remedies.

    Attributes
    ----------
    name : str
    warning : str
        Part of the text of the warning.
    problem : callable
    before : Attempt
    remedies : tuple of Attempt
    seed : int
    """

    name: str
    warning: str
    problem: Callable[[], Problem]
    before: Attempt
    remedies: tuple[Attempt, ...]
    seed: int = 1


# --- models ---------------------------------------------------------------------------------------


def _of_known(known: detectors.Known, **start: Any) -> Problem:
    name = known.variable
    return Problem(known.model, known.rows, lambda p: known.standardise(p[name].values), start)


def _of_reference(
    model: pm.Model, rows: list[str], quantity: Callable[[xr.Dataset], np.ndarray], step: Any = None
) -> Problem:
    """Standardize by the means and standard deviations of a long run of NUTS, or another step."""
    with model:
        long = pm.sample(
            3000, tune=2000, chains=2, cores=1, random_seed=5, progressbar=False,
            step=step() if step is not None else pm.NUTS(target_accept=0.95),
            compute_convergence_checks=False,
        ).posterior  # fmt: skip
    draws = quantity(long)
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    start = {rv.name: long[rv.name].mean(("chain", "draw")).values for rv in model.free_RVs}
    return Problem(model, rows, lambda p: (quantity(p) - mean) / sd, start)


@functools.cache
def regression() -> Problem:
    """Linear regression with 5,000 rows and 6 coefficients."""
    known = detectors.regression()
    X, y = (known.model[name].get_value() for name in known.rows)
    return _of_known(known, b=np.linalg.lstsq(X, y)[0])


@functools.cache
def logistic() -> Problem:
    """Logistic regression with 5,000 rows and 6 coefficients."""
    return _of_known(detectors.logistic())


@functools.cache
def direction() -> Problem:
    """Mean direction on the sphere in five dimensions, with 5,000 rows."""
    return _of_known(detectors.direction())


def _normal_means(y: np.ndarray, total_size: int | None = None) -> Problem:
    """Three means with unit variance, by `pymc.Minibatch` where there is a total size."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0, shape=3)
        if total_size is None:
            pm.Normal("y_obs", mu, 1.0, observed=pm.Data("y", y))
        else:
            pm.Normal("y_obs", mu, 1.0, observed=pm.Minibatch(y, batch_size=100),
                      total_size=total_size)  # fmt: skip
    precision = len(y) + 0.01
    mean = y.sum(axis=0) / precision
    return Problem(model, ["y"], lambda p: (p["mu"].values - mean) * precision**0.5, {"mu": mean})


def _means_rows(n: int = 10_000) -> np.ndarray:
    return np.random.default_rng(1).normal(1.0, 1.0, size=(n, 3))


@functools.cache
def wrong_total_size() -> Problem:
    """10,000 rows that count as 500."""
    return _normal_means(_means_rows(), 500)


@functools.cache
def right_total_size() -> Problem:
    """10,000 rows by `pymc.Minibatch`."""
    return _normal_means(_means_rows(), 10_000)


@functools.cache
def full_data() -> Problem:
    """The same model with `pymc.Data`."""
    return _normal_means(_means_rows())


@functools.cache
def sorted_rows() -> Problem:
    """20,000 rows sorted by their values."""
    return _normal_means(np.sort(_means_rows(20_000), axis=0))


@functools.cache
def rare_indicators() -> Problem:
    """Linear regression with indicators that few of 20,000 rows have."""
    rng = np.random.default_rng(1)
    n = 20_000
    X = np.zeros((n, 8))
    X[:, :4] = rng.normal(size=(n, 4))
    for column, count in zip(range(4, 8), (4, 4, 8, 20), strict=True):
        X[rng.choice(n, count, replace=False), column] = 1.0
    y = X @ rng.normal(size=8) + rng.normal(size=n)
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 3.0, shape=8)
        pm.Normal("y_obs", pm.Data("X", X) @ w, 1.0, observed=pm.Data("y", y))
    precision = X.T @ X + np.eye(8) / 9.0
    mean, root = np.linalg.solve(precision, X.T @ y), np.linalg.cholesky(precision)
    return Problem(model, ["X", "y"], lambda p: (p["w"].values - mean) @ root, {"w": mean})


def _funnel(*, is_centered: bool) -> Problem:
    """V ~ N(0, 1.5) and nine x ~ N(0, e^v), without data; only v is compared."""
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 1.5)
        if is_centered:
            pm.Normal("x", 0.0, pm.math.exp(v), shape=9)
        else:
            pm.Deterministic("x", pm.Normal("z", shape=9) * pm.math.exp(v))
    return Problem(model, [], lambda p: p["v"].values[..., np.newaxis] / 1.5)


@functools.cache
def funnel() -> Problem:
    """Funnel, centered."""
    return _funnel(is_centered=True)


@functools.cache
def funnel_as_product() -> Problem:
    """Funnel, non-centered."""
    return _funnel(is_centered=False)


def _groups(*, is_centered: bool, n_rows: int = 200) -> tuple[pm.Model, list[str]]:
    """Eight groups with many rows and an unknown scale of their effects."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(8), n_rows)
    y = rng.normal(0.0, 2.0, 8)[group] + rng.normal(size=group.size)
    with pm.Model() as model:
        log_sd = pm.Normal("log_sd", 0.0, 2.0)
        sd = pm.math.exp(log_sd)
        if is_centered:
            effect = pm.Normal("effect", 0.0, sd, shape=8)
        else:
            effect = pm.Deterministic("effect", sd * pm.Normal("z", shape=8))
        pm.Normal("y_obs", effect[pm.Data("group", group)], 1.0, observed=pm.Data("y", y))
    return model, ["group", "y"]


def _scale_and_effects(posterior: xr.Dataset) -> np.ndarray:
    log_sd = posterior["log_sd"].values[..., np.newaxis]
    return np.concatenate([log_sd, posterior["effect"].values], axis=-1)


@functools.cache
def groups() -> Problem:
    """Groups with many rows, centered."""
    return _of_reference(*_groups(is_centered=True), _scale_and_effects)


@functools.cache
def groups_as_product() -> Problem:
    """Groups with many rows, non-centered, with the reference of the centered ones."""
    model, rows = _groups(is_centered=False)
    return Problem(model, rows, groups().standardize)


@functools.cache
def local_latents() -> Problem:
    """z_i ~ N(m, 1) for each of 120 rows, y_i ~ N(z_i, 1); m is compared."""
    y = np.random.default_rng(3).normal(0.7, 2.0**0.5, size=120)
    with pm.Model() as model:
        m = pm.Normal("m", 0.0, 10.0)
        z = pm.Normal("z", m, 1.0, shape=120)
        pm.Normal("x", z, 1.0, observed=pm.Data("y", y))
    precision = 60.0 + 0.01
    mean = 0.5 * y.sum() / precision

    def standardize(posterior: xr.Dataset) -> np.ndarray:
        return (posterior["m"].values[..., np.newaxis] - mean) * precision**0.5

    return Problem(model, ["y"], standardize, {"m": mean})


@functools.cache
def proportions() -> Problem:
    """Proportions of six categories, whose posterior is a Dirichlet distribution."""
    rng = np.random.default_rng(3)
    counts = rng.multinomial(20, rng.dirichlet(np.full(6, 2.0)), size=200)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(6))
        pm.Multinomial("y", n=20, p=p, observed=pm.Data("x", counts))
    a = 1.0 + counts.sum(axis=0)
    mean = a / a.sum()
    sd = np.sqrt(mean * (1.0 - mean) / (a.sum() + 1.0))
    return Problem(model, ["x"], lambda posterior: (posterior["p"].values - mean) / sd)


@functools.cache
def many_effects() -> Problem:
    """Effects of 400 groups with five rows each."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(400), 5)
    y = rng.normal(size=400)[group] + rng.normal(size=group.size)
    with pm.Model() as model:
        effect = pm.Normal("effect", shape=400)
        pm.Normal("y_obs", effect[pm.Data("group", group)], 1.0, observed=pm.Data("y", y))
    mean, sd = np.bincount(group, y) / 6.0, 6.0**-0.5
    return Problem(model, ["group", "y"], lambda p: (p["effect"].values - mean) / sd)


@functools.cache
def orthogonal_matrix() -> Problem:
    """Orthogonal 2 × 2 matrix with equal densities for both signs of the determinant."""
    with pm.Model() as model:
        x = pg.UniformStiefel("x", shape=(2, 2))
        pm.Potential("data", 2.0 * x[0, 0])

    def determinant(posterior: xr.Dataset) -> np.ndarray:
        return np.linalg.det(posterior["x"].values)[..., np.newaxis]

    return Problem(model, [], determinant)


def _rows(problem: Problem, batch_size: int = 100) -> dict[str, Any]:
    return {"minibatch": problem.rows, "batch_size": batch_size}


def _with(step: Callable[..., Any], batch_size: int = 100, **given: Any) -> Callable[..., Any]:
    """Step method with minibatches."""
    return lambda problem: step(**_rows(problem, batch_size), **given)


def _plain(step: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    """Step method with all rows."""
    return lambda problem: step(**given)


def _local(**given: Any) -> Callable[[Problem], Any]:
    """Step with local variables, from 60 of 120 rows unless another number is given."""

    def make(problem: Problem) -> Any:
        model = problem.model
        return pg.SGGMC(
            [model["m"]], local=[model["z"]], minibatch=["y"], local_tune=5, tune_temperature=1.1,
            **{"batch_size": 60, **given},
        )  # fmt: skip

    return make


def _stream(stretches: int = 1, *, is_shuffled: bool = False) -> Callable[[Problem], Any]:
    """Step with the rows in blocks of 500."""

    def make(problem: Problem) -> Any:
        y = problem.model["y"].get_value()
        if is_shuffled:
            y = np.random.default_rng(1).permutation(y)
        blocks = row_blocks(y, block_size=500, stretches=stretches)
        return pg.SGGMC(batches=blocks, minibatch=["y"], batch_size=100, total_size=len(y))

    return make


_FAR = {"initvals": {"b": np.full(6, 1000.0)}, "tune": 20}

CASES: tuple[Case, ...] = (
    Case(
        "temperature above 1",
        "The kinetic temperature",
        regression,
        Attempt(
            "`SGGMC(step_size=0.001, friction=10)`", _with(pg.SGGMC, step_size=0.001, friction=10.0)
        ),
        (
            Attempt("both omitted", _with(pg.SGGMC)),
            Attempt("`step_size=0.0001`", _with(pg.SGGMC, step_size=0.0001, friction=10.0)),
            Attempt("`friction=1000`", _with(pg.SGGMC, step_size=0.001, friction=1000.0)),
            Attempt("`batch_size=1000`", _with(pg.SGGMC, 1000, step_size=0.001, friction=10.0)),
            Attempt(
                '`gradient_noise="fisher"`',
                _with(pg.SGGMC, step_size=0.001, friction=10.0, gradient_noise="fisher"),
            ),
        ),
    ),
    Case(
        "temperature below 1, gradient_noise=",
        "The kinetic temperature",
        direction,
        Attempt(
            "`SGGMC(step_size=0.0005, friction=1000, gradient_noise=2e7)`",
            _with(pg.SGGMC, step_size=0.0005, friction=1000.0, gradient_noise=2e7),
        ),
        (
            Attempt("all omitted", _with(pg.SGGMC)),
            Attempt(
                "`gradient_noise=` omitted", _with(pg.SGGMC, step_size=0.0005, friction=1000.0)
            ),
            Attempt(
                "`step_size=0.00005`",
                _with(pg.SGGMC, step_size=0.00005, friction=1000.0, gradient_noise=2e7),
            ),
            Attempt(
                "`friction=100`",
                _with(pg.SGGMC, step_size=0.0005, friction=100.0, gradient_noise=2e7),
            ),
        ),
    ),
    Case(
        "temperature below 1, step size",
        "The kinetic temperature",
        full_data,
        Attempt(
            "`SGGMC(step_size=0.019, friction=10)`",
            _plain(pg.SGGMC, step_size=0.019, friction=10.0),
        ),
        (
            Attempt("both omitted", _plain(pg.SGGMC)),
            Attempt("`step_size=0.005`", _plain(pg.SGGMC, step_size=0.005, friction=10.0)),
            Attempt("`friction=1`", _plain(pg.SGGMC, step_size=0.019, friction=1.0)),
        ),
    ),
    Case(
        "thermostat at its bound",
        "with the thermostat at its bound",
        full_data,
        Attempt(
            "`SSGNHT(step_size=0.005, diffusion=1)`",
            _with(pg.SSGNHT, step_size=0.005, diffusion=1.0),
        ),
        (
            Attempt("both omitted", _with(pg.SSGNHT)),
            Attempt("`step_size=0.0005`", _with(pg.SSGNHT, step_size=0.0005, diffusion=1.0)),
            Attempt("`batch_size=5000`", _with(pg.SSGNHT, 5000, step_size=0.005, diffusion=1.0)),
        ),
    ),
    Case(
        "Euler's method",
        "The loss of variance by Euler's method",
        full_data,
        Attempt(
            "`SSGNHT(step_size=0.002, diffusion=200)`",
            _with(pg.SSGNHT, 1000, step_size=0.002, diffusion=200.0),
        ),
        (
            Attempt("both omitted", _with(pg.SSGNHT, 1000)),
            Attempt(
                "`step_size=0.0005`", _with(pg.SSGNHT, 1000, step_size=0.0005, diffusion=200.0)
            ),
            Attempt("`diffusion=20`", _with(pg.SSGNHT, 1000, step_size=0.002, diffusion=20.0)),
            Attempt("`gSGNHT()`", _with(pg.gSGNHT, 1000)),
        ),
    ),
    Case(
        "variance by minibatch noise",
        "relative increase of the variance by minibatch noise",
        proportions,
        Attempt("`SCIR(step_size=1)`", _with(pg.SCIR, 20, step_size=1.0)),
        (
            Attempt("`step_size` omitted", _with(pg.SCIR, 20)),
            Attempt("`step_size=0.02`", _with(pg.SCIR, 20, step_size=0.02)),
            Attempt("`batch_size=200`", _with(pg.SCIR, 200, step_size=1.0)),
        ),
    ),
    Case(
        "standard deviations with local=",
        "The possible error of the standard deviations",
        local_latents,
        Attempt("`SGGMC(local=..., batch_size=60)`", _local(), None, {"tune": 200, "draws": 3000}),
        (Attempt("`batch_size=120`", _local(batch_size=120), None, {"tune": 200, "draws": 3000}),),
        seed=3,
    ),
    Case(
        "error of the mean",
        "The error of the mean",
        regression,
        Attempt("`SGGMC()`, `initvals=` far away, `tune=20`", _with(pg.SGGMC), None, _FAR),
        (
            Attempt("`tune=1000`", _with(pg.SGGMC), None, _FAR | {"tune": 1000}),
            Attempt(
                "`initvals=` of the posterior",
                _with(pg.SGGMC),
                None,
                {"tune": 20, "initvals": None},
            ),
            Attempt("`GMC()`, `tune=1000`", _plain(pg.GMC), None, _FAR | {"tune": 1000}),
        ),
    ),
    Case(
        "mean gradient",
        "The mean gradient of",
        regression,
        Attempt(
            "`SGGMC(step_size=1e-5, friction=10)`", _with(pg.SGGMC, step_size=1e-5, friction=10.0)
        ),
        (
            Attempt("both omitted", _with(pg.SGGMC)),
            Attempt(
                "`tune=10000`",
                _with(pg.SGGMC, step_size=1e-5, friction=10.0),
                None,
                {"tune": 10_000},
            ),
            Attempt(
                "`initvals=` of the posterior",
                _with(pg.SGGMC, step_size=1e-5, friction=10.0),
                None,
                {"initvals": None},
            ),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "variance, fixed parameters",
        "onfigurational temperature",
        logistic,
        Attempt("`SGLD(step_size=1e-5)`", _with(pg.SGLD, step_size=1e-5)),
        (
            Attempt("`step_size` omitted", _with(pg.SGLD)),
            Attempt("`batch_size=2000`", _with(pg.SGLD, 2000, step_size=1e-5)),
            Attempt("`step_size=1e-6`", _with(pg.SGLD, step_size=1e-6)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "variance, adapted",
        "onfigurational temperature",
        logistic,
        Attempt("`SGGMC(batch_size=2)`, `tune=30`", _with(pg.SGGMC, 2), None, {"tune": 30}),
        (
            Attempt("`tune=1000`", _with(pg.SGGMC, 2)),
            Attempt("`batch_size=100`", _with(pg.SGGMC), None, {"tune": 30}),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "noise of few minibatches",
        "The possible error of the variance",
        rare_indicators,
        Attempt("`SGGMC(batch_size=20)`", _with(pg.SGGMC, 20)),
        (
            Attempt("`batch_size=200`", _with(pg.SGGMC, 200)),
            Attempt("`batch_size=2000`", _with(pg.SGGMC, 2000)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "funnel, centered",
        "sets the scale of",
        funnel,
        Attempt("`SGGMC()`", _plain(pg.SGGMC)),
        (
            Attempt("non-centered", _plain(pg.SGGMC), funnel_as_product),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "funnel, non-centered",
        "sets the scale of",
        groups_as_product,
        Attempt("`SGGMC()`", _plain(pg.SGGMC)),
        (
            Attempt("centered", _plain(pg.SGGMC), groups),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "few effective draws",
        "The effective sample size",
        regression,
        Attempt(
            "`GMC(step_size=0.0002, n_steps=10)`", _plain(pg.GMC, step_size=0.0002, n_steps=10)
        ),
        (
            Attempt("both omitted", _plain(pg.GMC)),
            Attempt("`n_steps=100`", _plain(pg.GMC, step_size=0.0002, n_steps=100)),
            Attempt(
                "`draws=10000`",
                _plain(pg.GMC, step_size=0.0002, n_steps=10),
                None,
                {"draws": 10_000},
            ),
        ),
    ),
    Case(
        "few effective draws, minibatches",
        "The effective sample size",
        many_effects,
        Attempt("`SGGMC(batch_size=20)`", _with(pg.SGGMC, 20)),
        (
            Attempt("`batch_size=200`", _with(pg.SGGMC, 200)),
            Attempt("`draws=10000`", _with(pg.SGGMC, 20), None, {"draws": 10_000}),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "minibatches or all rows",
        "An independent draw takes about",
        many_effects,
        Attempt("`SGGMC(batch_size=20)`", _with(pg.SGGMC, 20)),
        (Attempt("`GMC()`", _plain(pg.GMC)),),
    ),
    Case(
        "acceptance",
        "The mean acceptance rate",
        regression,
        Attempt("`GMC(step_size=0.01)`", _plain(pg.GMC, step_size=0.01)),
        (
            Attempt("`step_size` omitted", _plain(pg.GMC)),
            Attempt("`step_size=0.001`", _plain(pg.GMC, step_size=0.001)),
        ),
    ),
    Case(
        "no adaptation",
        "without a metric and without control variates",
        full_data,
        Attempt("`SGGMC(batch_size=500)`, 10,000 rows", _with(pg.SGGMC, 500)),
        (
            Attempt("`batch_size=100`", _with(pg.SGGMC, 100)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "tune=0",
        "The number of tuning draws",
        full_data,
        Attempt("`SSGNHT(batch_size=500)`, `tune=0`", _with(pg.SSGNHT, 500), None, {"tune": 0}),
        (Attempt("`tune=1000`", _with(pg.SSGNHT, 500)),),
    ),
    Case(
        "total_size",
        "is not the 10000 rows",
        wrong_total_size,
        Attempt("`total_size=500`", _plain(pg.SGGMC)),
        (
            Attempt("`total_size=10000`", _plain(pg.SGGMC), right_total_size),
            Attempt("`pm.Data` and `batch_size=100`", _with(pg.SGGMC), full_data),
        ),
    ),
    Case(
        "rows not in random order",
        "rows of batches= are not in random order",
        sorted_rows,
        Attempt("`row_blocks(y, block_size=500)`", _stream()),
        (
            Attempt("`stretches=20`", _stream(20)),
            Attempt("rows permuted", _stream(is_shuffled=True)),
        ),
    ),
    Case(
        "orthogonal matrix",
        "never changes the sign of its determinant",
        orthogonal_matrix,
        Attempt("`SGGMC()`", _plain(pg.SGGMC)),
        (Attempt("`GMC()`", _plain(pg.GMC)),),
    ),
)
"""Warnings about draws, in the order of the page on failure modes."""
