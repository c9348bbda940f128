"""Hierarchical models: coordinates, metric and posteriors of group effects."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

import pymc_geodesic as pg
from pymc_geodesic.densities.effect_detection import find_effects
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.runtime.gradient_functions import evaluate
from tests.grids import by_default, slow
from tests.steps.runs import INTERPRETED

RNG = np.random.default_rng(3)
N_ROWS = 60
GROUP = np.concatenate([[5], RNG.integers(0, 5, N_ROWS - 1)])  # one row in group 5, none in 6
ITEM = RNG.integers(0, 4, N_ROWS)
X = RNG.normal(size=N_ROWS)
Y = 0.5 + 0.3 * X + RNG.normal(size=7)[GROUP] + RNG.normal(size=N_ROWS)
CLASS = np.arange(N_ROWS) % 3


def crossed(*, centered):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        scale, item_scale = pm.HalfNormal("scale"), pm.HalfNormal("item_scale")
        if centered:
            a = pm.Normal("a", b[0], scale, shape=7)[GROUP]
        else:
            a = b[0] + (pm.Normal("a", shape=7) * scale)[GROUP]
        c = pm.Normal("c", 0.0, item_scale, shape=4)
        pm.Normal("y", a + b[1] * X + c[ITEM], pm.HalfNormal("sigma"), observed=Y)
    return model


def nested():
    above = np.array([0, 0, 1, 1, 2, 2, 2])
    with pm.Model() as model:
        school = pm.Normal("school", pm.Normal("b"), pm.Exponential("between", 1.0), shape=3)
        room = pm.Normal("room", school[above], pm.HalfCauchy("within", 1.0), shape=7)
        pm.Poisson("y", pm.math.exp(0.3 * room[GROUP]), observed=np.abs(Y).astype(int))
    return model


def data_with_a_nameless_axis():
    with pm.Model(coords={"row": range(N_ROWS), "group": range(7)}) as model:
        x = pm.Data("x", np.column_stack([X, X**2]), dims=("row", None))
        z = pm.Normal("z", dims="group")
        mean = x @ pm.Normal("b", shape=2) + (pm.HalfNormal("scale") * z)[GROUP]
        pm.Normal("y", mean, 1.0, observed=Y, dims="row")
    return model


def cholesky(n=2):
    return pm.LKJCholeskyCov("chol", n=n, eta=2.0, sd_dist=pm.Gamma.dist(6.0, 6.0, shape=n))[0]


def slopes():
    with pm.Model() as model:
        chol = cholesky()
        s = pm.MvNormal("s", pm.Normal("b", shape=2), chol=chol, shape=(7, 2))
        pm.Bernoulli("y", logit_p=s[GROUP, 0] + s[GROUP][:, 1] * X, observed=Y > 0.5)
    return model


def slopes_of_offsets():
    with pm.Model() as model:
        s = pm.Normal("b", shape=2) + pm.Normal("z", shape=(7, 2)) @ cholesky().T
        pm.Bernoulli("y", logit_p=s[GROUP, 0] + s[GROUP][:, 1] * X, observed=Y > 0.5)
    return model


def columns_of_offsets():
    """Three correlated effects, with groups along the last axis."""
    with pm.Model(coords={"effect": range(3), "group": range(7)}) as model:
        z = pm.Normal("z", dims=("effect", "group"))
        item = pm.Gamma("scales", 6.0, 6.0, shape=(2, 1)) * pm.Normal("item", shape=(2, 4))
        s = pm.Deterministic("s", pm.math.dot(cholesky(3), z).T, dims=("group", "effect"))
        mean = s[GROUP, 0] + s[GROUP, 1] * X + s[GROUP, 2] * np.cos(np.arange(N_ROWS))
        mean += item[0, ITEM] + item[1][ITEM] * X
        pm.Normal("y", mean, 0.3, observed=Y)
    return model


def precision():
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2.0, 2.0)
        e = pm.Normal("e", 0.0, tau=tau, shape=(7, 2))
        pm.StudentT("y", 4.0, mu=e[:, 0][GROUP] + X * e[:, 1][GROUP], sigma=1.0, observed=Y)
    return model


def sums_to_zero():
    """Next to sparse effects, and as the parent of nested ones."""
    with pm.Model(coords={"item": range(4)}) as model:
        a = pm.HalfNormal("scale") * pm.ZeroSumNormal("a", shape=3)
        c = pm.ZeroSumNormal("c", pm.HalfNormal("item_scale"), dims="item")
        e = pm.Normal("e", 0.0, pm.HalfNormal("within"), shape=7)
        room = pm.Normal("room", c[np.arange(6) % 4], 0.5, shape=6)
        mean = pm.Normal("b") + X * room[np.arange(N_ROWS) % 6] + a[CLASS] + c[ITEM] + e[GROUP]
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y)
    return model


def only_sums_to_zero():
    with pm.Model() as model:
        a = pm.ZeroSumNormal("a", pm.HalfNormal("scale"), shape=7)
        pm.Poisson("y", pm.math.exp(0.3 * a[GROUP]), observed=np.abs(Y).astype(int))
    return model


def interactions():
    """Effects of pairs of groups, centered with scales of their own and non-centered."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=4)
        a = pm.Normal("a", 0.0, pm.HalfNormal("a_scale"), shape=7)
        e = pm.Normal("e", a[:, None] + pm.Normal("b", shape=4), scale, shape=(7, 4))
        d = pm.Gamma("d_scale", 6.0, 6.0) * pm.Normal("d", shape=(3, 4))
        pm.Bernoulli("y", logit_p=e[GROUP, ITEM] + d[CLASS, ITEM], observed=Y > 0.5)
    return model


