"""Models of PyMC's example gallery and of PyMC-Marketing, as their pages describe them.

Containers, indices and dimensions are those of the original pages. The data have the shapes of the
originals and are simulated, unless a docstring states otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from pytensor.tensor.signal import convolve1d
from pytensor.tensor.variable import TensorVariable
from scipy.interpolate import BSpline

from pymc_geodesic.datasets.folder import read_arrays

RNG_SEED = 20


@dataclass(frozen=True)
class GalleryModel:
    """A model and how it is sampled.

    Attributes
    ----------
    title : str
    build : callable
        Number of rows → model.
    n_rows : tuple of int
        Number of rows of the original, and optionally a larger number.
    batch_size : int
        Batch size of a call with minibatches.
    is_divisible : bool
        Whether its rows can be divided into minibatches; otherwise the call must raise an error.
    is_hierarchy : bool
        Whether it has effects of groups, for which the documentation recommends `GMC` with any
        number of rows.
    compared : sequence of str
        Variables that are compared; all free variables by default.
    """

    title: str
    build: Callable[[int], pm.Model]
    n_rows: tuple[int, ...]
    batch_size: int = 500
    is_divisible: bool = True
    is_hierarchy: bool = False
    compared: Sequence[str] = field(default=())


def _rng() -> np.random.Generator:
    return np.random.default_rng(RNG_SEED)


def _expit(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def radon(n_rows: int) -> pm.Model:
    """Varying intercepts and slopes of 85 counties, not centered, with dims and coords."""
    rng, n_counties = _rng(), 85
    county = rng.integers(n_counties, size=n_rows)
    floor = (rng.random(n_rows) < 0.17).astype(int)
    intercepts, slopes = rng.normal(1.4, 0.3, n_counties), rng.normal(-0.65, 0.3, n_counties)
    log_radon = intercepts[county] + slopes[county] * floor + 0.75 * rng.normal(size=n_rows)
    coords = {"county": [f"county {i}" for i in range(n_counties)], "obs_id": range(n_rows)}
    with pm.Model(coords=coords) as model:
        floor_idx = pm.Data("floor_idx", floor, dims="obs_id")
        county_idx = pm.Data("county_idx", county, dims="obs_id")
        mu_a, mu_b = pm.Normal("mu_a", 0.0, 5.0), pm.Normal("mu_b", 0.0, 5.0)
        sigma_a, sigma_b = pm.Exponential("sigma_a", 1.0), pm.Exponential("sigma_b", 1.0)
        z_a, z_b = pm.Normal("z_a", dims="county"), pm.Normal("z_b", dims="county")
        alpha = pm.Deterministic("alpha", mu_a + z_a * sigma_a, dims="county")
        beta = pm.Deterministic("beta", mu_b + z_b * sigma_b, dims="county")
        y_hat = alpha[county_idx] + beta[county_idx] * floor_idx
        sigma_y = pm.Exponential("sigma_y", 1.0)
        pm.Normal("y_like", mu=y_hat, sigma=sigma_y, observed=log_radon, dims="obs_id")
    return model


def rugby(n_rows: int) -> pm.Model:
    """Scores of two teams, two observed variables of the same matches."""
    rng, n_teams = _rng(), 6
    home, away = (rng.integers(n_teams, size=n_rows) for _ in range(2))
    attack, defense = rng.normal(0.0, 0.3, n_teams), rng.normal(0.0, 0.3, n_teams)
    scores_home = rng.poisson(np.exp(3.1 + attack[home] - defense[away]))
    scores_away = rng.poisson(np.exp(2.9 + attack[away] - defense[home]))
    with pm.Model(coords={"team": range(n_teams), "match": range(n_rows)}) as model:
        home_team = pm.Data("home_team", home, dims="match")
        away_team = pm.Data("away_team", away, dims="match")
        advantage = pm.Normal("home", mu=0.0, sigma=1.0)
        intercept = pm.Normal("intercept", mu=3.0, sigma=1.0)
        sd_att, sd_def = pm.HalfNormal("sd_att", 2.0), pm.HalfNormal("sd_def", 2.0)
        atts_star = pm.Normal("atts_star", mu=0.0, sigma=sd_att, dims="team")
        defs_star = pm.Normal("defs_star", mu=0.0, sigma=sd_def, dims="team")
        atts = pm.Deterministic("atts", atts_star - pt.mean(atts_star), dims="team")
        defs = pm.Deterministic("defs", defs_star - pt.mean(defs_star), dims="team")
        home_theta = pt.exp(intercept + advantage + atts[home_team] + defs[away_team])
        away_theta = pt.exp(intercept + atts[away_team] + defs[home_team])
        pm.Poisson("home_points", mu=home_theta, observed=scores_home, dims="match")
        pm.Poisson("away_points", mu=away_theta, observed=scores_away, dims="match")
    return model


def poll(n_rows: int) -> pm.Model:
    """Binomial counts of cells by state, ethnicity, education and age."""
    rng = _rng()
    sizes = {"state": 46, "eth": 4, "edu": 5, "age": 6}
    index = {name: rng.integers(size, size=n_rows) for name, size in sizes.items()}
    score = sum(rng.normal(0.0, 0.4, size)[index[name]] for name, size in sizes.items())
    repvote, trials = rng.normal(size=n_rows), rng.integers(1, 30, size=n_rows)
    votes = rng.binomial(trials, _expit(score + 0.5 * repvote))
    with pm.Model(coords={name: range(size) for name, size in sizes.items()}) as model:
        intercept, slope = pm.Normal("intercept", 0.0, 1.5), pm.Normal("repvote", 0.0, 1.0)
        eta = intercept + slope * repvote
        for name in sizes:
            sigma = pm.HalfNormal(f"sigma_{name}", 0.5)
            eta = eta + pm.Normal(f"effect_{name}", 0.0, sigma, dims=name)[index[name]]
        pm.Binomial("abortion", n=trials, p=pm.math.invlogit(eta), observed=votes)
    return model


def _customers(n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Simulate repeated purchases: number, time of the last, and end of observation."""
    rng = _rng()
    T = rng.uniform(27.0, 39.0, n_rows)
    rate = rng.gamma(0.55, 1.0 / 10.6, n_rows)
    dropout = rng.beta(0.8, 2.5, n_rows)
    frequency, recency = np.zeros(n_rows), np.zeros(n_rows)
    for i in range(n_rows):
        now = rng.exponential(1.0 / rate[i])
        while now < T[i]:
            frequency[i], recency[i] = frequency[i] + 1.0, now
            if rng.random() < dropout[i]:
                break
            now += rng.exponential(1.0 / rate[i])
    return frequency, recency, T


