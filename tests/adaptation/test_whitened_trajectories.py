"""Adaptation of Hamiltonian trajectories, and splitting of the Hamiltonian."""

from itertools import product

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.adaptation.whitened_trajectories import SETTINGS, WhitenedTrajectories
from pymc_geodesic.densities.compilation import CompiledGradient
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.kernels.gmc import MAX_STAGES
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.gradient_functions import python_function
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.samplers.hmc import HMCSampler

SIZE = 4
MEANS, SCALES = np.array([1.0, -20.0, 0.0, 3.0]), np.array([1.0, 5.0, 0.1, 30.0])


def normal(position):
    standard = (position - MEANS) / SCALES
    return np.append(-standard / SCALES, -0.5 * standard @ standard)


def cauchy(position):
    """One degree of freedom."""
    standard = (position - MEANS) / SCALES
    gradient = -2.0 * standard / (1.0 + standard**2) / SCALES
    return np.append(gradient, -np.sum(np.log1p(standard**2)))


def make_sampler(density, **options):
    def logp_grad(position, minibatch, context, output):
        x = np.ctypeslib.as_array(position, (SIZE,))
        np.ctypeslib.as_array(output, (SIZE + 1,))[:] = density(x)
        return 0.0

    manifold = Product([("x", Euclidean(SIZE), 1)])
    gradient = AdaptedGradient(SIZE, [], CompiledGradient(python_function(logp_grad), []))
    options = {"target_accept": 0.8, "metric": "auto", "can_reuse_gradient": True} | options
    return HMCSampler(WhitenedTrajectories(gradient, manifold, **options))


def sample(sampler, n_tune=400, n_draws=4000, seed=1):
    sampler.initialize(new_stream(np.random.default_rng(seed)), n_tune, n_draws)
    sampler.start(np.full(SIZE, 0.5))
    for _ in range(n_tune):
        sampler.draw(tune=True)
    draws, stats = np.empty((n_draws, SIZE)), []
    for i in range(n_draws):
        stats.append(sampler.draw(tune=False))
        draws[i] = sampler.position
    return draws, {name: np.array([each[name] for each in stats]) for name in stats[0]}


def test_a_normal_posterior_takes_one_gradient_per_draw():
    sampler = make_sampler(normal)
    draws, stats = sample(sampler)
    assert sampler.adaptation.is_split
    np.testing.assert_allclose(sampler.adaptation.gradient.metric.center, MEANS, atol=1e-3)
    assert stats["n_grad"].mean() == 1.0
    assert stats["acceptance_rate"].mean() > 0.99
    longest = (1.0 + SETTINGS.length_jitter) * SETTINGS.length
    assert stats["step_size"].max() <= longest
    assert stats["step_size"].mean() == pytest.approx(SETTINGS.length, rel=0.02)
    errors = (draws.mean(axis=0) - MEANS) / SCALES
    assert np.abs(errors).max() < 5.0 / np.sqrt(0.5 * len(draws))
    np.testing.assert_allclose(draws.std(axis=0), SCALES, rtol=5.0 / np.sqrt(len(draws)))


@pytest.mark.parametrize(
    ("density", "options"),
    [
        (cauchy, {}),
        (normal, {"may_split": False}),
        (normal, {"n_steps": 3}),
        (normal, {"angles": ["x"]}),
    ],
    ids=["heavy tails", "not allowed", "fixed number of steps", "angles"],
)
def test_other_trajectories_use_the_leapfrog(density, options):
    sampler = make_sampler(density, **options)
    _, stats = sample(sampler, n_draws=1000)
    assert not sampler.adaptation.is_split
    assert stats["acceptance_rate"].mean() > 0.7


def test_steps_of_a_trajectory_are_equal_and_make_up_its_length():
    sampler = make_sampler(normal)
    sample(sampler, n_draws=1)
    adaptation = sampler.adaptation
    for step_size, share in product((0.9, 0.3, 0.11), (0.0, 0.5, 0.99)):
        n_steps, stages, found = adaptation._random_trajectory(step_size, share, tune=False)
        length = SETTINGS.length * (1.0 + SETTINGS.length_jitter * (2.0 * share - 1.0))
        assert n_steps * found == pytest.approx(length)
        assert 0.5 * step_size < found <= step_size
        assert n_steps % stages == 0
        assert stages <= MAX_STAGES
        assert (stages == 1) == (n_steps < SETTINGS.min_stages)
    assert adaptation._random_trajectory(1e-6, 0.5, tune=False) == (SETTINGS.max_steps, 1, 1e-6)


def test_few_exceptions_follow_the_leapfrog():
    """A distribution with heavy tails next to a normal one."""
    with pm.Model() as model:
        pm.Normal("x", shape=40)
        pm.StudentT("t", nu=1.0)
        step = pg.GMC(model=model)
        idata = pm.sample(
            1000, tune=500, chains=2, cores=1, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    is_harmonic = step.sampler.adaptation.state["is_harmonic"]
    assert is_harmonic.tolist() == 40 * [True] + [False]
    t = np.abs(idata.posterior["t"].values)
    assert np.median(t) == pytest.approx(1.0, rel=0.25)  # a standard Cauchy distribution


def test_a_restored_chain_continues_with_the_same_integrator():
    sampler = make_sampler(normal)
    sample(sampler, n_draws=1)
    state = sampler.state
    expected = [sampler.draw(tune=False)["energy"] for _ in range(5)]
    other = make_sampler(normal)
    other.state = state
    assert [other.draw(tune=False)["energy"] for _ in range(5)] == expected


@pytest.mark.parametrize("seed", [0, 1])
def test_a_flat_log_density_has_its_scale_from_draws(seed):
    """The curvature between −1 and 1 is a tenth of that of a normal distribution.

    With a metric that is three times as wide along this coordinate, a draw took 100 gradients.
    """
    with pm.Model():
        x = pm.Flat("x", shape=60)
        pm.Potential("density", -(x[0] ** 8) - 0.5 * pm.math.sum(x[1:] ** 2))
        draws = pm.sample(
            100, tune=1_000, chains=2, cores=1, step=pg.SGGMC(), random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    assert draws.sample_stats["n_grad"].mean() < 30.0