MODELS = {
    "crossed": lambda: crossed(centered=True),
    "not centered": lambda: crossed(centered=False),
    "nested": nested,
    "slopes": slopes,
    "slopes of offsets": slopes_of_offsets,
    "columns of offsets": columns_of_offsets,
    "nameless axis": data_with_a_nameless_axis,
    "interactions": interactions,
    "precision": precision,
    "sums to zero": sums_to_zero,
    "only sums to zero": only_sums_to_zero,
}


def derivative(function, z, length=1e-5):
    steps = length * np.eye(z.size)
    return np.array([(function(z + s) - function(z - s)) / (2 * length) for s in steps])


@pytest.fixture(scope="module", params=[*MODELS])
def metric(request):
    """The sparse metric of a model at a random point, and the log-density of the model."""
    step = pg.GMC(model=MODELS[request.param](), metric="sparse", compile_kwargs=INTERPRETED)
    metric = step.adaptation.metric
    metric.set_center(0.3 * np.random.default_rng(1).normal(size=step.product.size))
    logp_grad = step.estimator.logp_grad

    def log_density(function, x):
        output = np.empty(x.size + 1)
        evaluate(function.address, np.ascontiguousarray(x), 0, function.context, output)
        return output

    return (
        metric,
        lambda x: log_density(logp_grad, x)[-1],
        lambda z: log_density(metric.centering.logp_grad, z),
    )


def test_coordinates_are_a_change_of_variables(metric):
    metric, of_model, of_metric = metric
    rng, to_position = np.random.default_rng(2), metric.centering.to_position
    differences = []
    assert (metric.centering._coordinates.spline >= 0).any()
    for factor in (1.0, 1.0, 2.0):
        z = factor * rng.normal(size=metric.center.size)
        x = to_position(z)
        np.testing.assert_allclose(metric.centering.whiten(x), z, rtol=1e-6, atol=1e-9)
        gradient = derivative(lambda each: of_metric(each)[-1], z)
        np.testing.assert_allclose(of_metric(z)[:-1], gradient, rtol=1e-5, atol=1e-5)
        _, jacobian = np.linalg.slogdet(derivative(to_position, z))
        differences.append(of_metric(z)[-1] - of_model(x) - jacobian)
    np.testing.assert_allclose(differences, differences[0], atol=1e-6)


def test_newton_steps_end_where_the_posterior_has_unit_scales(metric):
    metric, _, of_metric = metric
    metric.find_center(metric.center)
    z = np.zeros(metric.center.size)
    hessian = derivative(lambda each: of_metric(each)[:-1], z, 1e-4)
    curvature = np.linalg.eigvalsh(-0.5 * (hessian + hessian.T))
    assert np.abs(of_metric(z)[:-1]).max() < 1.0
    assert curvature.min() > 0.05
    assert curvature.max() < 5.0