def _bg_nbd(
    x: TensorVariable,
    t_x: TensorVariable,
    T: TensorVariable,
    parameters: tuple[TensorVariable, ...],
) -> TensorVariable:
    """Log-likelihood of a customer, of Fader, Hardie and Lee (2005), equation 6."""
    r, alpha, a, b = parameters
    common = (
        pt.gammaln(r + x) - pt.gammaln(r) + r * pt.log(alpha)
        + pt.gammaln(a + b) - pt.gammaln(b) + pt.gammaln(b + x) - pt.gammaln(a + b + x)
    )  # fmt: skip
    alive = -(r + x) * pt.log(alpha + T)
    gone = pt.log(a) - pt.log(b + pt.maximum(x, 1.0) - 1.0) - (r + x) * pt.log(alpha + t_x)
    return common + pt.switch(x > 0, pt.logaddexp(alive, gone), alive)


def bg_nbd_potential(n_rows: int) -> pm.Model:
    """BG/NBD as PyMC-Marketing had it at first: flat priors and a potential."""
    frequency, recency, T = _customers(n_rows)
    with pm.Model() as model:
        r, alpha = pm.HalfFlat("r", initval=1.0), pm.HalfFlat("alpha", initval=5.0)
        a, b = pm.HalfFlat("a", initval=1.0), pm.HalfFlat("b", initval=2.0)
        terms = _bg_nbd(
            pt.as_tensor(frequency), pt.as_tensor(recency), pt.as_tensor(T), (r, alpha, a, b)
        )
        pm.Potential("likelihood", terms)
    return model


