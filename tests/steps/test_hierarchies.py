"""Hierarchical models: coordinates, metric and posteriors of group effects."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.stats import norm

import pymc_geodesic as pg
from pymc_geodesic.runtime.gradient_functions import evaluate
from tests.grids import slow
from tests.steps.hierarchies import GROUP, MODELS, N_ROWS, X, Y, cholesky
from tests.steps.runs import INTERPRETED


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
    effects = np.setdiff1d(np.arange(z.size), metric.others)
    hessian = derivative(lambda each: of_metric(each)[effects], z, 1e-4)[effects]
    curvature = np.linalg.eigvalsh(-0.5 * (hessian + hessian.T))
    assert np.abs(of_metric(z)[effects]).max() < 1.0
    assert curvature.min() > 0.05
    assert curvature.max() < 5.0


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
@pytest.mark.parametrize(
    "coefficients",
    [
        pytest.param(lambda scale: pm.Laplace("b", 0.0, scale, shape=2), id="Laplace"),
        pytest.param(lambda scale: [pm.Normal(name, 0.0, scale) for name in "bc"], id="numbers"),
    ],
)
def test_scales_of_other_priors_stay_where_they_are(coefficients):
    """The joint density is unbounded as the scale and all coefficients approach zero."""
    with pm.Model() as model:
        b = coefficients(pm.HalfNormal("scale"))
        e = pm.Normal("e", 0.0, pm.HalfNormal("e_scale"), shape=7)
        pm.Normal("y", 0.1 * (b[0] * X + b[1] * X**2) + e[GROUP], 1.0, observed=Y)
    metric = pg.GMC(model=model, metric="sparse").adaptation.metric
    start = np.where(np.arange(metric.others.size + 7) == 0, -0.5, 0.0)
    assert metric.find_center(start)[0] == pytest.approx(-0.5)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("centered", [True, False])
def test_center_far_from_the_initial_position(centered):
    """Newton steps with the initial curvature overflow: counts are near 3,000, the rate is 1."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(25), 4)
    counts = rng.poisson(np.exp(8.0 + 0.5 * rng.normal(size=25)[group]))
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0.0, 20.0), pm.HalfNormal("scale", 2.0)
        if centered:
            log_rate = pm.Normal("e", mean, scale, shape=25)[group]
        else:
            log_rate = mean + scale * pm.Normal("e", shape=25)[group]
        pm.Poisson("y", pm.math.exp(log_rate), observed=counts)
    step = pg.GMC(model=model, metric="sparse")
    for seed in range(4):
        start = np.random.default_rng(seed).uniform(-1.0, 1.0, size=step.product.size)
        with np.errstate(all="ignore"):
            center = step.adaptation.metric.find_center(start)
        assert center[step.product.slices["mean"]].item() == pytest.approx(8.0, abs=0.4)


@pytest.mark.usefixtures("interpreted")
def test_residual_scale_of_effects_that_fit_all_rows():
    """Two effects fit the two rows of each person; the residuals have the sd 0.6."""
    rng = np.random.default_rng(1)
    person, time = np.repeat(np.arange(60), 2), np.tile([0.0, 1.0], 60)
    a, b = 0.8 * rng.normal(size=60), 0.6 * rng.normal(size=60)
    y = (a + 0.5)[person] + b[person] * time + 0.6 * rng.normal(size=120)
    with pm.Model() as model:
        a = pm.Normal("a", pm.Normal("mean"), pm.HalfNormal("a_scale"), shape=60)
        b = pm.Normal("b", 0.0, pm.HalfNormal("b_scale"), shape=60)
        pm.Normal("y", a[person] + b[person] * time, pm.HalfNormal("sigma"), observed=y)
    step = pg.GMC(model=model, metric="sparse")
    center = step.adaptation.metric.find_center(np.zeros(step.product.size))
    assert -0.9 < center[step.product.slices["sigma"]].item() < -0.1


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
@pytest.mark.parametrize("by_index", [True, slow(False)])
@pytest.mark.parametrize("centered", [True, slow(False)])
def test_means_and_scales_of_groups(centered, by_index, sampler):
    """Groups with one row and with none, against quadrature."""
    indicators = np.eye(7)[GROUP]
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau")
        a = pm.Normal("a", mu, tau, shape=7) if centered else mu + tau * pm.Normal("a", shape=7)
        pm.Normal("y", a[GROUP] if by_index else indicators @ a, 1.0, observed=Y)
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