def regression(b):
    return b[GROUP, 0] + b[GROUP, 1] * X


def precision_of(mean, shape=(7, 2)):
    """Precision matrix at a position, for the regression of a function of offsets and factor."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=2)
        mean = mean(pm.Normal("z", shape=shape), cholesky(), scale)
        pm.Normal("y", pm.Normal("b") + mean, 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    return None if effects is None else effects.precision(np.linspace(-1.0, 1.0, 20)).toarray()


FORMS = {
    "dot": lambda z, chol, _: regression(pm.math.dot(z, chol.T)),
    "transposed": lambda z, chol, _: regression((chol @ z.T).T),
    "twice": lambda z, chol, _: (z @ chol.T)[GROUP, 0] + (z @ chol.T)[GROUP, 1] * X,
    "columns": lambda z, chol, _: (chol @ z.T)[0][GROUP] + (chol @ z.T)[1, GROUP] * X,
    "of rows": lambda z, chol, _: ((z[GROUP] @ chol.T) * np.stack([0 * X + 1, X], 1)).sum(1),
    "all columns": lambda z, chol, _: ((chol @ z.T)[:, GROUP] * np.stack([0 * X + 1, X])).sum(0),
    "named": lambda z, chol, _: regression(pm.Deterministic("e", z @ chol.T)),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("form", by_default(["dot", "all columns"], of=FORMS))
def test_forms_of_correlated_offsets(form):
    expected = precision_of(lambda z, chol, _: regression(z @ chol.T))
    np.testing.assert_allclose(precision_of(FORMS[form]), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_scales_of_columns():
    """Scales by column, before or after a product, and in the matrix, are the same."""
    first = precision_of(lambda z, chol, scale: regression(z @ (scale[:, None] * chol).T))
    for mean in (
        lambda z, chol, scale: regression(scale * (z @ chol.T)),
        lambda z, chol, scale: regression((scale[:, None] * (chol @ z.T)).T),
    ):
        np.testing.assert_allclose(precision_of(mean), first, rtol=1e-9, atol=1e-9)
    by_rows = precision_of(lambda z, _, scale: regression(z * scale))
    order = np.arange(20)
    order[2:16] = 2 + np.arange(14).reshape(7, 2).T.ravel()
    columns = precision_of(lambda z, _, scale: regression((scale[:, None] * z).T), (2, 7))
    np.testing.assert_allclose(columns, by_rows[np.ix_(order, order)], rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "mean",
    [
        lambda z, chol, _: regression(z @ chol),
        lambda z, chol, _: regression(z @ (chol + chol.T)),
        lambda z, chol, _: regression(z @ np.array([[1.0, 0.3], [0.0, 2.0]])),
        lambda z, chol, _: regression(z @ chol.T) + z.sum(),
        lambda z, chol, scale: (z @ scale)[GROUP],
        lambda z, chol, scale: regression((scale * z) @ chol),
    ],
    ids=["upper triangular", "symmetric", "constant", "another use", "vector", "of effects"],
)
def test_other_products_are_not_effects(mean):
    assert precision_of(mean) is None


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("along_rows", [True, False])
def test_factor_of_correlated_offsets_is_that_of_the_effects(along_rows):
    """Correlated effects have the same coordinates z in centered and non-centered form."""

    def factor_of(log_first, w, log_second):
        rows = [np.exp(log_first), 0.0], np.exp(log_second) * np.array([np.tanh(w), 1 / np.cosh(w)])
        return np.array(rows)

    metrics = []
    for centered in (True, False):
        with pm.Model() as model:
            chol = cholesky()
            if centered:
                s = pm.MvNormal("s", np.zeros(2), chol=chol, shape=(7, 2))
            elif along_rows:
                s = pm.Normal("s", shape=(7, 2)) @ chol.T
            else:
                s = (chol @ pm.Normal("s", shape=(2, 7))).T
            mean = pm.Normal("b") + s[GROUP, 0] + s[GROUP, 1] * X
            pm.Poisson("y", pm.math.exp(0.3 * mean), observed=np.abs(Y).astype(int))
            metrics.append(pg.GMC(model=model, metric="sparse").adaptation.metric)
    rng = np.random.default_rng(1)
    packed, offsets, b = rng.normal(size=3), rng.normal(size=(7, 2)), rng.normal(size=1)
    lower = factor_of(*packed)
    if not along_rows:
        offsets = offsets.T
    effects = offsets @ lower.T if along_rows else (lower @ offsets).T
    x = [np.concatenate([packed, each.ravel(), b]) for each in (effects, offsets)]
    coordinates = np.arange(14).reshape(7, 2)
    same = np.arange(18)
    if not along_rows:
        same[3:17] = 3 + coordinates.T.ravel()
    factors = [metric._factor_at(each) for metric, each in zip(metrics, x, strict=True)]
    np.testing.assert_array_equal(factors[0].order, same[factors[1].order])
    for name in ("precision", "weight", "couplings", "dense"):
        found, expected = (getattr(factor, name) for factor in reversed(factors))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    z = rng.normal(size=18)
    centered, found = (
        m.centering.to_position(each) for m, each in zip(metrics, (z, z[same]), strict=True)
    )
    lower = factor_of(*found[:3])
    offsets = found[3:17].reshape(7, 2) if along_rows else found[3:17].reshape(2, 7).T
    np.testing.assert_allclose(centered[3:17].reshape(7, 2), offsets @ lower.T, rtol=1e-6)


@pytest.mark.usefixtures("interpreted")
def test_scales_of_coefficients_stay_where_they_are():
    """The joint density is unbounded as the scale and all coefficients approach zero."""
    covariates = 0.1 * np.random.default_rng(5).normal(size=(N_ROWS, 8))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, pm.HalfNormal("scale"), shape=8)
        e = pm.Normal("e", 0.0, pm.HalfNormal("e_scale"), shape=7)
        pm.Normal("y", covariates @ b + e[GROUP], 1.0, observed=Y)
    metric = pg.GMC(model=model, metric="sparse").adaptation.metric
    start = np.where(np.arange(17) == 0, -0.5, 0.0)
    assert metric.find_center(start)[0] == pytest.approx(-0.5)


PAIRS = {
    "two indices": lambda e: e[GROUP, ITEM],
    "negative": lambda e: e[GROUP - 7, ITEM],
    "short integers": lambda e: e[(GROUP - 7).astype("int8"), ITEM.astype("uint8")],
    "of a function": lambda e: (0.0 + e)[GROUP, ITEM],
    "flat": lambda e: e.ravel()[4 * GROUP + ITEM],
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("form", PAIRS)
@pytest.mark.parametrize("centered", [True, False])
def test_interactions_are_effects_of_pairs(form, centered):
    """The matrix has the precision of a vector with an entry for each pair."""

    def precision_of(shape, mean):
        with pm.Model() as model:
            scale = pm.HalfNormal("scale")
            if centered:
                e = pm.Normal("e", pm.Normal("b"), scale, shape=shape)
            else:
                e = pm.Normal("b") + scale * pm.Normal("e", shape=shape)
            pm.StudentT("y", 4.0, mu=mean(e), sigma=1.0, observed=Y)
        effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
        names = [v.name for v in manifold_variables(model, None, None)]
        x = {"scale": [0.3], "b": [0.3], "e": np.linspace(-1.0, 1.0, 28)}
        return effects.precision(np.concatenate([x[name] for name in names])).toarray()

    expected = precision_of(28, lambda e: e[4 * GROUP + ITEM])
    np.testing.assert_allclose(precision_of((7, 4), PAIRS[form]), expected)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("mean", "is_sparse"),
    [
        (lambda a, b: a[GROUP] + b[ITEM], {"a", "b"}),
        (lambda a, b: a[GROUP] + pt.constant(np.eye(4)[ITEM]) @ b, {"a"}),
        (lambda a, b: a[GROUP] + a.max() + b[ITEM], {"b"}),
    ],
    ids=["by index", "by product", "another use"],
)
def test_effects_that_sum_to_zero_are_found(mean, is_sparse):
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        a, b = (pm.ZeroSumNormal(name, scale, shape=n) for name, n in (("a", 7), ("b", 4)))
        pm.Normal("y", mean(a, b), 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert {each.name for each in effects.effects} == is_sparse
    precision = effects.precision(np.linspace(-0.5, 0.5, 10))
    assert precision.shape == (10 + len(is_sparse), 10 + len(is_sparse))


def grid_moments():
    """Mean and sd of the population mean and log scale of `groups_of_normals`, by quadrature."""
    mu, log_tau = np.meshgrid(np.linspace(-4, 5, 400), np.linspace(-7, 3, 500), indexing="ij")
    tau = np.exp(log_tau)
    log_density = norm.logpdf(mu, 0, 2) - 0.5 * tau**2 + log_tau
    for j in range(7):
        rows = Y[j == GROUP]
        if rows.size:
            sd = np.sqrt(tau**2 + 1.0 / rows.size)
            log_density += norm.logpdf(rows.mean(), mu, sd)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    means = [(weights * each).sum() for each in (mu, log_tau)]
    return [
        (m, np.sqrt((weights * (each - m) ** 2).sum()))
        for m, each in zip(means, (mu, log_tau), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC, pg.gSGNHT, pg.SGLD])
@pytest.mark.parametrize("centered", [True, slow(False)])
def test_means_and_scales_of_groups(centered, sampler):
    """Groups with one row and with none, against quadrature."""
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, shape=7) if centered else mu + tau * pm.Normal("a", shape=7)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
        step = sampler()
        idata = pm.sample(
            2000, tune=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False
        )
    assert "partial centering" in repr(step.adaptation)
    posterior = idata.posterior
    for draws, (mean, sd) in zip(
        (posterior["mu"], np.log(posterior["tau"])), grid_moments(), strict=True
    ):
        assert abs(float(draws.mean()) - mean) < 0.12 * sd
        assert abs(float(draws.std()) / sd - 1.0) < 0.12
    del model


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC, pg.gSGNHT])
def test_tails_of_a_scale_that_may_be_zero(sampler):
    """Means of eight groups with ten rows are N(mu, tau² + 0.1): a closed form without mu."""
    means = 0.5 * norm.ppf((np.arange(8) + 0.5) / 8)
    with pm.Model():
        mu, tau = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, shape=8)
        pm.Normal("y", a[np.repeat(np.arange(8), 10)], 1.0, observed=np.repeat(means, 10))
        idata = pm.sample(
            4000, tune=1000, chains=4, cores=1, step=sampler(), random_seed=1, progressbar=False
        )
    log_tau = np.linspace(-14.0, 3.0, 4000)
    variance = np.exp(2.0 * log_tau) + 0.1
    log_density = log_tau - 0.5 * np.exp(2.0 * log_tau) - 0.5 * np.log(variance + 8 * 4.0)
    log_density -= 3.5 * np.log(variance) + 0.5 * np.sum(means**2) / variance
    weights = np.exp(log_density - log_density.max())
    distribution = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    draws = np.log(idata.posterior["tau"].values.ravel())
    probabilities = np.array([0.005, 0.02, 0.2, 0.8, 0.98, 0.995])
    found = [np.mean(draws < each) for each in np.interp(probabilities, distribution, log_tau)]
    errors = (np.array(found) - probabilities) / np.minimum(probabilities, 1.0 - probabilities)
    np.testing.assert_array_less(np.abs(errors), [0.35, 0.18, 0.08, 0.08, 0.18, 0.35])


@pytest.mark.parametrize(
    ("sampler", "n_grad"), [(pg.GMC, 1.1), (pg.SGGMC, 2.6), (pg.gSGNHT, 2.6), (pg.SGLD, 17.0)]
)
def test_funnel_without_data(sampler, n_grad):
    """Neal's funnel is a normal distribution in these coordinates, and its tails are sampled."""
    with pm.Model():
        v = pm.Normal("v", 0.0, 3.0)
        pm.Normal("x", 0.0, pm.math.exp(0.5 * v), shape=9)
        idata = pm.sample(
            1000, tune=500, chains=2, cores=1, step=sampler(), random_seed=1, progressbar=False
        )
    v = idata.posterior["v"].values.ravel()
    assert idata.sample_stats["n_grad"].mean() < n_grad
    assert abs(v.mean()) < 0.3
    assert abs(v.std() - 3.0) < 0.25
    np.testing.assert_allclose(np.quantile(v, [0.01, 0.99]), [-6.98, 6.98], atol=1.2)