def bg_nbd(n_rows: int) -> pm.Model:
    """BG/NBD as PyMC-Marketing has it: a distribution of recency and frequency, given T."""
    frequency, recency, T = _customers(n_rows)

    def logp(value, r, alpha, a, b, time, kind):
        return _bg_nbd(value[..., 1], value[..., 0], time, (r, alpha, a, b))

    coords = {"customer_id": range(n_rows), "obs_var": ["recency", "frequency"]}
    with pm.Model(coords=coords) as model:
        alpha = pm.Weibull("alpha", alpha=2.0, beta=10.0)
        phi = pm.Uniform("phi_dropout", lower=0.0, upper=1.0)
        kappa = pm.Pareto("kappa_dropout", alpha=1.0, m=1.0)
        a = pm.Deterministic("a", phi * kappa)
        b = pm.Deterministic("b", (1.0 - phi) * kappa)
        r = pm.Weibull("r", alpha=2.0, beta=1.0)
        pm.CustomDist(
            "recency_frequency", r, alpha, a, b, T, np.zeros(2),
            logp=logp,
            signature="(),(),(),(),(),(v)->(v)",
            observed=np.stack((recency, frequency), axis=1),
            dims=("customer_id", "obs_var"),
        )  # fmt: skip
    return model


def media_mix(n_rows: int) -> pm.Model:
    """Sales of weeks, with advertising that lasts: geometric adstock and saturation."""
    rng, channels = _rng(), ["x1", "x2"]
    spend = rng.random((n_rows, 2)) * (rng.random((n_rows, 2)) < 0.6)
    controls = np.column_stack([rng.random(n_rows) < 0.02, np.arange(n_rows) / n_rows])
    sales = 0.4 + 0.3 * spend.sum(axis=1) + 0.1 * controls[:, 1] + 0.05 * rng.normal(size=n_rows)
    coords = {"date": range(n_rows), "channel": channels, "control": ["event", "t"]}
    with pm.Model(coords=coords) as model:
        channel_data = pm.Data("channel_data", spend, dims=("date", "channel"))
        control_data = pm.Data("control_data", controls, dims=("date", "control"))
        target = pm.Data("target", sales, dims="date")
        intercept = pm.Normal("intercept", mu=0.0, sigma=2.0)
        adstock_alpha = pm.Beta("adstock_alpha", alpha=1.0, beta=3.0, dims="channel")
        saturation_lam = pm.Gamma("saturation_lam", alpha=3.0, beta=1.0, dims="channel")
        saturation_beta = pm.HalfNormal("saturation_beta", sigma=2.0, dims="channel")
        carried = []
        for i in range(len(channels)):
            weights = adstock_alpha[i] ** pt.arange(8)
            padded = pt.concatenate([pt.zeros(7), channel_data[:, i]])
            carried.append(convolve1d(padded, weights / weights.sum(), mode="valid"))
        exposure = pt.stack(carried, axis=1)
        saturated = pt.tanh(saturation_lam * exposure / 2.0)
        gamma = pm.Normal("gamma_control", mu=0.0, sigma=2.0, dims="control")
        mu = intercept + (saturation_beta * saturated).sum(axis=1) + control_data @ gamma
        pm.Normal("y", mu=mu, sigma=pm.HalfNormal("y_sigma", 2.0), observed=target, dims="date")
    return model


def ordinal(n_rows: int) -> pm.Model:
    """Ratings of managers from 1 to 8, by an ordered logistic regression."""
    rng = _rng()
    salary, work = rng.normal(size=n_rows), rng.integers(2, size=n_rows)
    latent = 0.8 * salary + 0.5 * work + rng.logistic(size=n_rows)
    rating = np.digitize(latent, np.linspace(-3.0, 3.0, 7))
    with pm.Model() as model:
        cutpoints = pm.Normal(
            "cutpoints", mu=0.0, sigma=5.0, shape=7, transform=ordered,
            initval=np.linspace(-2.0, 2.0, 7),
        )  # fmt: skip
        beta = pm.Normal("beta", 0.0, 1.0, shape=2)
        mu = pm.Deterministic("mu", beta[0] * salary + beta[1] * work)
        pm.OrderedLogistic("y", cutpoints=cutpoints, eta=mu, compute_p=False, observed=rating)
    return model