def horseshoe_grid(means):
    """Log scales τ and their distribution, for means with variance 0.1 and half-Cauchy scales."""
    log_tau = np.linspace(-14.0, 3.0, 2000)
    local = np.tan(0.5 * np.pi * (np.arange(4000) + 0.5) / 4000)
    log_density = log_tau - 0.5 * np.exp(2.0 * log_tau)
    for k, each in enumerate(np.exp(log_tau)):
        sd = np.sqrt((each * local) ** 2 + 0.1)
        log_density[k] += np.log(norm.pdf(means[:, None], 0.0, sd).mean(axis=1)).sum()
    weights = np.exp(log_density - log_density.max())
    return log_tau, (np.cumsum(weights) - 0.5 * weights) / weights.sum()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC])
@pytest.mark.parametrize("centered", [True, False])
def test_horseshoe(centered, sampler):
    """Orthogonal covariates: least-squares estimates are independent given the scales.

    SGGMC, without Metropolis correction, has 0.71 times as many draws below the 1 % quantile of tau
    as expected (standard error 0.03, eight runs), and 0.87 times as many below the 5 % quantile.
    """
    means = np.array([2.0, -1.0, 0.6, 0.3, -0.3, 0.2, -0.2, 0.1, 0.0, -0.1])
    rows = np.linalg.qr(np.random.default_rng(1).normal(size=(60, 10)))[0] * np.sqrt(10.0)
    with pm.Model():
        local, tau = pm.HalfCauchy("local", 1.0, shape=10), pm.HalfNormal("tau")
        scale = tau * local
        b = pm.Normal("b", 0.0, scale, shape=10) if centered else scale * pm.Normal("b", shape=10)
        pm.Normal("y", rows @ b, 1.0, observed=rows @ means)
        idata = pm.sample(
            4000, tune=1000, chains=4, cores=1, step=sampler(), random_seed=1, progressbar=False
        )
    assert idata.sample_stats["diverging"].mean() < 1e-3
    draws = np.log(idata.posterior["tau"].values.ravel())
    log_tau, distribution = horseshoe_grid(means)
    probabilities = np.array([0.01, 0.05, 0.2, 0.8, 0.95, 0.99])
    found = [np.mean(draws < each) for each in np.interp(probabilities, distribution, log_tau)]
    errors = (np.array(found) - probabilities) / np.minimum(probabilities, 1.0 - probabilities)
    of_lowest = 0.3 if sampler is pg.GMC else 0.45
    np.testing.assert_array_less(np.abs(errors), [of_lowest, 0.2, 0.08, 0.08, 0.2, 0.3])


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
@pytest.mark.parametrize(
    ("prior", "names", "reason"),
    [
        (pm.StudentT, None, "no variable with a normal prior"),
        (pm.Normal, ["a"], "another step samples 'scale'; let one step sample all variables"),
    ],
)
def test_log_says_why_effects_are_not_partially_centered(prior, names, reason, caplog):
    parameters = {"nu": 4.0} if prior is pm.StudentT else {}
    with pm.Model() as model, caplog.at_level("INFO", "pymc"):
        a = prior("a", mu=0.0, sigma=pm.HalfNormal("scale"), shape=7, **parameters)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
        step = pg.GMC(names and [model[name] for name in names])
    assert "sparse" not in repr(step.adaptation)
    assert f"GMC: no partial centering of a: {reason}" in caplog.text


@pytest.mark.usefixtures("interpreted")
def test_log_names_effects_with_and_without_partial_centering(caplog):
    with pm.Model(), caplog.at_level("INFO", "pymc"):
        scale = pm.HalfNormal("scale")
        a, trend = (pm.Normal(name, 0.0, scale, shape=7) for name in ("a", "trend"))
        walk = pt.cumsum(pm.StudentT("walk", nu=4.0, sigma=scale, shape=7))
        pm.Normal("y", a[GROUP] + trend[GROUP] * X + walk[GROUP], 1.0, observed=Y)
        pg.GMC()
    assert "GMC: partial centering of a, trend" in caplog.text
    assert "GMC: no partial centering of walk: the prior is not normal" in caplog.text


@pytest.mark.usefixtures("interpreted")
def test_sparse_needs_all_rows():
    with MODELS["crossed"]():
        with pytest.raises(ValueError, match="needs gradients over all rows"):
            pg.SGGMC(metric="sparse", batch_size=10)
        assert "metric='auto'" in repr(pg.SGGMC(batch_size=10).adaptation)


def short_run(step_of, **start):
    return pm.sample(
        150, tune=150, chains=1, step=step_of(), random_seed=1, progressbar=False,
        compute_convergence_checks=False, initvals=start or None,
    )  # fmt: skip


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