@pytest.mark.slow
def test_divergence_leaves_no_trace():
    """Positions that are not finite do not change the density of later ones."""
    rng = np.random.default_rng(1)
    group, covariates = rng.integers(0, 5, 30), rng.normal(size=(30, 2))
    with pm.Model() as model:
        chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
        effects = pm.MvNormal("effects", np.zeros(2), chol=chol, shape=(5, 2))
        pm.Normal("y", (effects[group] * covariates).sum(axis=1), 1.0, observed=rng.normal(size=30))
        metric = pg.GMC(model=model).adaptation.metric
    metric.set_center(np.zeros(13))
    z = rng.normal(size=13)
    expected = metric._evaluate(z)
    metric._evaluate(np.full(13, np.nan))
    for found, value in zip(metric._evaluate(z), expected, strict=True):
        np.testing.assert_array_equal(found, value)


@pytest.mark.filterwarnings("ignore:Data in y contains missing")
def test_missing_values_are_effects_without_rows():
    """Their posterior is the predictive distribution, given the observed rows."""
    missing = np.arange(N_ROWS) < 9
    with pm.Model():
        mean = pm.math.stack([np.ones(N_ROWS), X], axis=1) @ pm.Normal("b", 0.0, 10.0, shape=2)
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=np.ma.array(Y, mask=missing))
        posterior = pm.sample(
            2000, tune=300, chains=1, cores=1, step=pg.GMC(), random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        ).posterior  # fmt: skip
    design = np.column_stack([np.ones(N_ROWS), X])
    b = np.linalg.lstsq(design[~missing], Y[~missing])[0]
    draws, sd = posterior["y_unobserved"].values[0], posterior["sigma"].values.mean()
    np.testing.assert_allclose(draws.mean(0), (design @ b)[missing], atol=0.15 * sd)
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.12)


