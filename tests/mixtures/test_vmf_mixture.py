"""Mixtures of von Mises–Fisher distributions: density, start, posterior, labels."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import sparse, stats
from scipy.special import logsumexp

import pymc_geodesic as pg
from pymc_geodesic.datasets import make_vmf_mixture
from pymc_geodesic.mixtures import component_probabilities, vmf_mixture, vmf_mixture_em
from pymc_geodesic.ops.bessel import (
    kappa_of_resultant_length,
    log_vmf_normalizer,
    mean_resultant_length,
)
from pymc_geodesic.topics import ConvergenceWarning, align_topics
from tests.steps.runs import INTERPRETED

MEANS = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])


@pytest.fixture(scope="module")
def points():
    return make_vmf_mixture(MEANS, 20.0, 400, random_seed=1)[0]


def log_likelihood(points, weights, mu, kappa):
    terms = np.log(weights) + log_vmf_normalizer(points.shape[1], kappa)
    return logsumexp(terms + kappa * (points @ mu.T), axis=1).sum()


class TestEM:
    @pytest.mark.parametrize("d", [2, 3, 50, 5000])
    @pytest.mark.parametrize("kappa", [0.01, 3.0, 800.0, 1e6])
    def test_concentration_inverts_the_resultant_length(self, d, kappa):
        found = kappa_of_resultant_length(d, mean_resultant_length(d, np.array([kappa])))
        np.testing.assert_allclose(mean_resultant_length(d, found),
                                   mean_resultant_length(d, kappa), rtol=1e-10)  # fmt: skip
        assert found == pytest.approx(kappa, rel=1e-4)

    @pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("shared", [False, True])
    def test_is_a_maximum(self, points, container, shared):
        """No small change of a parameter raises the likelihood."""
        fit = vmf_mixture_em(
            container(points), 2, shared_kappa=shared, tolerance=1e-13, random_seed=1
        )
        assert (fit.kappa[0] == fit.kappa[1]) == shared
        best = log_likelihood(points, fit.weights, fit.mu, fit.kappa)
        assert fit.log_likelihood == pytest.approx(best, abs=1e-6)
        rng = np.random.default_rng(1)
        for _ in range(20):
            mu = fit.mu + 1e-2 * rng.normal(size=fit.mu.shape)
            mu /= np.linalg.norm(mu, axis=1, keepdims=True)
            w = fit.weights * np.exp(1e-2 * rng.normal(size=2))
            kappa = fit.kappa * np.exp(1e-2 * rng.normal(size=1 if shared else 2))
            assert log_likelihood(points, w / w.sum(), mu, kappa) < best
        assert (fit.mu * MEANS[np.argsort(-np.abs(MEANS @ fit.mu[0]))]).sum(axis=1).min() > 0.99
        assert fit.weights[0] >= fit.weights[1]

    def test_published_fits(self, household):
        """movMF's fits of household expenditures (housing, food, service)."""
        for n_components, published in ((2, [114.7, 18.0]), (3, [83.3, 181.2, 62.9])):
            fit = vmf_mixture_em(household, n_components, n_restarts=30, random_seed=1)
            np.testing.assert_allclose(sorted(fit.kappa), sorted(published), atol=0.051)

    def test_equal_points_stay_finite(self):
        fit = vmf_mixture_em(np.tile([[0.6, 0.8]], (5, 1)), 2, random_seed=1)
        assert np.isfinite(fit.kappa).all()
        assert np.isfinite(fit.mu).all()


