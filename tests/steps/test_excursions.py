"""Chains that start or move far from the posterior in the warm-up, where the noise is large."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from tests.grids import slow
from tests.steps.runs import INTERPRETED, sample

N, TUNE, DRAWS = 2000, 400, 1000
LATER_DRAW = 80
"""Draw of an excursion: its point is one at which the gradient noise is measured."""


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = np.column_stack([np.ones(N), rng.normal(size=N)])
    return x, rng.poisson(np.exp(x @ [0.5, 0.3]))


@pytest.fixture(scope="module")
def posterior(data):
    """Mode and standard deviations; with 2,000 counts third derivatives are negligible."""
    x, y = data
    mode = np.zeros(2)
    for _ in range(50):
        rate = np.exp(x @ mode)
        hessian = (x.T * rate) @ x + np.eye(2) / 25.0
        mode = mode + np.linalg.solve(hessian, x.T @ (y - rate) - mode / 25.0)
    return mode, np.sqrt(np.diag(np.linalg.inv(hessian)))


def whole_chain(step, tune, draws, at, far, length=1):
    """Draws and the last warning of a chain whose point is ``far`` before ``length`` draws.

    Other step methods may move variables as well, so that a step takes any point.
    """
    step.setup_chain(np.random.default_rng(1), tune, draws)
    point, drawn = step.model.initial_point(random_seed=1), []
    for draw in range(tune + draws):
        if draw == tune:
            step.stop_tuning()
        if draw == at:
            kept, point = point, {**point, **far}
        if draw == at + length and length > 1:
            point = {**point, **{name: kept[name] for name in far}}
        point, (stats,) = step.step(point)
        drawn.append(point)
    return drawn[tune:], stats["warning"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "far"),
    [(0, [6.0, 6.0]), (LATER_DRAW, [8.0, 8.0]), slow(LATER_DRAW, [15.0, 10.0])],
    ids=["start", "excursion", "farther"],
)
@pytest.mark.parametrize("step_class", [pg.SGGMC, slow(pg.gSGNHT), slow(pg.SSGNHT)])
def test_standard_deviations_after_an_excursion(data, posterior, step_class, at, far):
    """Noise 10²³ times as large gave step sizes of 10⁻¹³ and standard deviations of zero."""
    x, y = data
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, 5.0, shape=2)
        pm.Poisson("y", pm.math.exp(rows @ b), observed=pm.Data("t", y))
    step = step_class(model=model, minibatch=["x", "t"], batch_size=10)
    drawn, warning = whole_chain(step, TUNE, DRAWS, at, {"b": np.array(far)})
    # about a hundred effective draws, the limit of that warning
    assert warning is None or "effective sample size" in warning.message
    mode, sd = posterior
    z = (np.array([point["b"] for point in drawn]) - mode) / sd
    assert np.abs(z.mean(axis=0)).max() < 0.2
    assert np.abs(z.std(axis=0) - 1.0).max() < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [slow(pg.SGGMC), pg.gSGNHT])
def test_a_chain_with_local_variables_is_right_after_an_excursion_or_warned_of(step_class):
    """Steps that are too short by a factor of 100 to 10,000 show in the effective sample size."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        y = pm.Data("y", rng.poisson(np.exp(0.5 * rng.normal(size=400) + 1.0)))
        z = pm.Normal("z", pm.Normal("m", 0.0, 10.0), pm.HalfNormal("s", 1.0), shape=400)
        pm.Poisson("counts", pm.math.exp(z), observed=y)
    step = step_class(local=["z"], minibatch=["y"], batch_size=40, model=model)
    far = {"s_log__": np.array(-8.0)}
    drawn, warning = whole_chain(step, 500, 600, 430, far, length=3)
    is_right = 0.03 < np.std([point["m"] for point in drawn]) < 0.08
    assert is_right or "effective sample size" in warning.message


@pytest.mark.parametrize("step_class", [pg.SGGMC, pg.SGLD])
def test_draws_that_leave_the_posterior_are_undone(data, step_class):
    """Far from the posterior the temperature is high; the chain stays finite, moves and warns."""
    x, y = data
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, 5.0, shape=2)
        pm.Poisson("y", pm.math.exp(rows @ b), observed=pm.Data("t", y))
    step = step_class(model=model, minibatch=["x", "t"], batch_size=10)
    drawn, warning = whole_chain(step, TUNE, 300, TUNE + 10, {"b": np.array([2.0, 1.0])})
    b = np.array([point["b"] for point in drawn])
    assert np.isfinite(b).all()
    expected = f"{step_class.__name__}[b]: The number of draws that left the posterior is"
    assert warning.message.startswith(expected)
    np.testing.assert_allclose(b[100:].mean(axis=0), [0.5, 0.3], atol=0.1)


