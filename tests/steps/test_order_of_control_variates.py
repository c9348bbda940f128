"""Choice of the order of control variates, and its state."""

import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.adaptation.control_variates import SETTINGS, ControlVariateOrder
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from tests.grids import slow

N, D, N_TUNE = 3000, 10, 120


def regression(kind: str) -> pm.Model:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, D))
    signs = np.where(rng.random(N) < 1.0 / (1.0 + np.exp(-x[:, 0])), 1, -1)
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, 1.0, shape=D)
        if kind == "hinge":
            pg.Hinge("y", rows @ b, observed=pm.Data("t", signs))
        else:
            pm.Bernoulli("y", logit_p=rows @ b, observed=pm.Data("t", (signs + 1) // 2))
    return model


def tuned(step, n_draws: int = 0):
    """Draw until after the parameters are chosen; return point and positions."""
    step.setup_chain(np.random.default_rng(1), N_TUNE, 100)
    point = step.model.initial_point(random_seed=1)
    while step.adaptation.parameters is None:
        point, _ = step.step(point)
    return advance(step, point, n_draws)


def advance(step, point, n_draws):
    positions = []
    for _ in range(n_draws):
        if step.draw == N_TUNE:
            step.stop_tuning()
        point, _ = step.step(point)
        positions.append(step.sampler.position.copy())
    return point, np.array(positions)


def step_of(kind: str, **options):
    return pg.SGGMC(model=regression(kind), minibatch=["x", "t"], **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "control_variates", "order"),
    [(1, "auto", 2), slow(100, "auto", 1), slow(100, 2, 2), slow(1, 1, 1), (1, False, 0)],
)
def test_order(batch_size, control_variates, order):
    step = step_of("logistic", batch_size=batch_size, control_variates=control_variates)
    tuned(step)
    assert step.adaptation.gradient.order == order


def draw_with_indicator(step_class, n, n_informed, batch_size, seed):
    """Draws of two coefficients, in exact posterior sds, and the last warning.

    The second is that of an indicator which few rows have.
    """
    rng = np.random.default_rng(3)
    tune, draws = 300, 2000
    x = np.column_stack([np.ones(n), np.arange(n) < n_informed])[rng.permutation(n)]
    y = x @ [0.5, 0.3] + rng.normal(size=n)
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, 5.0, shape=2)
        pm.Normal("y", rows @ b, 1.0, observed=pm.Data("t", y))
        step = step_class(minibatch=["x", "t"], batch_size=batch_size)
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point, drawn = model.initial_point(random_seed=1), []
    for draw in range(tune + draws):
        if draw == tune:
            step.stop_tuning()
        point, _ = step.step(point)
        drawn.append(point["b"])
    covariance = np.linalg.inv(x.T @ x + np.eye(2) / 25.0)
    return (drawn[tune:] - covariance @ x.T @ y) / np.sqrt(np.diag(covariance))


def assert_exact(z):
    assert np.abs(z).max() < 5.5  # 4,000 normal draws exceed 5 in one of 400 runs
    assert np.abs(z.mean(axis=0)).max() < 0.15
    assert np.abs(z.std(axis=0) - 1.0).max() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [pg.SGGMC, pg.SGLD])
def test_second_order_is_exact_where_the_posterior_is_normal(step_class):
    """Five of 4,000 rows inform a coordinate: one minibatch in eighty has all of its noise."""
    assert_exact(draw_with_indicator(step_class, 4000, 5, batch_size=10, seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, slow(3), slow(5)])
@pytest.mark.parametrize("step_class", [pg.SGGMC, pg.SGLD, slow(pg.gSGNHT), slow(pg.SSGNHT)])
def test_noise_of_rows_that_hardly_any_minibatch_has_is_measured(step_class, seed):
    """One minibatch in 4,000 has all of the noise of the second coordinate."""
    assert_exact(draw_with_indicator(step_class, 20_000, 5, batch_size=1, seed=seed))


def student_t_moments(x, y, nu, n_draws=1500):
    """Mean and sd of the coefficients of a Student-t regression, by importance sampling."""
    d = x.shape[1]
    mode, prior = np.zeros(d), np.eye(d) / 25.0
    for _ in range(30):
        r = y - x @ mode
        weights = (nu + 1.0) / (nu + r * r)
        mode = mode + np.linalg.solve(
            (x.T * weights) @ x + prior, x.T @ (weights * r) - prior @ mode
        )
    r = y - x @ mode
    hessian = (x.T * ((nu + 1.0) * (nu - r * r) / (nu + r * r) ** 2)) @ x + prior
    b = np.random.default_rng(2).multivariate_normal(mode, np.linalg.inv(hessian), n_draws)
    log_density = [
        -0.5 * (nu + 1.0) * np.log1p((y - x @ each) ** 2 / nu).sum() - 0.5 * each @ prior @ each
        for each in b
    ]
    proposal = -0.5 * np.einsum("ij,jk,ik->i", b - mode, hessian, b - mode)
    weights = np.exp(log_density - proposal - np.max(log_density - proposal))
    weights /= weights.sum()
    mean = weights @ b
    return mean, np.sqrt(weights @ (b - mean) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, *map(slow, (1, 3, 4, 5, 6))])