def warm_up_of(other, n_tune):
    """Draws and sample stats of a warm-up with another variable."""
    with pm.Model():
        pm.Normal("a", 0.0, pm.math.exp(pm.Normal("v")), shape=7)
        other("other")
        return pm.sample(
            5, tune=n_tune, chains=1, cores=1, step=pg.GMC(), random_seed=1, progressbar=False,
            discard_tuned_samples=False, compute_convergence_checks=False,
        )  # fmt: skip


def test_warm_up_ends_when_it_has_settled():
    """The remaining draws repeat the last one, without gradients; sampling begins there."""
    idata = warm_up_of(pm.Normal, 320)
    draws, n_grad = idata.warmup_posterior["a"][0], idata.warmup_sample_stats["n_grad"][0]
    n = int((n_grad > 0).sum())
    assert 150 <= n < 300  # fewer than 300, since the posterior is normal
    assert (n_grad[:n] > 0).all()
    assert (draws[n:] == draws[n - 1]).all()
    assert (idata.sample_stats["n_grad"] > 0).all()
    assert idata.sample_stats["acceptance_rate"].notnull().all()


@pytest.mark.parametrize(("n_tune", "n_used"), [(301, 300), (420, 420)])
def test_warm_up_of_other_posteriors_continues_if_draws_are_left(n_tune, n_used):
    """Few remaining draws would not be enough for another step size."""
    idata = warm_up_of(lambda name: pm.StudentT(name, nu=1.0, shape=3), n_tune)
    assert np.count_nonzero(idata.warmup_sample_stats["n_grad"][0]) == n_used


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("sampler", "name", "n_before"),
    [
        (pg.GMC, "crossed", 30),
        (pg.GMC, "slopes of offsets", 30),
        (pg.SGGMC, "crossed", 20),
        (pg.SGGMC, "crossed", 50),
    ],
)
def test_resumes_within_the_warm_up(sampler, name, n_before):
    """The state of a step holds the metric: another step continues with the same draws."""
    model = MODELS[name]()
    steps = [sampler(model=model, rng=1) for _ in range(2)]
    for step in steps:
        step.setup_chain(np.random.default_rng(1), 60, 20)
    point = model.initial_point(random_seed=1)
    for _ in range(n_before):
        point, _ = steps[0].step(point)
    steps[1].sampling_state = steps[0].sampling_state
    points = [point, point]
    for _ in range(20):
        points = [step.step(each)[0] for step, each in zip(steps, points, strict=True)]
    for name, value in points[0].items():
        np.testing.assert_array_equal(value, points[1][name])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC])