@pytest.fixture(scope="module")
def rare_category():
    """Counts with an indicator, 1 in 13 of 40,000 rows, that the model computes and centers.

    Such rows are not found, since the derivatives of all rows are different from zero.
    """
    rng = np.random.default_rng(33)
    group = rng.integers(0, 2000, 40_000)
    x = rng.normal(size=group.size)
    y = rng.poisson(np.exp(-1.0 + 1.5 * (group == 7) + 0.3 * x))
    with pm.Model() as model:
        is_rare = pm.math.eq(pm.Data("group", group.astype(float)), 7.0) - np.mean(group == 7)
        b = pm.Normal("b", 0.0, 2.5, shape=3)
        pm.Poisson("y", pm.math.exp(b[0] + b[1] * is_rare + b[2] * x), observed=y)
    return model


@pytest.mark.parametrize("seed", [5, slow(11)])
def test_sgld_warns_of_draws_that_leave_the_posterior(rare_category, seed, caplog):
    """Draws that are not undone are within 12 standard deviations."""
    with rare_category, caplog.at_level(logging.WARNING, "pymc"):
        idata = pm.sample(
            step=pg.SGLD(batch_size=50), draws=1000, chains=4, cores=1, random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    messages = [each.getMessage() for each in caplog.records]
    expected = "SGLD[b]: The number of draws that left the posterior is"
    assert any(each.startswith(expected) for each in messages)
    b = idata.posterior["b"].values[..., 1]
    assert np.abs(b - np.median(b)).max() < 12.0 * np.median(b.std(axis=1))


@pytest.mark.parametrize(("n_steps", "expected"), [(16, 1.0), (4, 4 / 16)])
def test_displacements_in_a_normal_distribution(n_steps, expected):
    """Their temperature is 1; a sum of fewer than 16 is divided by 16."""
    with pm.Model() as model:
        pm.Normal("x", shape=50)
        step = pg.SGLD(n_steps=n_steps, compile_kwargs=INTERPRETED)
    found = []
    step.setup_chain(np.random.default_rng(1), 300, 300)
    point = model.initial_point()
    for draw in range(600):
        if draw == 300:
            step.stop_tuning()
        point, _ = step.step(point)
        found.append(step.sampler.dynamics.displacement_temperature)
    assert np.mean(found[300:]) == pytest.approx(expected, rel=0.05)


def test_heavy_tails_are_no_excursions(caplog):
    """Draws at ten standard deviations are part of a t distribution with 3 degrees of freedom."""
    with pm.Model(), caplog.at_level(logging.WARNING, "pymc"):
        pm.StudentT("t", nu=3.0, shape=5)
        idata = pm.sample(
            step=pg.SGLD(), draws=2000, chains=2, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert np.abs(idata.posterior["t"]).max() > 10.0
    assert not idata.sample_stats["diverging"].any()
    assert not [each for each in caplog.records if "SGLD" in each.getMessage()]


def test_funnel_of_four_groups_with_minibatches():
    """One draw moved the scale by hundreds of standard deviations, without a warning."""
    rng = np.random.default_rng(4)
    group, x = rng.integers(0, 4, 3000), rng.normal(size=3000)
    y = 1.0 + 0.3 * rng.normal(size=4)[group] + 0.5 * x + 2.0 * rng.normal(size=3000)
    with pm.Model() as model:
        mu, b, tau = pm.Normal("mu", 0.0, 2.0), pm.Normal("b"), pm.Exponential("tau", 1.0)
        e = pm.Normal("e", 0.0, tau, shape=4)
        pm.Normal("y", mu + e[group] + b * x, pm.HalfNormal("s", 1.0), observed=y)
    step = pg.SGGMC(model=model, batch_size=100)
    for seed in range(3):
        idata = sample(model, step, draws=1000, tune=1000, random_seed=seed)
        assert idata.posterior["tau"].max() < 6.0
