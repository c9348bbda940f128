"""Variance of the positions of stochastic steps at the adapted step size.

The kinetic temperature is not informative about it if a thermostat keeps the temperature at 1.
"""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import SGGMC, SGLD, SSGNHT, gSGNHT
from tests.grids import slow
from tests.steps.runs import sample

N_ROWS, DIM = 1000, 20
NUMBA = {"compile_kwargs": None}


@pytest.fixture(scope="module")
def normal():
    with pm.Model() as model:
        pm.Normal("x", shape=50)
    return model


@pytest.fixture(scope="module")
def rows():
    """A normal mean whose posterior has the variance 1 / (N + 1) in every coordinate."""
    data = np.random.default_rng(1).normal(size=(N_ROWS, DIM))
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=DIM)
        pm.Normal("y", mu, observed=pm.Data("rows", data))
    return model, data.sum(axis=0) / (N_ROWS + 1.0)


def full(model, step_class, draws=20_000, **kwargs):
    """Variances of the coordinates of N(0, I), and sample stats."""
    with model:
        step = step_class(**kwargs)
    run = sample(model, step, draws=draws, tune=1000, **NUMBA)
    return (run.posterior["x"].values[0] ** 2).mean(axis=0), run.sample_stats


def of_rows(rows, step_class, draws, batch_size=100, tune=1000, **kwargs):
    """Variances in units of the posterior's, and sample stats."""
    model, mean = rows
    with model:
        step = step_class(minibatch="rows", batch_size=batch_size, metric=None, **kwargs)
    run = sample(model, step, draws=draws, tune=tune, **NUMBA)
    standard = (run.posterior["mu"].values[0] - mean) * np.sqrt(N_ROWS + 1.0)
    return (standard**2).mean(axis=0), run.sample_stats


@pytest.mark.slow
@pytest.mark.parametrize("splitting", ["exact", "paper"])
def test_gsgnht_for_a_normal_distribution(normal, splitting):
    """With v·v after a kick, sds were 3 % too small at a temperature of 1.00002."""
    variances, stats = full(normal, gSGNHT, splitting=splitting)
    assert variances.mean() == pytest.approx(1.0, abs=0.005)
    assert np.abs(variances - 1.0).max() < 0.06
    assert float(stats["temperature"].mean()) == pytest.approx(1.0, abs=0.002)


def test_sggmc_for_a_normal_distribution(normal):
    """Positions were right, and the reported temperature was 1.023."""
    variances, stats = full(normal, SGGMC)
    assert variances.mean() == pytest.approx(1.0, abs=0.005)
    assert np.abs(variances - 1.0).max() < 0.06
    assert float(stats["temperature"].mean()) == pytest.approx(1.0, abs=0.003)


def test_euler_for_a_normal_distribution(normal):
    """The variance is too small, of first order in the step size, as documented."""
    variances, stats = full(normal, SSGNHT, metric=None)
    missing = 0.5 * float((stats["thermostat"] * stats["step_size"]).mean())
    assert 0.01 < missing < 0.05
    assert variances.mean() == pytest.approx(1.0 - missing, abs=0.005)
    assert np.abs(variances - variances.mean()).max() < 0.06


@pytest.mark.parametrize("step_class", [SGLD], ids=lambda step: step.__name__)
def test_langevin_for_a_normal_distribution(normal, step_class):
    variances, stats = full(normal, step_class, metric=None)
    bias = 1.0 / (1.0 - 0.25 * float(stats["step_size"][0, -1]) ** 2)
    assert 1.02 < bias < 1.06
    assert variances.mean() == pytest.approx(bias, abs=0.006)
    assert np.abs(variances - variances.mean()).max() < 0.07


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_class", "kwargs", "bias"),
    [
        (SGGMC, {"minibatch_order": "independent"}, 0.02),
        (SGGMC, {"gradient_noise": "fisher"}, 0.0),
        (gSGNHT, {}, 0.0),
        (gSGNHT, {"gradient_noise": "fisher"}, 0.0),
        (SSGNHT, {}, -0.025),
        (SGLD, {"minibatch_order": "independent"}, 0.05),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_minibatches(rows, step_class, kwargs, bias):
    """Isotropic noise, at the bound of tuning or compensated by a thermostat."""
    variances, stats = of_rows(rows, step_class, 8000, n_steps=100, **kwargs)
    assert variances.mean() == pytest.approx(1.0 + bias, abs=0.025)
    assert np.abs(variances - variances.mean()).max() < 0.12
    if "temperature" in stats:
        expected = 1.0 + (bias if step_class is SGGMC else 0.0)
        assert float(stats["temperature"].mean()) == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step_class", [SGGMC, gSGNHT, SSGNHT, SGLD], ids=lambda step: step.__name__
)
def test_one_inner_step(rows, step_class):
    variances, _ = of_rows(
        rows, step_class, 30_000, batch_size=250, tune=2000, n_steps=1,
        minibatch_order="independent",
    )  # fmt: skip
    assert variances.mean() == pytest.approx(1.0, abs=0.08)
    assert np.abs(variances - variances.mean()).max() < 0.25


@pytest.mark.parametrize("n_steps", [1, slow(2), 10])
def test_noise_of_langevin(rows, n_steps, monkeypatch):
    """From differences without shared minibatches; shared ones inflate it by (d + 5) / 4."""
    model, _ = rows
    with model:
        step = SGLD(
            minibatch="rows", batch_size=50, n_steps=n_steps, metric=None, minibatch_order="random"
        )
    seen, measured = [], step.adaptation._measured
    update = measured.update
    monkeypatch.setattr(
        measured,
        "update",
        lambda c, noise, is_draw=True: seen.append(noise) or update(c, noise, is_draw=is_draw),
    )
    sample(model, step, draws=2, tune=1000, **NUMBA)
    trace, square = np.mean([noise for noise in seen if noise is not None], axis=0)
    variance = N_ROWS**2 / 50
    assert trace == pytest.approx(DIM * variance, rel=0.1)
    assert square / trace == pytest.approx(variance, rel=0.3)
