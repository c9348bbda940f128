"""Sixteen posteriors of posteriordb as PyMC models, with their reference draws.

Covariates are raw, as posteriordb has them: intercepts and slopes are correlated and of scales that
differ by factors of a thousand. Where rows are exchangeable the data are `pymc.Data` containers, so
that the same model serves full-data and minibatch samplers.

Magnusson, Torgander, Bürkner, Zhang, Carpenter, Vehtari (2025), posteriordb.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.datasets.folder import read_arrays

FILE = "posteriordb.npz"
ORIGIN = "It holds data and reference draws of sixteen posteriors of posteriordb."
Data = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Posterior:
    """A model with reference draws.

    Attributes
    ----------
    name : str
    model : pymc.Model
    rows : list of str
        Data containers with a row per observation; empty where rows are not exchangeable.
    n_rows : int
    reference : dict of str to ndarray, shape (2500,)
        Draws of each parameter, by names as in ``beta[1]``.
    """

    name: str
    model: pm.Model
    rows: list[str]
    n_rows: int
    reference: dict[str, np.ndarray]


def _regression(
    design: np.ndarray, y: np.ndarray, prior: Callable[[int], TensorVariable] | None = None
) -> None:
    """Linear model with flat priors of the coefficients by default."""
    rows, outcome = pm.Data("X", design), pm.Data("y", y)
    n = design.shape[1]
    beta = pm.Flat("beta", shape=n) if prior is None else prior(n)
    sigma = _flat_positive("sigma")
    pm.Normal("outcome", rows @ beta, sigma, observed=outcome)


def _flat_positive(name: str) -> TensorVariable:
    return pm.HalfFlat(name)


def _columns(*columns: np.ndarray) -> np.ndarray:
    length = max(np.size(column) for column in columns)
    return np.column_stack([np.broadcast_to(column, length) for column in columns]).astype(float)


def _kidiq(data: Data, interaction: bool) -> None:
    hs, iq = data["mom_hs"].astype(float), data["mom_iq"].astype(float)
    design = _columns(1.0, hs, iq, *([hs * iq] if interaction else []))
    rows, score = pm.Data("X", design), pm.Data("y", data["kid_score"].astype(float))
    beta = pm.Flat("beta", shape=design.shape[1])
    sigma = pm.HalfCauchy("sigma", 2.5)
    pm.Normal("outcome", rows @ beta, sigma, observed=score)


def _earnings(data: Data, log: bool, interaction: bool) -> None:
    height, male = data["height"].astype(float), data["male"].astype(float)
    extra = [male, height * male] if interaction else []
    earn = data["earn"].astype(float)
    _regression(_columns(1.0, height, *extra), np.log(earn) if log else earn)


def _blr(data: Data) -> None:
    rows, y = pm.Data("X", data["X"].astype(float)), pm.Data("y", data["y"].astype(float))
    beta = pm.Normal("beta", 0.0, 10.0, shape=data["X"].shape[1])
    sigma = pm.HalfNormal("sigma", 10.0)
    pm.Normal("outcome", rows @ beta, sigma, observed=y)


def _nes(data: Data) -> None:
    age = data["age_discrete"]
    design = _columns(
        1.0,
        data["real_ideo"],
        data["race_adj"],
        *(age == group for group in (2, 3, 4)),
        data["educ1"],
        data["gender"],
        data["income"],
    )
    _regression(design, data["partyid7"].astype(float))


def _mesquite(data: Data) -> None:
    diam1, diam2, height = data["diam1"], data["diam2"], data["canopy_height"]
    design = _columns(
        1.0,
        np.log(diam1 * diam2 * height),
        np.log(diam1 * diam2),
        np.log(diam1 / diam2),
        np.log(data["total_height"]),
        data["group"],
    )
    _regression(design, np.log(data["weight"]))


def _diamonds(data: Data) -> None:
    design = data["X"][:, 1:]
    rows, y = pm.Data("X", design - design.mean(axis=0)), pm.Data("y", data["Y"])
    b = pm.Normal("b", 0.0, 1.0, shape=design.shape[1])
    intercept = pm.StudentT("Intercept", 3.0, mu=8.0, sigma=10.0)
    sigma = pm.HalfStudentT("sigma", 3.0, sigma=10.0)
    pm.Normal("outcome", intercept + rows @ b, sigma, observed=y)


def _kilpisjarvi(data: Data) -> None:
    alpha = pm.Normal("alpha", data["pmualpha"], data["psalpha"])
    beta = pm.Normal("beta", data["pmubeta"], data["psbeta"])
    sigma = _flat_positive("sigma")
    x, y = pm.Data("X", data["x"].astype(float)), pm.Data("y", data["y"].astype(float))
    pm.Normal("outcome", alpha + beta * x, sigma, observed=y)


def _eight_schools(data: Data) -> None:
    mu = pm.Normal("mu", 0.0, 5.0)
    tau = pm.HalfCauchy("tau", 5.0)
    z = pm.Normal("z", 0.0, 1.0, shape=8)
    theta = pm.Deterministic("theta", mu + tau * z)
    pm.Normal("outcome", theta, data["sigma"].astype(float), observed=data["y"].astype(float))


def _mixture(data: Data) -> None:
    mu = pm.Normal(
        "mu",
        0.0,
        2.0,
        shape=2,
        transform=pm.distributions.transforms.ordered,
        initval=np.array([-1.0, 1.0]),
    )
    sigma = pm.HalfNormal("sigma", 2.0, shape=2)
    theta = pm.Beta("theta", 5.0, 5.0)
    y = pm.Data("y", data["y"].astype(float))
    weights = pt.stack([theta, 1.0 - theta])
    pm.NormalMixture("outcome", weights, mu, sigma=sigma, observed=y)


def _autoregression(data: Data) -> None:
    y, lags = data["y"].astype(float), int(data["K"])
    past = np.column_stack([y[lags - k : len(y) - k] for k in range(1, lags + 1)])
    alpha = pm.Normal("alpha", 0.0, 10.0)
    beta = pm.Normal("beta", 0.0, 10.0, shape=lags)
    sigma = pm.HalfCauchy("sigma", 2.5)
    pm.Normal("outcome", alpha + past @ beta, sigma, observed=y[lags:])


def _garch(data: Data) -> None:
    y, first = data["y"].astype(float), float(data["sigma1"])
    mu = pm.Flat("mu")
    alpha0 = _flat_positive("alpha0")
    alpha1 = pm.Uniform("alpha1", 0.0, 1.0)
    share = pm.Uniform("share", 0.0, 1.0)
    beta1 = pm.Deterministic("beta1", share * (1.0 - alpha1))
    pm.Potential("volume of beta1", pt.log1p(-alpha1))
    variance = pt.as_tensor(first**2)
    terms = []
    for t in range(len(y)):
        if t:
            variance = alpha0 + alpha1 * (y[t - 1] - mu) ** 2 + beta1 * variance
        terms.append(variance)
    pm.Normal("outcome", mu, pt.sqrt(pt.stack(terms)), observed=y)


_MODELS: dict[str, tuple[Callable[[Data], None], bool]] = {
    "kidiq-kidscore_momhsiq": (lambda data: _kidiq(data, False), True),
    "kidiq-kidscore_interaction": (lambda data: _kidiq(data, True), True),
    "earnings-earn_height": (lambda data: _earnings(data, False, False), True),
    "earnings-logearn_height": (lambda data: _earnings(data, True, False), True),
    "earnings-logearn_interaction": (lambda data: _earnings(data, True, True), True),
    "sblrc-blr": (_blr, True),
    "sblri-blr": (_blr, True),
    "nes1980-nes": (_nes, True),
    "nes2000-nes": (_nes, True),
    "mesquite-logmesquite_logvash": (_mesquite, True),
    "diamonds-diamonds": (_diamonds, True),
    "kilpisjarvi_mod-kilpisjarvi": (_kilpisjarvi, True),
    "eight_schools-eight_schools_noncentered": (_eight_schools, False),
    "low_dim_gauss_mix-low_dim_gauss_mix": (_mixture, True),
    "arK-arK": (_autoregression, False),
    "garch-garch11": (_garch, False),
}
POSTERIORS = tuple(_MODELS)


def load(name: str, folder: str | None = None) -> Posterior:
    """Build one of `POSTERIORS`.

    Raises
    ------
    FileNotFoundError
        If the data folder does not hold the file.
    """
    arrays = read_arrays(FILE, data_home=folder, origin=ORIGIN)
    source = name.split("-")[0]
    data = {k.split("/", 2)[2]: v for k, v in arrays.items() if k.startswith(f"data/{source}/")}
    draws = {
        k.split("/", 2)[2]: v.ravel() for k, v in arrays.items() if k.startswith(f"draws/{name}/")
    }
    build, exchangeable = _MODELS[name]
    with pm.Model() as model:
        build(data)
    rows = [container.name for container in model.data_vars] if exchangeable else []
    n_rows = len(model[rows[0]].get_value()) if rows else 0
    return Posterior(name, model, rows, n_rows, draws)


def worst_errors(posterior: Posterior, draws: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Compare draws with the reference, coordinate by coordinate.

    Parameters
    ----------
    draws : mapping of str to ndarray, shape (n, ...)
        Draws of every variable of the model by name.

    Returns
    -------
    mean : float
        Largest distance of a mean from that of the reference, in reference sds.
    sd_ratio : float
        Ratio of an sd to that of the reference, farthest from 1.
    """
    errors, ratios = [], []
    for name, reference in posterior.reference.items():
        variable, _, index = name.rstrip("]").partition("[")
        values = np.asarray(draws[variable])
        if index:
            values = values[:, int(index) - 1]
        errors.append(abs(values.mean() - reference.mean()) / reference.std())
        ratios.append(values.std() / reference.std())
    return max(errors), max(ratios, key=lambda ratio: abs(np.log(ratio)))
