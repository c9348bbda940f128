"""Eight hierarchical models with up to a million rows, as PyMC users write them.

All effects are centered, all scales have half-normal priors. Sizes of groups are unequal: each
group has one row, and the other rows are distributed in proportion to Gamma(1) variables. The data
are simulated, except for the ratings of lectures in lme4's InstEval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm

from pymc_geodesic.datasets.folder import read_arrays

SEED = 20


@dataclass(frozen=True)
class CrossedData:
    """Data of a normal model with an intercept, coefficients and crossed group effects.

    Attributes
    ----------
    y : ndarray, shape (n_rows,)
    X : ndarray, shape (n_rows, n_coefficients)
        Without the column of the intercept.
    codes : dict of str to ndarray of int, shape (n_rows,)
        Group of each row, by classification.
    intercept : (mean, sd)
        Normal prior.
    slope_sd : float
        Normal prior of the coefficients, with mean 0.
    scale_sd : float
        Half-normal prior of the scales of effects and of the residuals.
    """

    y: np.ndarray
    X: np.ndarray
    codes: dict[str, np.ndarray]
    intercept: tuple[float, float]
    slope_sd: float
    scale_sd: float


@dataclass(frozen=True)
class Problem:
    """A model, the effects of its simulated data, and the data if it has a Gibbs sampler.

    Attributes
    ----------
    model : pymc.Model
    effects : dict of str to ndarray
        True values of group effects by variable; empty for real data.
    crossed : CrossedData, optional
        The variables of the model are ``intercept``, ``slope``, ``residual_sd`` and, for each
        classification of the rows, its name followed by ``_effect`` and by ``_sd``.
    """

    model: pm.Model
    effects: Mapping[str, np.ndarray]
    crossed: CrossedData | None = None


def group_codes(rng: np.random.Generator, n_rows: int, n_groups: int) -> np.ndarray:
    """Group of each row; groups are of very unequal size and have at least one row."""
    shares = rng.gamma(1.0, size=n_groups)
    others = rng.choice(n_groups, size=n_rows - n_groups, p=shares / shares.sum())
    return rng.permutation(np.concatenate([np.arange(n_groups), others]))


def _bernoulli(rng: np.random.Generator, logit: np.ndarray) -> np.ndarray:
    return (rng.random(logit.size) < 1.0 / (1.0 + np.exp(-logit))).astype(np.int64)


def radon(n_rows: int) -> Problem:
    """Radon in houses of counties, with a covariate of house and one of county.

    The data are simulated with the numbers of rows and counties, the coefficients and the scales of
    those of Minnesota.
    """
    rng = np.random.default_rng(SEED)
    n_counties = max(2, 85 * n_rows // 919)
    county = group_codes(rng, n_rows, n_counties)
    floor = (rng.random(n_rows) < 0.17).astype(float)
    uranium = 0.35 * rng.normal(size=n_counties)
    county_effects = 0.16 * rng.normal(size=n_counties)
    mean = 1.5 + 0.7 * uranium + county_effects
    log_radon = mean[county] - 0.66 * floor + 0.76 * rng.normal(size=n_rows)
    coords = {"county": np.arange(n_counties), "house": np.arange(n_rows)}
    with pm.Model(coords=coords) as model:
        floor_data = pm.Data("floor", floor, dims="house")
        uranium_data = pm.Data("uranium", uranium, dims="county")
        intercept = pm.Normal("intercept", 0.0, 5.0)
        slope = pm.Normal("slope", 0.0, 2.0)
        uranium_slope = pm.Normal("uranium_slope", 0.0, 2.0)
        county_sd = pm.HalfNormal("county_sd", 1.0)
        effect = pm.Normal("county_effect", 0.0, county_sd, dims="county")
        mu = intercept + uranium_slope * uranium_data[county] + effect[county] + slope * floor_data
        residual_sd = pm.HalfNormal("residual_sd", 2.0)
        pm.Normal("log_radon", mu, residual_sd, observed=log_radon, dims="house")
    return Problem(model, {"county_effect": county_effects})


def _crossed_normal(data: CrossedData, effects: Mapping[str, np.ndarray]) -> Problem:
    """Build a normal model with crossed effects, given those of simulated data."""
    codes = data.codes
    coords = {name: np.arange(code.max() + 1) for name, code in codes.items()}
    with pm.Model(coords=coords | {"row": np.arange(data.y.size)}) as model:
        x = pm.Data("x", data.X[:, 0], dims="row")
        mu = pm.Normal("intercept", *data.intercept) + pm.Normal("slope", 0.0, data.slope_sd) * x
        for name, code in codes.items():
            index = pm.Data(f"{name}_index", code, dims="row")
            scale = pm.HalfNormal(f"{name}_sd", data.scale_sd)
            mu += pm.Normal(f"{name}_effect", 0.0, scale, dims=name)[index]
        residual_sd = pm.HalfNormal("residual_sd", data.scale_sd)
        pm.Normal("y", mu, residual_sd, observed=pm.Data("rating", data.y, dims="row"), dims="row")
    return Problem(model, effects, data)


def insteval(n_rows: int) -> Problem:
    """Ratings of lectures by students in lme4's InstEval: students, lecturers and departments.

    Raises
    ------
    FileNotFoundError
        If the data folder does not contain the file.
    """
    arrays = read_arrays("insteval.npz", data_home=None, origin="It contains lme4's InstEval.")
    names = {"s": "student", "d": "lecturer", "dept": "department"}
    codes = {
        name: np.unique(arrays[key][:n_rows], return_inverse=True)[1] for key, name in names.items()
    }
    y = arrays["y"][:n_rows].astype(float)
    X = arrays["service"][:n_rows, np.newaxis].astype(float)
    return _crossed_normal(CrossedData(y, X, codes, (3.0, 2.0), 1.0, 1.0), {})


def crossed_normal(n_rows: int) -> Problem:
    """Ratings by users of items, one user per fifty rows."""
    rng = np.random.default_rng(SEED)
    n_users, n_items = max(n_rows // 50, 5), max(n_rows // 500, 3)
    codes = {
        "user": group_codes(rng, n_rows, n_users),
        "item": group_codes(rng, n_rows, n_items),
    }
    x = rng.normal(size=n_rows)
    y = 3.0 + 0.3 * x + rng.normal(size=n_rows)
    effects = {}
    for (name, code), scale in zip(codes.items(), (0.5, 0.4), strict=True):
        effects[f"{name}_effect"] = scale * rng.normal(size=code.max() + 1)
        y += effects[f"{name}_effect"][code]
    data = CrossedData(y, x[:, np.newaxis], codes, (0.0, 5.0), 1.0, 1.0)
    return _crossed_normal(data, effects)


def _crossed_logistic(n_rows: int, n_students: int, n_items: int) -> Problem:
    rng = np.random.default_rng(SEED)
    student, item = (group_codes(rng, n_rows, n) for n in (n_students, n_items))
    X = rng.normal(size=(n_rows, 4))
    logit = 0.5 + X @ np.array([0.8, -0.5, 0.3, 0.0])
    students, items = rng.normal(size=n_students), 0.7 * rng.normal(size=n_items)
    logit += students[student] + items[item]
    correct = _bernoulli(rng, logit)
    coords = {
        "student": np.arange(n_students), "item": np.arange(n_items), "covariate": list("abcd"),
    }  # fmt: skip
    with pm.Model(coords=coords) as model:
        intercept = pm.Normal("intercept", 0.0, 2.0)
        slopes = pm.Normal("slopes", 0.0, 1.0, dims="covariate")
        student_sd = pm.HalfNormal("student_sd", 1.0)
        item_sd = pm.HalfNormal("item_sd", 1.0)
        student_effect = pm.Normal("student_effect", 0.0, student_sd, dims="student")
        item_effect = pm.Normal("item_effect", 0.0, item_sd, dims="item")
        logit_p = intercept + pm.math.dot(X, slopes) + student_effect[student] + item_effect[item]
        pm.Bernoulli("correct", logit_p=logit_p, observed=correct)
    return Problem(model, {"student_effect": students, "item_effect": items})


def crossed_logistic(n_rows: int) -> Problem:
    """Answers of students to items, twenty rows per student and 200 per item."""
    return _crossed_logistic(n_rows, max(n_rows // 20, 5), max(n_rows // 200, 3))


def large_crossed_logistic(n_rows: int) -> Problem:
    """Answers of students to items, thirty rows per student and 300 per item."""
    return _crossed_logistic(n_rows, max(n_rows // 30, 5), max(n_rows // 300, 3))


def poisson(n_rows: int) -> Problem:
    """Build a model of counts with an exposure, a hundred rows per group."""
    rng = np.random.default_rng(SEED)
    n_groups = max(n_rows // 100, 5)
    group = group_codes(rng, n_rows, n_groups)
    exposure, x = rng.gamma(2.0, 0.5, size=n_rows), rng.normal(size=n_rows)
    effects = 0.5 * rng.normal(size=n_groups)
    log_rate = -1.0 + 0.3 * x + effects[group]
    count = rng.poisson(exposure * np.exp(log_rate))
    coords = {"group": np.arange(n_groups), "row": np.arange(n_rows)}
    with pm.Model(coords=coords) as model:
        log_exposure = pm.Data("log_exposure", np.log(exposure), dims="row")
        x_data = pm.Data("x", x, dims="row")
        index = pm.Data("group_index", group, dims="row")
        intercept = pm.Normal("intercept", 0.0, 2.0)
        slope = pm.Normal("slope", 0.0, 1.0)
        group_sd = pm.HalfNormal("group_sd", 1.0)
        effect = pm.Normal("group_effect", 0.0, group_sd, dims="group")
        rate = pm.math.exp(log_exposure + intercept + slope * x_data + effect[index])
        pm.Poisson("count", rate, observed=pm.Data("counts", count, dims="row"), dims="row")
    return Problem(model, {"group_effect": effects})


def logistic(n_rows: int) -> Problem:
    """Binary outcomes with four covariates, 500 rows per group."""
    rng = np.random.default_rng(SEED)
    n_groups = max(n_rows // 500, 5)
    group, X = group_codes(rng, n_rows, n_groups), rng.normal(size=(n_rows, 4))
    effects = 0.7 * rng.normal(size=n_groups)
    logit = -0.5 + X @ np.array([0.8, -0.5, 0.3, 0.0]) + effects[group]
    outcome = _bernoulli(rng, logit)
    coords = {
        "group": np.arange(n_groups), "row": np.arange(n_rows), "covariate": list("abcd"),
    }  # fmt: skip
    with pm.Model(coords=coords) as model:
        X_data = pm.Data("X", X, dims=("row", "covariate"))
        index = pm.Data("group_index", group, dims="row")
        intercept = pm.Normal("intercept", 0.0, 2.0)
        slopes = pm.Normal("slopes", 0.0, 1.0, dims="covariate")
        group_sd = pm.HalfNormal("group_sd", 1.0)
        effect = pm.Normal("group_effect", 0.0, group_sd, dims="group")
        logit_p = intercept + X_data @ slopes + effect[index]
        outcomes = pm.Data("outcomes", outcome, dims="row")
        pm.Bernoulli("outcome", logit_p=logit_p, observed=outcomes, dims="row")
    return Problem(model, {"group_effect": effects})


def pupils(n_rows: int) -> Problem:
    """Scores of pupils in classes in schools, with slopes of schools correlated to intercepts.

    There are 25 pupils per class and ten classes per school.
    """
    rng = np.random.default_rng(SEED)
    n_classes, n_schools = max(n_rows // 25, 8), max(n_rows // 250, 4)
    class_, school_of_class = (
        group_codes(rng, n_rows, n_classes), group_codes(rng, n_classes, n_schools),
    )  # fmt: skip
    school, x = school_of_class[class_], rng.normal(size=n_rows)
    factor = np.linalg.cholesky([[0.25, 0.06], [0.06, 0.09]])
    effects = rng.normal(size=(n_schools, 2)) @ factor.T
    score = 0.2 + effects[school, 0] + (0.4 + effects[school, 1]) * x
    class_effects = 0.4 * rng.normal(size=n_classes)
    score += class_effects[class_] + rng.normal(size=n_rows)
    coords = {
        "class": np.arange(n_classes), "school": np.arange(n_schools),
        "effect": ["intercept", "slope"],
    }  # fmt: skip
    with pm.Model(coords=coords) as model:
        intercept = pm.Normal("intercept", 0.0, 2.0)
        slope = pm.Normal("slope", 0.0, 1.0)
        factor, _, _ = pm.LKJCholeskyCov(
            "school_cov", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0)
        )
        school_effect = pm.MvNormal(
            "school_effect", np.zeros(2), chol=factor, dims=("school", "effect")
        )
        class_sd = pm.HalfNormal("class_sd", 1.0)
        class_effect = pm.Normal("class_effect", 0.0, class_sd, dims="class")
        mu = intercept + school_effect[school, 0] + class_effect[class_]
        mu += (slope + school_effect[school, 1]) * x
        pm.Normal("score", mu, pm.HalfNormal("residual_sd", 1.0), observed=score)
    return Problem(model, {"school_effect": effects, "class_effect": class_effects})


def mixed_normal(n_rows: int) -> Problem:
    """Linear mixed model with ten covariates, 1,000 rows per group, and varying slopes."""
    rng = np.random.default_rng(SEED)
    n_groups = max(n_rows // 1_000, 5)
    group, X = group_codes(rng, n_rows, n_groups), rng.normal(size=(n_rows, 10))
    y = 1.0 + X @ rng.normal(size=10) + 2.0 * rng.normal(size=n_rows)
    effects, slope_effects = 0.7 * rng.normal(size=n_groups), 0.3 * rng.normal(size=n_groups)
    y += effects[group] + slope_effects[group] * X[:, 0]
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 5.0)
        slopes = pm.Normal("slopes", 0.0, 2.0, shape=10)
        group_sd, slope_sd = pm.HalfNormal("group_sd", 1.0), pm.HalfNormal("slope_sd", 1.0)
        effect = pm.Normal("group_effect", 0.0, group_sd, shape=n_groups)
        slope_effect = pm.Normal("slope_effect", 0.0, slope_sd, shape=n_groups)
        mu = intercept + pm.math.dot(X, slopes) + effect[group] + slope_effect[group] * X[:, 0]
        pm.Normal("y", mu, pm.HalfNormal("residual_sd", 3.0), observed=y)
    return Problem(model, {"group_effect": effects, "slope_effect": slope_effects})


@dataclass(frozen=True)
class Case:
    """A line of the table.

    Attributes
    ----------
    title : str
    build : callable
        Number of rows to `Problem`.
    n_rows, n_quick_rows : int
    batch_size : int, optional
        Batch size of SGGMC, for a model that is also sampled with minibatches.
    """

    title: str
    build: Callable[[int], Problem]
    n_rows: int
    n_quick_rows: int
    batch_size: int | None = None


CASES: dict[str, Case] = {
    "radon": Case("radon-like, 85 counties", radon, 919, 200),
    "insteval": Case("InstEval, students × lecturers × departments", insteval, 73_421, 1_000),
    "crossed-logistic": Case("crossed logistic, 3,000 × 300", crossed_logistic, 60_000, 600),
    "large-crossed-logistic": Case(
        "crossed logistic, 10,000 × 1,000", large_crossed_logistic, 300_000, 900
    ),
    "crossed-normal": Case("crossed normal, 20,000 × 2,000", crossed_normal, 1_000_000, 1_000),
    "mixed-normal": Case(
        "mixed normal, 1,000 groups, varying slopes",
        mixed_normal,
        1_000_000,
        5_000,
        batch_size=1_000,
    ),
    "poisson": Case("Poisson, 10,000 groups, offsets", poisson, 1_000_000, 1_000),
    "logistic": Case("logistic, 2,000 groups", logistic, 1_000_000, 5_000, batch_size=1_000),
    "pupils": Case("pupils in classes in schools, LKJ", pupils, 100_000, 1_000),
}
