"""Log-densities with functions of data that are computed once, compared with PyMC's."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import expit, log_ndtr, logsumexp
from scipy.stats import norm

import pymc_geodesic as pg
from pymc_geodesic.runtime.gradient_functions import evaluate
from tests.grids import slow

INTERPRETED = {"mode": "FAST_COMPILE"}
N_ROWS = 150


def output_of(step, point):
    """Log-density and gradient of a step at a point of its variables."""
    step.estimator.set_others(point)
    position = np.concatenate([np.ravel(point[v.value_name]) for v in step.variables])
    logp_grad, output = step.estimator.logp_grad, np.empty(position.size + 1)
    evaluate(logp_grad.address, position, 0, logp_grad.context, output)
    logp_grad.raise_error()
    return output[-1], output[:-1]


def assert_agrees_with_pymc(model, step, point):
    value, gradient = output_of(step, point)
    variables = [model[v.name] for v in step.variables]
    expected = model.compile_dlogp(variables, **INTERPRETED)(point)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)
    assert value == pytest.approx(float(model.compile_logp(**INTERPRETED)(point)), rel=1e-12)


def log_erfc(x):
    return np.log(2.0) + log_ndtr(-np.sqrt(2.0) * x)


def data_of(seed):
    rng = np.random.default_rng(seed)
    return {
        "counts": rng.poisson(2.0, N_ROWS),  # with zeros
        "trials": rng.integers(3, 9, N_ROWS),
        "waits": rng.gamma(2.0, size=(N_ROWS, 2)).astype("float32"),
        "exposure": rng.gamma(2.0, size=N_ROWS),
        "scale": np.array(rng.gamma(5.0)),
    }


@pytest.fixture
def model():
    with pm.Model() as model:
        data = {name: pm.Data(name, array) for name, array in data_of(1).items()}
        a, b = pm.Normal("a", 0.0, data["scale"]), pm.Normal("b", shape=2)
        rate = pm.math.exp(pm.math.log(data["exposure"]) + a)
        pm.Poisson("y", rate, observed=data["counts"])
        pm.Binomial("n", data["trials"], pm.math.sigmoid(b[0]), observed=data["trials"] // 2)
        pm.Gamma("t", pm.math.exp(b), 1.0, observed=data["waits"])
    return model


@pytest.mark.parametrize("mode", [None, "FAST_COMPILE", slow("CVM")])
def test_log_density_and_gradient_follow_the_data(model, mode):
    step = pg.GMC(model=model, compile_kwargs={} if mode is None else {"mode": mode})
    point = {"a": np.array(0.3), "b": np.array([-0.4, 0.6])}
    assert_agrees_with_pymc(model, step, point)
    before, _ = output_of(step, point)
    pm.set_data(data_of(2), model=model)
    step.estimator.refresh_data()
    assert_agrees_with_pymc(model, step, point)
    assert output_of(step, point)[0] != pytest.approx(before, rel=1e-3)


def test_draws_follow_the_data(model):
    """Draws after set_data are those of a step that is created with the new data."""

    def draws_of(step):
        trace = pm.sample(
            20, tune=20, chains=1, step=step, model=model, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        return trace.posterior["b"].values

    old = pg.GMC(model=model, compile_kwargs=INTERPRETED)
    first = draws_of(old)
    pm.set_data(data_of(2), model=model)
    new = pg.GMC(model=model, compile_kwargs=INTERPRETED)
    second = draws_of(old)
    np.testing.assert_array_equal(second, draws_of(new))
    assert np.abs(second - first).max() > 1e-3


def test_functions_of_variables_of_other_steps_are_not_fixed(model):
    step = pg.GMC([model["a"]], model=model, compile_kwargs=INTERPRETED)
    for b in ([-0.4, 0.6], [0.5, 0.1]):
        assert_agrees_with_pymc(model, step, {"a": np.array(0.3), "b": np.array(b)})


def test_large_exponentials_do_not_overflow():
    """PyTensor stabilizes log(exp(x) + exp(a)) if both exponentials are in the same graph."""
    with pm.Model() as model:
        x = pm.Data("x", np.linspace(-800.0, 800.0, N_ROWS))
        a = pm.Normal("a", shape=N_ROWS)
        pm.Potential("total", -pt.log(pt.exp(x) + pt.exp(a)))
    step = pg.GMC(model=model, compile_kwargs=INTERPRETED)
    value, _ = output_of(step, {"a": np.zeros(N_ROWS)})
    expected = model.compile_logp(**INTERPRETED)({"a": np.zeros(N_ROWS)})
    assert np.isfinite(expected)
    assert value == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("mode", [None, "FAST_COMPILE"])
def test_formulas_of_data_are_stable(mode):
    """Functions of data with large values are those of PyTensor's rewritten graph."""
    x = np.linspace(-900.0, 900.0, 4 * N_ROWS).reshape(N_ROWS, 4)
    with pm.Model() as model:
        a, data = pm.Normal("a"), pm.Data("x", x)
        values = [pt.log(pt.sigmoid(data)), pt.log(1 + pt.exp(data)), pt.log(pt.erfc(data / 15))]
        pm.Potential("total", a * (pt.sum(pt.add(*values)) + pt.sum(pm.math.logsumexp(data, 1))))
    step = pg.GMC(model=model, compile_kwargs={} if mode is None else {"mode": mode})
    value, gradient = output_of(step, {"a": np.array(0.3)})
    expected = np.sum(-np.logaddexp(0, -x) + np.logaddexp(0, x) + log_erfc(x / 15))
    expected += np.sum(logsumexp(x, axis=1))
    assert gradient[0] == pytest.approx(expected - 0.3, rel=1e-12)
    assert value == pytest.approx(0.3 * expected + norm.logpdf(0.3), rel=1e-12)


@pytest.mark.parametrize("mode", [None, slow("CVM")])
def test_gradients_at_extreme_linear_predictors(mode):
    """Those of log(1 - sigmoid(x)) are not 0 or NaN next to its value."""
    x, y = np.linspace(-1.0, 1.0, N_ROWS), np.arange(N_ROWS) % 2
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=x * pm.Normal("b"), observed=y)
        pm.Binomial("n", 3, logit_p=x * model["b"], observed=y)
    step = pg.GMC(model=model, compile_kwargs={} if mode is None else {"mode": mode})
    for b in (-800.0, -50.0, 30.0, 60.0, 900.0):
        _, gradient = output_of(step, {"b": np.array(b)})
        assert gradient[0] == pytest.approx(x @ (2 * y - 4 * expit(x * b)) - b, rel=1e-9)


def test_invalid_data_have_the_log_density_of_pymc():
    """It is -inf, without an exception or a warning of NumPy."""
    sd = np.ones(N_ROWS)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), pm.Data("sd", sd), observed=np.zeros(N_ROWS))
        pm.Normal("z", 0.0, model["sd"], observed=np.zeros(N_ROWS))
    step = pg.GMC(model=model, compile_kwargs=INTERPRETED)
    point = {"a": np.array(0.3)}
    assert_agrees_with_pymc(model, step, point)
    for invalid in (-1.0, 0.0):
        sd[3] = invalid
        pm.set_data({"sd": sd}, model=model)
        step.estimator.refresh_data()
        assert output_of(step, point)[0] == -np.inf == model.compile_logp(**INTERPRETED)(point)