@pytest.mark.parametrize("size", [{"shape": 7}, {"dims": "group"}])
def test_data_that_change(size, sampler):
    """The metric reads the present data: the posterior is that of the new observations."""
    with pm.Model(coords={"group": range(7)}) as model:
        y = pm.Data("y", Y)
        a = pm.Normal("a", pm.Normal("b", 0.0, 10.0), pm.HalfNormal("scale"), **size)
        pm.Normal("rows", a[GROUP], 1.0, observed=y)
        step = sampler()
        assert "sparse" in repr(step.adaptation)
        pm.set_data({"y": Y + 20.0})
        idata = pm.sample(
            300,
            tune=300,
            chains=1,
            step=step,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert abs(float(idata.posterior["a"][..., :5].mean()) - (Y + 20.0).mean()) < 0.5
    del model


@pytest.mark.usefixtures("interpreted")
def test_sparse_needs_effects():
    with pm.Model():
        pm.Normal("y", pm.Normal("x"), 1.0, observed=Y)
        with pytest.raises(ValueError, match="needs group effects"):
            pg.GMC(metric="sparse")


@pytest.mark.usefixtures("interpreted")
def test_sparse_needs_all_rows():
    with MODELS["crossed"]():
        with pytest.raises(ValueError, match="needs gradients over all rows"):
            pg.SGGMC(metric="sparse", batch_size=10)
        assert "metric='auto'" in repr(pg.SGGMC(batch_size=10).adaptation)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "mean",
    [
        pytest.param(lambda a: a[GROUP] + a.sum(), id="sum"),
        pytest.param(lambda a: a[GROUP] - a[GROUP].mean(), id="mean of the rows"),
        pytest.param(lambda a: a[GROUP].cumsum(), id="random walk"),
        pytest.param(lambda a: pt.dot(np.tril(np.ones((len(Y), len(Y)))), a[GROUP]), id="product"),
        pytest.param(lambda a: a[GROUP] + a[GROUP][::-1], id="other order"),
    ],
)
def test_other_uses_of_an_effect_are_not_a_hierarchy(mean):
    with pm.Model():
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.Normal("y", mean(a), 1.0, observed=Y)
        step = pg.GMC()
    assert "sparse" not in repr(step.adaptation)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "observe",
    [
        pytest.param(
            lambda a: pm.OrderedLogistic("y", eta=a, cutpoints=[-1.0, 1.0], observed=CLASS),
            id="ordered",
        ),
        pytest.param(
            lambda a: pm.Categorical(
                "y", p=pm.math.softmax(pt.stack([a, 0.5 * a, 0.0 * a], 1), 1), observed=CLASS
            ),
            id="categorical",
        ),
        pytest.param(
            lambda a: pm.Potential("y", -0.5 * pt.sum((Y - a) ** 2)), id="potential of all rows"
        ),
    ],
)
def test_likelihoods_of_separate_rows(observe):
    with pm.Model():
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        observe(a[GROUP])
        step = pg.GMC()
    assert "sparse" in repr(step.adaptation)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "mean",
    [
        pytest.param(lambda a, b: pt.stack([a, b])[0, GROUP], id="row of a stack"),
        pytest.param(lambda a, b: pt.stack([a, b])[::-1][0, GROUP], id="reversed"),
        pytest.param(lambda a, b: (a[:1] + b)[GROUP], id="broadcast"),
    ],
)
def test_unusual_indices_are_constructed(mean):
    with pm.Model():
        a, b = (pm.Normal(name, 0.0, pm.HalfNormal(f"{name}_sd"), shape=7) for name in "ab")
        pm.Normal("y", mean(a, b), 1.0, observed=Y)
        pg.GMC()