def zero_inflated(n_rows: int) -> pm.Model:
    """Fish that campers caught: a zero-inflated Poisson regression."""
    rng = _rng()
    child, camper = rng.integers(4, size=n_rows), rng.integers(2, size=n_rows)
    persons = rng.integers(1, 5, size=n_rows)
    rate = np.exp(-0.8 - 0.9 * child + 0.8 * camper + 0.6 * persons)
    count = rng.poisson(rate) * (rng.random(n_rows) < 0.7)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 2.0)
        beta = pm.Normal("beta", 0.0, 1.0, shape=3)
        psi = pm.Beta("psi", 1.0, 1.0)
        mu = pt.exp(intercept + beta[0] * child + beta[1] * camper + beta[2] * persons)
        pm.ZeroInflatedPoisson("count", psi=psi, mu=mu, observed=count)
    return model


def _survival(n_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = _rng()
    sex = rng.integers(2, size=n_rows)
    time = np.exp(0.5 + 0.4 * sex) * rng.weibull(1.3, n_rows)
    end = rng.uniform(0.5, 4.0, n_rows)
    return sex, np.minimum(time, end), time > end


def weibull_survival(n_rows: int) -> pm.Model:
    """Accelerated failure times: deaths are observed, censored times are in a potential."""
    sex, time, is_censored = _survival(n_rows)
    with pm.Model() as model:
        alpha = pm.TruncatedNormal("alpha", mu=1.0, sigma=1.0, lower=0.1)
        mu, beta = pm.Normal("mu", 0.0, 2.0), pm.Normal("beta", 0.0, 2.0)
        scale = pt.exp(mu + beta * sex)
        dead = ~is_censored
        pm.Weibull("y_obs", alpha=alpha, beta=scale[dead], observed=time[dead])
        pm.Potential("y_cens", -((time[is_censored] / scale[is_censored]) ** alpha))
    return model


def censored(n_rows: int) -> pm.Model:
    """Model the same times by `pymc.Censored`, with infinite bounds where deaths are observed."""
    sex, time, is_censored = _survival(n_rows)
    with pm.Model() as model:
        alpha = pm.TruncatedNormal("alpha", mu=1.0, sigma=1.0, lower=0.1)
        mu, beta = pm.Normal("mu", 0.0, 2.0), pm.Normal("beta", 0.0, 2.0)
        latent = pm.Weibull.dist(alpha=alpha, beta=pt.exp(mu + beta * sex))
        upper = np.where(is_censored, time, np.inf)
        pm.Censored("y", latent, lower=None, upper=upper, observed=time)
    return model


def matrix_factorization(n_rows: int) -> pm.Model:
    """Ratings of 100 users for 60 items; users and items are index arrays."""
    rng, n_users, n_items, dim = _rng(), 100, 60, 2
    user, item = rng.integers(n_users, size=n_rows), rng.integers(n_items, size=n_rows)
    true_u, true_v = rng.normal(size=(n_users, dim)), rng.normal(size=(n_items, dim))
    ratings = (true_u[user] * true_v[item]).sum(axis=1) + 0.7 * rng.normal(size=n_rows)
    with pm.Model() as model:
        U = pm.MvNormal("U", mu=np.zeros(dim), tau=np.eye(dim), shape=(n_users, dim))
        V = pm.MvNormal("V", mu=np.zeros(dim), tau=np.eye(dim), shape=(n_items, dim))
        pm.Deterministic("scores", U[:8] @ V[:8].T)  # U and V may be rotated
        pm.Normal("R", mu=(U[user] * V[item]).sum(axis=-1), tau=2.0, observed=ratings)
    return model


def factor_analysis(n_rows: int) -> pm.Model:
    """Ten columns with two factors, which are integrated out."""
    rng, d, k = _rng(), 10, 2
    observed = rng.normal(size=(n_rows, k)) @ rng.normal(size=(k, d))
    observed += rng.normal(size=(n_rows, d))
    with pm.Model(coords={"observed_columns": range(d), "rows": range(n_rows)}) as model:
        W = pm.Normal("W", 0.0, 1.0, shape=(d, k))
        psi = pm.HalfNormal("psi", 1.0)
        cov = pm.Deterministic("cov", W @ W.T + psi * pt.eye(d))
        pm.MvNormal("X", 0.0, cov=cov, observed=observed, dims=("rows", "observed_columns"))
    return model


def robust_regression(n_rows: int) -> pm.Model:
    """Fit a line to data with outliers: Student's t."""
    rng = _rng()
    x = np.linspace(0.0, 1.0, n_rows)
    y = 1.0 + 2.0 * x + 0.5 * rng.standard_t(3.0, size=n_rows)
    with pm.Model(coords={"datapoint": range(n_rows)}) as model:
        covariate = pm.Data("x", x, dims="datapoint")
        observed = pm.Data("y_data", y, dims="datapoint")
        intercept, slope = pm.Normal("intercept"), pm.Normal("slope")
        mu = pm.Deterministic("mu", intercept + slope * covariate, dims="datapoint")
        sigma = pm.HalfNormal("sigma", 10.0)
        nu = 1.0 + pm.Exponential("nu_minus_one", 1.0 / 29.0)
        pm.StudentT("y", mu=mu, sigma=sigma, nu=nu, observed=observed, dims="datapoint")
    return model


def births(n_rows: int) -> pm.Model:
    """Births of each day: a trend by a Hilbert-space Gaussian process, and days of the week."""
    rng = _rng()
    days = np.arange(n_rows)
    week, time = days % 7, (days - days.mean()) / days.std()
    effects = np.array([0.4, 0.5, 0.4, 0.3, 0.3, -0.9, -1.0])
    y = 0.5 * np.sin(2.0 * time) + effects[week] + 0.4 * rng.normal(size=n_rows)
    coords = {"time": days, "day_of_week": range(7)}
    with pm.Model(coords=coords) as model:
        week_idx = pm.Data("day_of_week_idx", week, dims="time")
        length, amplitude = pm.LogNormal("length", 0.0, 0.5), pm.HalfNormal("amplitude", 1.0)
        cov = amplitude**2 * pm.gp.cov.ExpQuad(1, ls=length)
        trend = pm.gp.HSGP(m=[20], c=1.5, cov_func=cov).prior("f_trend", X=time[:, None])
        effect = pm.ZeroSumNormal("b_day_of_week", sigma=1.0, dims="day_of_week")
        mu = pm.Deterministic("mu", trend + effect[week_idx], dims="time")
        pm.Normal("likelihood", mu, pm.HalfNormal("sigma", 1.0), observed=y, dims="time")
    return model


def mixture(n_rows: int) -> pm.Model:
    """Three components of a marginalized Gaussian mixture."""
    rng = _rng()
    component = rng.choice(3, size=n_rows, p=[0.35, 0.4, 0.25])
    x = np.array([0.0, 2.0, 5.0])[component] + np.sqrt([0.5, 0.5, 1.0])[component] * rng.normal(
        size=n_rows
    )
    with pm.Model(coords={"cluster": range(3)}) as model:
        mu = pm.Normal(
            "mu", mu=0.0, sigma=10.0, dims="cluster", transform=ordered, initval=[-1.0, 2.0, 4.0]
        )
        sigma = pm.HalfNormal("sigma", 1.0, dims="cluster")
        weights = pm.Dirichlet("w", np.ones(3), dims="cluster")
        pm.NormalMixture("x", w=weights, mu=mu, sigma=sigma, observed=x)
    return model


def item_response(n_rows: int) -> pm.Model:
    """Fouls called, by players who commit and who suffer them: two index arrays."""
    rng, n_players = _rng(), 430
    committing, disadvantaged = (rng.integers(n_players, size=n_rows) for _ in range(2))
    b, theta = rng.normal(0.0, 0.5, n_players), rng.normal(0.0, 0.5, n_players)
    foul = rng.random(n_rows) < _expit(theta[disadvantaged] - b[committing])
    with pm.Model(coords={"player": range(n_players)}) as model:
        foul_called = pm.Data("foul_called_observed", foul.astype(int))
        mu_theta = pm.Normal("mu_theta", 0.0, 100.0)
        sigma_theta, sigma_b = pm.HalfCauchy("sigma_theta", 2.5), pm.HalfCauchy("sigma_b", 2.5)
        delta_theta = pm.Normal("delta_theta", dims="player")
        delta_b = pm.Normal("delta_b", dims="player")
        ability = pm.Deterministic("theta", delta_theta * sigma_theta + mu_theta, dims="player")
        difficulty = pm.Deterministic("b", delta_b * sigma_b, dims="player")
        eta = pm.Deterministic("eta", ability[disadvantaged] - difficulty[committing])
        pm.Bernoulli("foul_called", logit_p=eta, observed=foul_called)
    return model


def spline(n_rows: int) -> pm.Model:
    """Days of the year on which cherries bloom: a basis of 19 splines."""
    rng = _rng()
    year = np.sort(rng.uniform(812.0, 2015.0, n_rows))
    knots = np.pad(np.quantile(year, np.linspace(0.0, 1.0, 15)), 3, mode="edge")
    basis = BSpline.design_matrix(year, knots, 3).toarray()
    day = 105.0 + 4.0 * np.sin(year / 150.0) + 6.0 * rng.normal(size=n_rows)
    with pm.Model(coords={"splines": range(basis.shape[1])}) as model:
        intercept = pm.Normal("a", 100.0, 5.0)
        weights = pm.Normal("w", mu=0.0, sigma=3.0, dims="splines")
        mu = pm.Deterministic("mu", intercept + pt.dot(np.asarray(basis, order="F"), weights))
        pm.Normal("D", mu, pm.Exponential("sigma", 1.0), observed=day)
    return model


def lectures(n_rows: int) -> pm.Model:
    """lme4's InstEval (its data): ratings by 2,972 students of 1,128 lecturers, centered."""
    data = read_arrays("insteval.npz", data_home=None, origin="It holds lme4's InstEval.")
    student = np.unique(data["s"], return_inverse=True)[1][:n_rows]
    lecturer = np.unique(data["d"], return_inverse=True)[1][:n_rows]
    service, y = data["service"][:n_rows], data["y"][:n_rows].astype(float)
    coords = {"s": range(student.max() + 1), "d": range(lecturer.max() + 1)}
    with pm.Model(coords=coords) as model:
        intercept, slope = pm.Normal("intercept", 3.0, 2.0), pm.Normal("service", 0.0, 1.0)
        sd_s, sd_d = pm.HalfNormal("sd_s", 1.0), pm.HalfNormal("sd_d", 1.0)
        effect_s = pm.Normal("effect_s", 0.0, sd_s, dims="s")
        effect_d = pm.Normal("effect_d", 0.0, sd_d, dims="d")
        mu = intercept + slope * service + effect_s[student] + effect_d[lecturer]
        pm.Normal("y", mu, pm.HalfNormal("sigma", 2.0), observed=y)
    return model


def two_groups(n_rows: int) -> pm.Model:
    """BEST: Student's t for two groups of different size."""
    rng = _rng()
    drug, placebo = 101.5 + 2.0 * rng.normal(size=n_rows), 100.5 + rng.normal(size=n_rows - 5)
    pooled = np.concatenate([drug, placebo])
    with pm.Model() as model:
        nu = 1.0 + pm.Exponential("nu_minus_one", 1.0 / 29.0)
        for name, y in (("drug", drug), ("placebo", placebo)):
            mean = pm.Normal(f"{name}_mean", pooled.mean(), 2.0 * pooled.std())
            std = pm.Uniform(f"{name}_std", lower=0.5, upper=10.0)
            pm.StudentT(name, nu=nu, mu=mean, lam=std**-2, observed=y)
    return model


def stochastic_volatility(n_rows: int) -> pm.Model:
    """Model returns of a stock whose volatility is a random walk."""
    rng = _rng()
    log_volatility = np.zeros(n_rows)
    for i in range(1, n_rows):
        log_volatility[i] = 0.99 * log_volatility[i - 1] + 0.1 * rng.normal()
    returns = 0.008 * np.exp(log_volatility) * rng.standard_t(10.0, size=n_rows)
    with pm.Model(coords={"time": range(n_rows)}) as model:
        step_size = pm.Exponential("step_size", 10.0)
        volatility = pm.GaussianRandomWalk(
            "volatility", sigma=step_size, dims="time", init_dist=pm.Normal.dist(0.0, 100.0)
        )
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("returns", nu=nu, lam=pt.exp(-2.0 * volatility), observed=returns, dims="time")
    return model


def gaussian_process(n_rows: int) -> pm.Model:
    """Marginal likelihood of a Gaussian process."""
    rng = _rng()
    x = np.sort(rng.uniform(0.0, 10.0, n_rows))[:, None]
    y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=n_rows)
    with pm.Model() as model:
        length, eta = pm.Gamma("length", 2.0, 1.0), pm.HalfNormal("eta", 5.0)
        gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, length))
        gp.marginal_likelihood("y", X=x, y=y, sigma=pm.HalfNormal("sigma", 5.0))
    return model