@pytest.fixture
def household(data_home):
    rows = np.load(data_home / "household.npz")["X"][:, [0, 1, 3]].astype(float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("process", [False, True])
def test_log_density(points, container, process):
    """The log-density of the model against its formula."""
    model = vmf_mixture(container(points[:30]), 3, alpha=2.0, dirichlet_process=process,
                        start="prior")  # fmt: skip
    rng = np.random.default_rng(1)
    mu = rng.normal(size=(3, 3))
    mu /= np.linalg.norm(mu, axis=1, keepdims=True)
    kappa, v, a = np.array([3.0, 10.0, 0.5]), np.array([0.3, 0.6]), 1.7
    w = np.array([0.3, 0.7 * 0.6, 0.7 * 0.4])
    expected = log_likelihood(points[:30], w, mu, kappa)
    expected += stats.lognorm(1.5, scale=3.0).logpdf(kappa).sum()
    first, second = (1.0, a) if process else (2.0, np.array([4.0, 2.0]))
    expected += stats.beta(first, second).logpdf(v).sum()
    point = {"mu_unitvector__": mu, "kappa_log__": np.log(kappa),
             "sticks_logodds__": np.log(v / (1 - v))}  # fmt: skip
    if process:
        expected += stats.expon(scale=2.0).logpdf(a)
        point["concentration_log__"] = np.log(a)
    sphere = -3 * np.log(4 * np.pi)
    found = model.compile_logp(jacobian=False, mode="FAST_COMPILE")(point)
    assert found == pytest.approx(expected + sphere, rel=1e-8)


def test_shared_concentration(points):
    """The density equals that of equal concentrations with one prior."""
    model = vmf_mixture(points[:30], 2, shared_kappa=True)
    assert model["kappa"].ndim == 0
    start = vmf_mixture_em(points[:30], 2, shared_kappa=True, random_seed=0)
    assert model.initial_point()["kappa_log__"] == pytest.approx(np.log(start.kappa[0]))
    logp = model.compile_logp([model["direction"]], sum=False, mode="FAST_COMPILE")
    (each,) = logp(model.initial_point())
    assert each.sum() == pytest.approx(start.log_likelihood, rel=1e-6)
    idata = az.from_dict(
        {"posterior": {"weights": start.weights[None, None], "mu": start.mu[None, None],
                       "kappa": start.kappa[None, None, 0]}}
    )  # fmt: skip
    np.testing.assert_allclose(
        component_probabilities(idata, points[:30]), start.probabilities, atol=1e-4
    )


def test_sticks_are_a_dirichlet():
    """E w_k = 1/K and Var w_k = (K − 1) / (K² (K α + 1))."""
    model = vmf_mixture(np.eye(4), 4, alpha=0.7, start="prior")
    weights = pm.draw(model["weights"], 20_000, random_seed=1, mode="FAST_COMPILE")
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(weights.mean(axis=0), 0.25, atol=0.006)
    np.testing.assert_allclose(weights.var(axis=0), 3 / (16 * 3.8), rtol=0.04)


@pytest.fixture(scope="module")
def draws(points):
    model = vmf_mixture(points, 2)
    with model:
        return model, pm.sample(
            step=pg.SGGMC(batch_size=100, minibatch=["points"]), draws=500, tune=500, chains=2,
            cores=1, progressbar=False, random_seed=1, compute_convergence_checks=False,
        )  # fmt: skip


@pytest.mark.slow
def test_posterior_agrees_with_the_asymptotic_posterior(draws, points):
    """With 400 points: mean near the maximum, sd of κ near κ / sqrt(n w (d − 1) / 2)."""
    _, idata = draws
    fit = vmf_mixture_em(points, 2, random_seed=1)
    summary = az.summary(idata, var_names=["mu", "kappa", "weights"], fmt="xarray")
    for name in ("mu", "kappa", "weights"):
        assert float(summary[name].sel(summary="r_hat").astype(float).max()) < 1.03
    kappa = idata.posterior["kappa"].values.reshape(-1, 2)
    sd = fit.kappa / np.sqrt(len(points) * fit.weights)
    assert np.all(np.abs(kappa.mean(axis=0) - fit.kappa) < 0.5 * sd)
    np.testing.assert_allclose(kappa.std(axis=0), sd, rtol=0.15)
    mean = idata.posterior["mu"].values.reshape(-1, 2, 3).mean(axis=0)
    cosine = (mean * fit.mu).sum(axis=1) / np.linalg.norm(mean, axis=1)
    assert np.all(1.0 - cosine < 0.5 / (len(points) * fit.weights * fit.kappa))


@pytest.fixture(scope="module")
def near(points):
    """Draws around the maximum, their components in another order in the second chain."""
    fit, rng = vmf_mixture_em(points, 2, random_seed=1), np.random.default_rng(2)
    mu = fit.mu + 0.01 * rng.normal(size=(2, 50, 2, 3))
    posterior = {
        "mu": mu / np.linalg.norm(mu, axis=-1, keepdims=True),
        "kappa": fit.kappa * rng.uniform(0.97, 1.03, size=(2, 50, 2)),
        "weights": np.broadcast_to(fit.weights, (2, 50, 2)).copy(),
    }
    for values in posterior.values():
        values[1] = values[1, :, ::-1].copy()
    model = vmf_mixture(points, 2)
    dims = {name: list(model.named_vars_to_dims[name]) for name in posterior}
    coords = {name: list(values) for name, values in model.coords.items() if values is not None}
    return model, az.from_dict({"posterior": posterior}, dims=dims, coords=coords)


def test_labels(near, points):
    aligned = align_topics(near[1], var_name="mu")
    soft = component_probabilities(aligned, points)
    assert soft.dims == ("point", "component")
    np.testing.assert_allclose(soft.sum("component"), 1.0)
    fit = vmf_mixture_em(points, 2, random_seed=1)
    np.testing.assert_allclose(soft, fit.probabilities, atol=0.05)
    some = component_probabilities(aligned, sparse.csr_array(points[:7]))
    np.testing.assert_allclose(some, soft[:7], atol=0.01)


def test_new_points(near):
    model, idata = near
    with model:
        new = pm.sample_posterior_predictive(
            idata.isel(draw=slice(0, 5)), progressbar=False, random_seed=1,
            compile_kwargs=INTERPRETED,
        )  # fmt: skip
    np.testing.assert_allclose(np.linalg.norm(new.posterior_predictive["direction"], axis=-1), 1.0)


def test_invalid_arguments_raise(points):
    with pytest.raises(ValueError, match=r"no unit vectors, the first of them points\[0\]"):
        vmf_mixture(2.0 * points, 2)
    with pytest.raises(ValueError, match="points has missing values"):
        vmf_mixture_em(
            np.ma.masked_array(points, np.arange(points.size).reshape(points.shape) < 1), 2
        )
    with pytest.raises(ValueError, match="no unit vectors"):
        vmf_mixture(sparse.csr_array(0.5 * points), 2)
    broken = points.copy()
    broken[5, 1] = np.nan
    with pytest.raises(ValueError, match="points has missing values"):
        vmf_mixture(broken, 2)
    with pytest.raises(ValueError, match="from 2 to the number of points, 400, got 1"):
        vmf_mixture(points, 1)
    with pytest.raises(ValueError, match="kappa_median must be a positive number, got -1"):
        vmf_mixture(points, 2, kappa_median=-1)
    with pytest.raises(ValueError, match='choose "em" or "prior"'):
        vmf_mixture(points, 2, start="somewhere")
    with pytest.raises(ValueError, match="3 columns but there are 2 names"):
        vmf_mixture(points, 2, names=["a", "b"])
    with pytest.raises(ValueError, match="between 1 and the number of points, 400"):
        vmf_mixture_em(points, 401)
    for name, wrong in (("n_components", 2.5), ("n_restarts", 0), ("max_passes", 0)):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1"):
            vmf_mixture_em(points, **{"n_components": 2, name: wrong})
    with pytest.raises(ValueError, match="no variable 'weights'"):
        component_probabilities(az.from_dict({"posterior": {"mu": np.ones((1, 2, 3))}}), points)
    drawn = {"weights": np.full((1, 2, 2), 0.5), "mu": np.tile(np.eye(3)[:2], (1, 2, 1, 1))}
    idata = az.from_dict({"posterior": drawn | {"kappa": np.full((1, 2, 2), 3.0)}})
    assert component_probabilities(idata, points).shape == (400, 2)
    with pytest.raises(ValueError, match="points has missing values"):
        component_probabilities(idata, broken)
    for wrong in (2.0 * points, sparse.csr_array(2.0 * points)):
        with pytest.raises(ValueError, match=r"no unit vectors.*divide each row by its length"):
            component_probabilities(idata, wrong)
    with pytest.raises(
        ValueError, match=r"takes draws of .* first, as an xarray.DataTree; got ndarray"
    ):
        component_probabilities(np.eye(3), idata)


def test_unconverged_fit_warns(points):
    words = "did not converge within max_passes=3: the last pass still added .* to the log-lik"
    with pytest.warns(ConvergenceWarning, match=words) as caught:
        vmf_mixture_em(points, 4, max_passes=3, tolerance=0.0, random_seed=1)
    assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match=r"max_passes=\d+\. Increase max_passes"):
        vmf_mixture_em(points, 4, max_passes=1, random_seed=1)
    vmf_mixture_em(points, 4, max_passes=2, tolerance=1e9, random_seed=1)  # warnings are errors
