"""Reference values of the benchmarks of large and hierarchical posteriors."""

import logging
from collections import Counter

import numpy as np
import pytest
from scipy.special import expit

from benchmarks.census_svm import LEVELS, census_rows
from benchmarks.detectors import CORRECT, FAULTY, MODELS
from benchmarks.glm_rows import FAMILIES, Rows, importance, laplace, make_rows, sums
from benchmarks.hierarchies import compare, failures, summary
from benchmarks.sampling_warnings import SamplingWarnings


@pytest.mark.parametrize("name", [name for name, one in FAMILIES.items() if one.curve])
def test_derivatives_of_log_likelihoods(name):
    rng = np.random.default_rng(1)
    eta = rng.normal(size=20)
    y = FAMILIES[name].draw(rng, eta)
    curve, h = FAMILIES[name].curve, 1e-5
    (low, slope_low, _), (_, slope, bend), (high, slope_high, _) = (
        curve(eta + away, y) for away in (-h, 0.0, h)
    )
    np.testing.assert_allclose((high - low) / (2.0 * h), slope, atol=1e-7)
    np.testing.assert_allclose((slope_high - slope_low) / (2.0 * h), bend, atol=1e-7)


def test_laplace_and_its_correction():
    """A skewed posterior of one coefficient, by quadrature."""
    rng = np.random.default_rng(1)
    X = np.ones((12, 1))
    y = (rng.random(12) < 0.9).astype(float)
    rows = Rows(X, y, np.ones(1))
    mode, precision = laplace("logistic", rows)
    value, gradient, hessian = sums("logistic", rows, mode)
    assert abs(gradient[0]) < 1e-4
    np.testing.assert_allclose(-hessian, precision, rtol=1e-4)
    grid = np.linspace(-10.0, 15.0, 20_001)
    logs = y.sum() * grid - 12.0 * np.logaddexp(0.0, grid) - 0.005 * grid**2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    scale = precision[0, 0] ** -0.5
    off, sd_ratio, efficiency = importance("logistic", rows, mode, precision, 100_000)
    assert off[0] == pytest.approx((mean - mode[0]) / scale, abs=0.02)
    assert sd_ratio[0] == pytest.approx(sd / scale, rel=0.03)
    assert 0.1 < efficiency < 0.9
    assert value == pytest.approx(logs.max(), abs=1e-5)


def test_covariates_have_their_scales():
    rows = make_rows("logistic", 20_000)
    np.testing.assert_allclose(rows.X.std(axis=0) / rows.scales, 1.0, atol=0.03)
    assert set(rows.y) == {0.0, 1.0}
    assert np.linalg.cond(np.corrcoef(rows.X.T)) > 100.0


def test_simulated_census_rows():
    X, y = census_rows(500)
    assert X.shape == (500, 123)
    assert (X.sum(axis=1) == len(LEVELS)).all()
    assert set(X.data) == {1.0}
    assert 0.1 < np.mean(y > 0) < 0.5


def test_references_of_the_detectors_are_standardized():
    """Exact draws of the normal posterior of a regression."""
    known = MODELS["regression"](1)
    model, rng = known.model, np.random.default_rng(2)
    X, y = (model[name].get_value() for name in ("X", "y"))
    precision = X.T @ X + 0.01 * np.eye(6)
    mean = np.linalg.solve(precision, X.T @ y)
    draws = rng.multivariate_normal(mean, np.linalg.inv(precision), size=20_000)
    z = known.standardize(draws)
    assert np.abs(z.mean(axis=0)).max() < 0.04
    np.testing.assert_allclose(z.std(axis=0), 1.0, atol=0.03)


@pytest.mark.slow
def test_importance_weights_of_the_logistic_detector():
    """The gradient of the posterior is near zero at the reference mean."""
    known = MODELS["logistic"](1)
    X, y = (known.model[name].get_value() for name in ("X", "y"))
    origin, slopes = known.standardize(np.zeros((1, 6))), known.standardize(np.eye(6))
    root = slopes - origin
    mean = np.linalg.solve(root.T, -origin[0])
    gradient = X.T @ (y - expit(X @ mean)) - 0.01 * mean
    assert np.abs(np.linalg.solve(root, gradient)).max() < 0.1


def test_twenty_runs_of_each_kind():
    kinds = Counter(run.kind for run in FAULTY)
    assert set(kinds.values()) == {4}
    assert set(kinds) == {
        "temperature above 1",
        "temperature below 1",
        "stuck",
        "wrong center",
        "wrong metric",
    }
    assert len(FAULTY) == len(CORRECT) == 20


def test_errors_of_a_hierarchy():
    rng = np.random.default_rng(1)
    known = {"log sd": np.array([[0.0], [1.0], [np.inf], [np.inf]])}
    right = summary({"log sd": rng.standard_normal((2, 1000))})
    assert failures(compare(right, known)) == []
    shifted = summary({"log sd": 0.3 + rng.standard_normal((2, 1000))})
    assert failures(compare(shifted, known)) == ["mean of log sd"]
    narrow = summary({"log sd": 0.8 * rng.standard_normal((2, 1000))})
    (failure,) = failures(compare(narrow, known))
    assert failure.startswith("sd of log sd (0.")
    slow = summary({"log sd": np.repeat(rng.standard_normal((2, 20)), 50, axis=1)})
    assert any(one.startswith("ESS") for one in failures(compare(slow, known)))


@pytest.fixture(params=[logging.WARNING, logging.ERROR])
def level_of_pymc(request):
    logger = logging.getLogger("pymc")
    level_before = logger.level
    logger.setLevel(request.param)
    yield
    logger.setLevel(level_before)


@pytest.mark.usefixtures("level_of_pymc")
def test_warnings_are_those_of_the_run():
    logger = logging.getLogger("pymc.stats.convergence")
    level_before = logger.level
    with SamplingWarnings() as caught:
        logger.warning("this")
        logger.warning("this")
    logger.warning("that")
    assert caught.messages == ["this"]
    assert logger.level == level_before
