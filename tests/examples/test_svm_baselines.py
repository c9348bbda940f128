"""Correctness of the reference samplers of the examples."""

import arviz as az
import numpy as np
import pytest

from examples.svm_baselines import (
    DataAugmentationGibbs,
    StochasticRandomWalk,
    log_posterior,
    pegasos,
    quadrature,
)

LOSS = {"cost": 1.4, "margin": 0.8, "prior_scale": np.array([1.0, 0.5])}
N = 60


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 2, size=(N, 2))
    return X, np.where(X @ [1.0, -0.6] + 0.4 * rng.normal(size=N) > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def exact(data):
    return quadrature(*data, **LOSS)


@pytest.mark.slow
def test_quadrature_integrates_a_normal_distribution(data):
    """With no cost the posterior is the prior, with a huge margin a shifted normal distribution."""
    X, y = data
    prior = quadrature(X, y, cost=0.0, prior_scale=LOSS["prior_scale"])
    np.testing.assert_allclose(prior.mean, 0.0, atol=1e-10)
    np.testing.assert_allclose(prior.sd, LOSS["prior_scale"], rtol=1e-6)
    linear = quadrature(X, y, cost=0.05, margin=1e3, prior_scale=LOSS["prior_scale"])
    expected = LOSS["prior_scale"] ** 2 * 0.05 * (y @ X)
    np.testing.assert_allclose(linear.mean, expected, rtol=1e-6)
    np.testing.assert_allclose(linear.covariance, np.diag(LOSS["prior_scale"] ** 2), atol=1e-5)


@pytest.mark.slow
def test_quadrature_does_not_depend_on_its_grid(data, exact):
    finer = quadrature(*data, **LOSS, cells=700, half_width=8.0)
    np.testing.assert_allclose(finer.mean, exact.mean, atol=1e-4)
    np.testing.assert_allclose(finer.covariance, exact.covariance, rtol=1e-3)


def z_scores(draws, exact):
    """Of means and second moments of independent draws."""
    centred = (draws - exact.mean) / exact.sd
    correlation = exact.covariance[0, 1] / np.prod(exact.sd)
    moments = np.stack(
        [*centred.T, *(centred**2 - 1).T, centred[:, 0] * centred[:, 1] - correlation], axis=1
    )
    return moments.mean(axis=0) / (moments.std(axis=0) / np.sqrt(len(draws)))


def sweeps_from_exact_draws(data, exact, n, loss):
    gibbs = DataAugmentationGibbs(*data, **loss, random_seed=2)
    ends = np.empty((n, 2))
    for i, start in enumerate(exact.sample(n, np.random.default_rng(1))):
        gibbs.weights = start
        ends[i] = gibbs.sweep()
    return ends


@pytest.mark.slow
def test_gibbs_keeps_exact_draws_exact(data, exact):
    assert np.abs(z_scores(sweeps_from_exact_draws(data, exact, 10_000, LOSS), exact)).max() < 4


@pytest.mark.parametrize("wrong", [{"cost": 2.0}, {"margin": 1.0}, {"prior_scale": 0.8}])
@pytest.mark.slow
def test_another_loss_is_found_out(data, exact, wrong):
    ends = sweeps_from_exact_draws(data, exact, 10_000, LOSS | wrong)
    assert np.abs(z_scores(ends, exact)).max() > 6


@pytest.mark.slow
def test_gibbs_reaches_the_posterior(data, exact):
    draws = DataAugmentationGibbs(*data, **LOSS, random_seed=1, start=[9.0, 9.0]).sample(
        10_000, 200
    )
    for k in range(2):
        for values, expected in (
            (draws[:, k], exact.mean[k]),
            ((draws[:, k] - exact.mean[k]) ** 2, exact.covariance[k, k]),
        ):
            error = values.std() / np.sqrt(az.ess(values[None]))
            assert abs(values.mean() - expected) < 4 * error


@pytest.mark.slow
def test_a_row_on_the_kink_is_no_trouble(data):
    X, y = data
    gibbs = DataAugmentationGibbs(X[:1], y[:1], margin=0.0)
    assert np.all(np.isfinite(gibbs.sample(50)))


@pytest.mark.slow
def test_random_walk_that_reads_all_rows_is_exact(data, exact):
    sampler = StochasticRandomWalk(
        *data, **LOSS, scale=0.35, batch_size=20, level=0.0, random_seed=1
    )
    draws = sampler.sample(15_000, tune=500, thin=8)
    assert sampler.rows_read == sampler.steps * N
    for k in range(2):
        for values, expected in (
            (draws[:, k], exact.mean[k]),
            ((draws[:, k] - exact.mean[k]) ** 2, exact.covariance[k, k]),
        ):
            error = values.std() / np.sqrt(az.ess(values[None]))
            assert abs(values.mean() - expected) < 4 * error


@pytest.mark.slow
def test_sequential_test_reads_fewer_rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 2, size=(5000, 2))
    y = np.where(X @ [1.0, -0.6] + 0.4 * rng.normal(size=5000) > 0, 1.0, -1.0)
    target = quadrature(X, y, **LOSS, cells=150)
    sampler = StochasticRandomWalk(
        X, y, **LOSS, scale=0.05, batch_size=200, level=0.05, start=target.mean, random_seed=1
    )
    draws = sampler.sample(4000, thin=5)
    assert sampler.rows_read < 0.7 * sampler.steps * 5000
    assert np.all(np.abs(draws.mean(axis=0) - target.mean) < 0.3 * target.sd)
    assert np.all(np.abs(draws.std(axis=0) / target.sd - 1) < 0.3)


@pytest.mark.slow
def test_pegasos_finds_the_mode(data):
    X, y = data
    found = pegasos(X, y, **LOSS, n_steps=300_000, random_seed=1)
    exact = quadrature(X, y, **LOSS, cells=300, half_width=3.0)
    best = np.unravel_index(np.argmax(exact.probability), exact.probability.shape)
    mode = np.array([axis[i] for axis, i in zip(exact.axes, best, strict=True)])
    loss = (X, y, LOSS["cost"], LOSS["margin"], LOSS["prior_scale"] ** -2.0)
    values = log_posterior(np.stack([found, mode]), *loss)
    assert values[0] > values[1] - 0.02