@pytest.mark.parametrize("step_class", [slow(pg.SGGMC), pg.gSGNHT])
def test_covariates_with_heavy_tails(step_class, seed):
    """Few of 20,000 rows cause most of the noise; sds were 0.69 to 1.34 times the exact ones."""
    rng = np.random.default_rng(1)
    x, tune, draws = rng.standard_t(2.5, size=(20_000, 3)), 1000, 3000
    y = x @ [0.5, -1.0, 0.3] + rng.standard_t(4.0, size=20_000)
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, 5.0, shape=3)
        pm.StudentT("y", nu=4.0, mu=rows @ b, sigma=1.0, observed=pm.Data("t", y))
        step = step_class(minibatch=["x", "t"], batch_size=20)
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point, drawn = model.initial_point(random_seed=1), []
    for draw in range(tune + draws):
        if draw == tune:
            step.stop_tuning()
        point, stats = step.step(point)
        drawn.append(point["b"])
    assert stats[0]["warning"] is None
    mean, sd = student_t_moments(x, y, 4.0)
    z = (drawn[tune:] - mean) / sd
    assert np.abs(z.mean(axis=0)).max() < 0.15
    assert np.abs(z.std(axis=0) - 1.0).max() < 0.15


@pytest.mark.slow
def test_auto_chooses_the_cheaper_draw():
    costs = {}
    for order in (1, 2):
        step = step_of("logistic", batch_size=1, control_variates=order)
        tuned(step)
        costs[order] = step.adaptation.parameters.n_steps * (
            SETTINGS.second_order_cost if order == 2 else 1.0
        )
    assert costs[2] < 0.5 * costs[1]


@pytest.mark.slow
def test_pairs_without_noisy_rows_do_not_choose_the_order(monkeypatch):
    def no_noise(self, differences):
        return np.zeros(differences.shape[1]), np.zeros(differences.shape[1])

    monkeypatch.setattr(ControlVariateOrder, "_principal_variances", no_noise)
    step = step_of("logistic", batch_size=2)
    tuned(step)
    assert step.adaptation.gradient.order == 2
    second = step.adaptation._noise.measured.noise_ratio
    first = step_of("logistic", batch_size=2, control_variates=1)
    tuned(first)
    assert second < 0.5 * first.adaptation._noise.measured.noise_ratio


def test_density_without_second_derivatives():
    """PyTensor has no derivative of the Bessel function in the score of κ."""
    angles = np.random.default_rng(1).vonmises(1.0, 2.0, size=200)
    with pm.Model() as model:
        pm.VonMises("y", pm.Normal("mu"), pm.Exponential("kappa"), observed=angles)
    step = pg.SGGMC(batch_size=20, model=model, compile_kwargs={"mode": "FAST_COMPILE"})
    assert step.estimator.row_curvature() is None


@pytest.mark.slow
def test_second_order_is_not_compiled_where_it_cannot_pay(monkeypatch):
    def compile_nothing(self, structure):
        raise AssertionError("compiled")

    monkeypatch.setattr(MinibatchGradient, "row_curvature", compile_nothing)
    for kind, batch_size in (("hinge", 1), ("logistic", 100)):
        step = step_of(kind, batch_size=batch_size)
        tuned(step)
        assert step.adaptation.gradient.order < 2
    step = step_of("logistic", batch_size=1)
    with pytest.raises(AssertionError, match="compiled"):
        tuned(step)


@pytest.mark.slow
def test_replays_with_second_order():
    step = step_of("logistic", batch_size=2)
    point, _ = tuned(step, 5)
    assert step.adaptation.gradient.order == 2
    state = pickle.loads(pickle.dumps(step.sampling_state))
    _, expected = advance(step, point, 80)
    other = step_of("logistic", batch_size=2)
    other.setup_chain(np.random.default_rng(7), N_TUNE, 100)
    other.sampling_state = state
    _, found = advance(other, point, 80)
    np.testing.assert_array_equal(found, expected)


def test_a_chain_without_tuning_keeps_second_order():
    step = step_of("logistic", batch_size=2)
    tuned(step, N_TUNE)
    hessian = step.adaptation.gradient.second_order.hessian.values.copy()
    step.setup_chain(np.random.default_rng(2), 0, 100)
    assert step.adaptation.gradient.order == 2
    found = step.adaptation.gradient.second_order.hessian.values
    np.testing.assert_allclose(found, hessian, rtol=1e-12)


def test_terms_without_a_second_derivative_are_named(monkeypatch):
    monkeypatch.setattr(MinibatchGradient, "row_curvature", lambda self, structure: None)
    with pytest.raises(ValueError, match=r"control_variates=2 .* 'y'.* Use control_variates=1"):
        step_of("logistic", batch_size=10, control_variates=2)
    step = step_of("logistic", batch_size=1)
    tuned(step)
    assert step.adaptation.gradient.order == 1


@pytest.mark.parametrize("order", [True, None, "1", 3])
def test_invalid_order_raises(order):
    with pytest.raises(ValueError, match=r"control_variates=.* is unknown\. Choose"):
        step_of("logistic", batch_size=10, control_variates=order)
