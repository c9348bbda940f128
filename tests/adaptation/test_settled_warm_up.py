"""Warm-up of Langevin dynamics that ends when nothing changes anymore."""

import copy

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg

N_TUNE = 1_000


def regression() -> pm.Model:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 3))
    y = rng.random(2_000) < 1.0 / (1.0 + np.exp(-x @ [0.5, -1.0, 0.3]))
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 5.0, shape=3)
        pm.Bernoulli("y", logit_p=x @ b, observed=y.astype(int))
    return model


def funnel() -> pm.Model:
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, 3.0)
        pm.Normal("x", 0.0, pm.math.exp(0.5 * v), shape=9)
    return model


def warm_up(step, model):
    """Sample stats of the warm-up by name, the draws, and a copy of the state after 950 draws."""
    step.setup_chain(np.random.default_rng(1), N_TUNE, 10)
    point, rows, draws, state = model.initial_point(random_seed=1), [], [], None
    for draw in range(N_TUNE):
        if draw == 950:
            state = copy.deepcopy(step.sampling_state), point
        point, (stats,) = step.step(point)
        rows.append(stats)
        draws.append(step.sampler.position.copy())
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}, draws, state


@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.gSGNHT, pg.SGLD])
def test_remaining_draws_repeat_the_last_one(sampler):
    model = regression()
    step = sampler(model=model, batch_size=100)
    stats, draws, (state, point) = warm_up(step, model)
    assert 30 <= np.sum(stats["phase"] == "explore") < 300
    (repeated,) = np.nonzero(stats["n_grad"] == 0)
    assert 200 < repeated[0] < 700
    np.testing.assert_array_equal(repeated, np.arange(repeated[0], N_TUNE))
    for draw in repeated:
        np.testing.assert_array_equal(draws[draw], draws[repeated[0] - 1])

    def ten_draws(point):
        step.stop_tuning()
        found = []
        for _ in range(10):
            point, _ = step.step(point)
            found.append(point["b"])
        return np.array(found)

    expected = ten_draws(point)
    assert (np.ptp(expected, axis=0) > 0.0).all()
    step.sampling_state = state
    for _ in range(950, N_TUNE):
        point, _ = step.step(point)
    np.testing.assert_array_equal(ten_draws(point), expected)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_exploration_of_a_normal_posterior_is_short(offset):
    """Also if the chain starts thousands of standard deviations away."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 20))
    y = x @ rng.normal(size=20) + rng.normal(size=20_000)
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 100.0, shape=20, initval=np.full(20, offset))
        pm.Normal("y", x @ b, 1.0, observed=y)
    step = pg.SGGMC(model=model, batch_size=100)
    stats, draws, _ = warm_up(step, model)
    explored = np.sum(stats["phase"] == "explore")
    assert explored <= 80
    assert stats["n_grad"][30:explored].mean() < 4.0  # by the split Hamiltonian
    mean, sd = np.linalg.lstsq(x, y)[0], 1.0 / np.sqrt(len(x))
    distance = np.abs(np.array(draws[explored:]) - mean).max(axis=1) / sd
    assert distance.max() < 6.0


def test_exploration_goes_on_where_the_posterior_is_not_normal():
    model = funnel()
    stats, _, _ = warm_up(pg.SGGMC(metric="dense", model=model), model)
    assert np.sum(stats["phase"] == "explore") == 500
