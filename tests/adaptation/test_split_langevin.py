"""Split Hamiltonian of Langevin dynamics: bounds on the step size, and what samplers gain."""

import numpy as np
import pymc as pm
import pytest
from scipy.linalg import solve_discrete_lyapunov

import pymc_geodesic as pg
from pymc_geodesic.adaptation.langevin_parameters import SETTINGS as LANGEVIN
from pymc_geodesic.adaptation.split_hamiltonian import SETTINGS, split_hamiltonian
from pymc_geodesic.gradients.metric import Metric
from tests.steps.runs import sample


def variance(curvature: float, h: float, friction: float) -> float:
    """Stationary variance of a coordinate that follows the flow of N(0, 1) between kicks."""
    half = np.array([[np.cos(0.5 * h), np.sin(0.5 * h)], [-np.sin(0.5 * h), np.cos(0.5 * h)]])
    kick = np.array([[1.0, 0.0], [-0.5 * h * (curvature - 1.0), 1.0]])
    decay = np.exp(-friction * h)
    move = half @ kick @ np.diag([1.0, decay]) @ kick @ half
    noise = half @ kick @ np.array([0.0, np.sqrt(1.0 - decay**2)])
    return solve_discrete_lyapunov(move, np.outer(noise, noise))[0, 0]


@pytest.mark.parametrize("h", [0.3, 1.0])
@pytest.mark.parametrize("curvature", [0.98, 1.02])
def test_error_of_a_variance(curvature, h):
    """δh²/12 for the curvature 1 + δ, to first order."""
    error = curvature * variance(curvature, h, friction=1.0) - 1.0
    assert error == pytest.approx((curvature - 1.0) / 12.0 * h**2, rel=0.1)


@pytest.mark.parametrize("curvature", [0.7, 0.85, 1.2, 1.5])
def test_bound_limits_the_error_of_a_variance(curvature):
    x = np.random.default_rng(1).normal(size=(4000, 1)) / np.sqrt(curvature)
    metric = Metric(np.zeros(1), np.ones(1))
    is_harmonic, h = split_hamiltonian(metric, x, -curvature * x, may_have_exceptions=False)
    assert is_harmonic.all()
    assert h > 0.5
    error = curvature * variance(curvature, h, friction=1.0) - 1.0
    assert abs(error) < 1.2 * SETTINGS.max_error


def test_bound_by_the_energy():
    """The error of the Hamiltonian adds up over coordinates of the same sign."""
    x = np.random.default_rng(2).normal(size=(1000, 400))
    bounds = [
        split_hamiltonian(
            Metric(np.zeros(n), np.ones(n)), x[:, :n], -1.1 * x[:, :n], may_have_exceptions=False
        )[1]
        for n in (1, 400)
    ]
    assert bounds[0] == LANGEVIN.max_split_step_size
    energy = 0.1 * np.sqrt(2.0 * 400.0) / 24.0  # standard deviation of Σ δz² h²/24
    assert bounds[1] == pytest.approx(np.sqrt(SETTINGS.max_error_of_scales / energy), rel=0.1)


def test_exceptions_follow_straight_lines():
    x = np.random.default_rng(2).normal(size=(1000, 40))
    gradients = -x
    gradients[:, 3] = -x[:, 3] - 0.5 * (x[:, 3] ** 2 - 1.0)
    metric = Metric(np.zeros(40), np.ones(40))
    is_harmonic, h = split_hamiltonian(metric, x, gradients, may_have_exceptions=True)
    assert np.flatnonzero(~is_harmonic).tolist() == [3]
    assert h == LANGEVIN.max_step_size
    for n, may_have_exceptions in ((1000, False), (29, True)):
        is_harmonic, h = split_hamiltonian(
            metric, x[:n], gradients[:n], may_have_exceptions=may_have_exceptions
        )
        assert is_harmonic.size == 0
        assert h == np.inf


@pytest.mark.parametrize(
    ("sampler", "batch_size"), [(pg.SGGMC, None), (pg.SGGMC, 200), (pg.gSGNHT, None)]
)
def test_regression_takes_two_steps_per_draw(sampler, batch_size):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5000, 5))
    y = rng.random(5000) < 1.0 / (1.0 + np.exp(-x @ [1.0, -0.5, 0.3, 0.0, 0.2]))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 5.0, shape=5)
        pm.Bernoulli("y", logit_p=pm.Data("x", x) @ b, observed=y.astype(int))
    idata = sample(model, sampler(batch_size=batch_size, model=model), tune=1000)
    assert idata.sample_stats["step_size"].max() == 1.0
    assert idata.sample_stats["n_grad"].mean() < 4.0


@pytest.mark.parametrize("sd", [0.0, 0.5])
def test_groups_less_informative_than_their_prior(sd):
    """Minibatches: split only where the scale of group effects is far from zero."""
    rng = np.random.default_rng(0)
    group, effects = rng.integers(200, size=20_000), sd * rng.normal(size=200)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=200)
        y = rng.poisson(np.exp(0.5 + effects[group]))
        pm.Poisson("y", pm.math.exp(pm.Normal("a") + u[group]), observed=y)
    step = pg.SGGMC(batch_size=500, model=model)
    sample(model, step, tune=600)
    assert step.adaptation.parameters.is_harmonic.any() == (sd > 0.0)
