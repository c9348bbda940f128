"""Errors of moments due to leapfrog steps: their size, and the bound on the step size."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import digamma, polygamma

import pymc_geodesic as pg
from pymc_geodesic.adaptation.langevin_parameters import OverdampedRule, UnderdampedRule
from pymc_geodesic.adaptation.step_size_bounds import leapfrog_error_rates
from pymc_geodesic.gradients.metric import unit_metric


def log_gamma(x, shape):
    """Gradient of the log-density of the logarithm of a gamma variable."""
    return shape - np.exp(x)


@pytest.mark.parametrize("shape", [1.5, 5.0])
def test_error_of_the_mean_of_a_log_gamma_distribution(shape):
    """It is −h²/8 for every shape, by calculation."""
    rng = np.random.default_rng(1)
    x = np.log(rng.gamma(shape, size=(200_000, 1)))
    of_means, _ = leapfrog_error_rates(unit_metric(1, 0), x, log_gamma(x, shape))
    assert of_means == pytest.approx(-1.0, rel=0.1)


def test_moments_of_a_normal_distribution_are_exact():
    x = np.random.default_rng(1).normal(size=(1_000, 3))
    for rates in leapfrog_error_rates(unit_metric(3, 0), x, -x):
        assert np.abs(rates).max() < 0.2


def test_bound_for_moments():
    rule, nothing = UnderdampedRule(), np.zeros(2)
    assert rule.max_step_size_for_moments(nothing, nothing) == np.inf
    for arguments in (lambda x: (x, nothing), lambda x: (nothing, x)):
        short, long = (
            rule.max_step_size_for_moments(*arguments(np.array([1.0, rate])))
            for rate in (-16.0, 4.0)
        )
        assert long == pytest.approx(2.0 * short)
    assert OverdampedRule().max_step_size_for_moments(np.ones(1), np.ones(1)) == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("step_size", [0.2, 0.3])
def test_error_of_the_mean_is_that_of_the_calculation(step_size):
    """−h²/8, for many independent coordinates."""
    shape, n = 4.0, 1_000
    with pm.Model():
        x = pm.Flat("x", shape=n, initval=np.full(n, digamma(shape)))
        pm.Potential("log_density", pm.math.sum(shape * x - pm.math.exp(x)))
        step = pg.SGGMC(step_size=step_size, friction=2.0, n_steps=10)
        draws = pm.sample(
            1_500, tune=100, step=step, chains=2, cores=1, progressbar=False, random_seed=1,
            compute_convergence_checks=False,
        ).posterior["x"].values  # fmt: skip
    off = draws.mean() - digamma(shape)
    error = np.sqrt(polygamma(1, shape) / draws.size)
    assert off == pytest.approx(-(step_size**2) / 8.0, rel=0.2, abs=4.0 * error)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.gSGNHT])
def test_residual_scale_of_a_small_regression(sampler):
    """With flat priors σ² has a scaled inverse χ² distribution."""
    rng = np.random.default_rng(0)
    x, degrees = rng.normal(size=(25, 15)), 10
    y = x @ rng.normal(size=15) + rng.normal(size=25)
    with pm.Model():
        b, log_sd = pm.Flat("b", shape=15), pm.Flat("log_sd")
        pm.Normal("y", x @ b, pm.math.exp(log_sd), observed=y)
        draws = pm.sample(
            4_000, step=sampler(), chains=4, cores=1, progressbar=False, random_seed=1
        ).posterior["log_sd"].values  # fmt: skip
    squares = float(np.linalg.lstsq(x, y)[1][0])
    mean = 0.5 * (np.log(0.5 * squares) - digamma(0.5 * degrees))
    sd = 0.5 * np.sqrt(polygamma(1, 0.5 * degrees))
    assert abs(draws.mean() - mean) < 0.15 * sd
    assert draws.std() == pytest.approx(sd, rel=0.07)


@pytest.mark.slow
def test_standard_deviations_of_a_t_distribution():
    """Steps of 0.5 made them 11 % too large."""
    degrees, n = 6.0, 20
    with pm.Model():
        pm.MvStudentT("x", nu=degrees, mu=np.zeros(n), scale=np.eye(n))
        draws = pm.sample(
            2_000, step=pg.SGGMC(), chains=4, cores=1, progressbar=False, random_seed=1
        ).posterior["x"].values  # fmt: skip
    variance = draws.var(axis=(0, 1)).mean()
    assert variance == pytest.approx(degrees / (degrees - 2.0), rel=0.1)