def missing_values(n_rows: int) -> pm.Model:
    """Regress outcomes of which PyMC imputes those that are missing."""
    rng = _rng()
    x = rng.normal(size=n_rows)
    y = np.ma.masked_array(0.5 * x + rng.normal(size=n_rows), mask=rng.random(n_rows) < 0.02)
    with pm.Model() as model:
        slope, sigma = pm.Normal("slope"), pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", slope * x, sigma, observed=y)
    return model


MODELS: tuple[GalleryModel, ...] = (
    GalleryModel("radon, varying intercepts and slopes", radon, (919, 100_000), is_hierarchy=True),
    GalleryModel("rugby, two index arrays", rugby, (60,), 20),
    GalleryModel(
        "poll, binomial with four index arrays", poll, (5_000, 100_000), is_hierarchy=True
    ),
    GalleryModel("BG/NBD, a potential", bg_nbd_potential, (2_357,)),
    GalleryModel("BG/NBD, a distribution", bg_nbd, (2_357, 100_000)),
    GalleryModel("media mix with adstock", media_mix, (179,), 50, is_divisible=False),
    GalleryModel("ordered logistic regression", ordinal, (1_500, 100_000)),
    GalleryModel("zero-inflated Poisson", zero_inflated, (250, 100_000)),
    GalleryModel("Weibull survival, censored in a potential", weibull_survival, (7_874,)),
    GalleryModel("Weibull survival, pm.Censored", censored, (7_874,)),
    GalleryModel("matrix factorization", matrix_factorization, (10_000,), compared=("scores",)),
    GalleryModel("factor analysis, integrated", factor_analysis, (250, 100_000), compared=("cov",)),
    GalleryModel("robust regression", robust_regression, (100, 100_000)),
    GalleryModel("births, HSGP", births, (7_305,)),
    GalleryModel("Gaussian mixture", mixture, (1_000, 100_000)),
    GalleryModel("item response, fouls", item_response, (46_861,)),
    GalleryModel("cherry blossoms, splines", spline, (827, 100_000)),
    GalleryModel("InstEval, crossed effects", lectures, (10_000, 73_421), is_hierarchy=True),
    GalleryModel("BEST, two groups", two_groups, (47,), 10, is_divisible=False),
    GalleryModel("stochastic volatility", stochastic_volatility, (2_906,), is_divisible=False),
    GalleryModel("Gaussian process", gaussian_process, (100,), 20, is_divisible=False),
    GalleryModel("missing outcomes", missing_values, (1_000,), 100, is_divisible=False),
)