def test_precision_of_means_and_scales_is_positive():
    """Rows with a mean and a log scale by group have an indefinite Hessian."""
    with pm.Model() as model:
        a, b = (pm.Normal(name, 0.0, pm.HalfNormal(f"{name}_sd"), shape=7) for name in "ab")
        pm.Normal("y", a[GROUP], pm.math.exp(b[GROUP]), observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    precision = effects.precision(RNG.normal(size=16)).toarray()
    assert np.linalg.eigvalsh(precision).min() > -1e-9 * np.trace(precision)


def test_precision_of_priors_that_are_correlated_or_not():
    covariance = np.array([[2.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 0.5]])
    with pm.Model() as model:
        e = pm.Normal("e", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.MvNormal("b", np.zeros(3), cov=covariance)
        pm.Normal("c", 0.0, [0.5, 2.0])
        pm.Normal("y", e[GROUP], 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    precision = effects.precision(np.linspace(-1.0, 1.0, 13))
    of_b = np.diagonal(np.linalg.inv(covariance))
    np.testing.assert_allclose(precision.diagonal()[-5:], [*of_b, 4.0, 0.25])


@pytest.mark.usefixtures("interpreted")
def test_observations_of_different_lengths():
    """Each observed variable has its own rows; entries of one are not those of the other."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
        pm.Poisson("n", pm.math.exp(0.1 * a[GROUP[:20]]), observed=np.arange(20) % 3)
        step = pg.GMC(metric="sparse")
    step.adaptation.metric.set_center(np.full(8, 0.1))
    weight = step.adaptation.metric.centering.parameters(np.full(8, 0.1))
    assert np.isfinite(weight).all()
    del model


def short_run(step_of, **start):
    return pm.sample(
        150, tune=150, chains=1, step=step_of(), random_seed=1, progressbar=False,
        compute_convergence_checks=False, initvals=start or None,
    )  # fmt: skip


@pytest.mark.usefixtures("interpreted")
def test_likelihoods_without_second_derivatives_are_not_a_hierarchy(caplog):
    with pm.Model():
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.VonMises("y", a[GROUP], pm.HalfNormal("kappa", 5.0), observed=Y % np.pi)
        with caplog.at_level("INFO", "pymc"):
            assert "sparse" not in repr(pg.GMC().adaptation)
    assert "a are sampled without a sparse metric" in caplog.text


@pytest.mark.slow
def test_a_loading_is_not_a_scale():
    """A factor with a normal prior is zero where the chain starts, and changes its sign."""
    with pm.Model():
        z, loading = pm.Normal("z", shape=7), pm.Normal("loading")
        pm.Poisson("y", pm.math.exp(loading * z[GROUP]), observed=np.abs(Y).astype(int))
        idata = short_run(pg.GMC)
    assert np.isfinite(idata.posterior["loading"]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_a_start_where_curvatures_overflow():
    with pm.Model():
        mean, tau = pm.Normal("mean", 0.0, 5.0), pm.HalfNormal("tau")
        a = pm.Normal("a", mean, tau, shape=7)
        alpha = pm.Exponential("alpha", 1.0)
        counts = np.abs(1000 * Y).astype(int) + 2000
        pm.NegativeBinomial("y", mu=pm.math.exp(a[GROUP]), alpha=alpha, observed=counts)
        step = pg.GMC(metric="sparse")
    x = np.full(step.product.size, -60.0)
    step.adaptation.metric.set_center(x)
    assert np.isfinite(step.adaptation.metric.centering.to_position(np.zeros(x.size))).all()


@pytest.mark.slow
def test_one_group():
    """A single group whose scale has a long lower tail, against quadrature."""
    rows = Y[:20]
    with pm.Model():
        mean, tau = pm.Normal("mean"), pm.HalfNormal("tau")
        e = pm.Normal("e", mean, tau, shape=1)
        pm.Normal("y", e[np.zeros(20, dtype=int)], 1.0, observed=rows)
        step = pg.GMC()
        idata = pm.sample(
            2000, tune=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False
        )
    assert "sparse" in repr(step.adaptation)
    log_tau = np.linspace(-9, 3, 4000)
    sd = np.sqrt(1.0 + np.exp(2.0 * log_tau) + 1.0 / 20)  # of the mean of the rows
    weights = np.exp(norm.logpdf(rows.mean(), 0.0, sd) - 0.5 * np.exp(2.0 * log_tau) + log_tau)
    weights /= weights.sum()
    expected = (weights * log_tau).sum()
    exact_sd = np.sqrt((weights * (log_tau - expected) ** 2).sum())
    draws = np.log(idata.posterior["tau"])
    assert abs(float(draws.mean()) - expected) < 0.15 * exact_sd
    assert abs(float(draws.std()) / exact_sd - 1.0) < 0.15
