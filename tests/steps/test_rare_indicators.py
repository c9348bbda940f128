"""Coefficients of rare indicators: accurate, or named together in one warning."""

import logging
import re

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_geodesic as pg

N_ROWS = 20_000
COUNTS = np.repeat([1, 2, 3, 5, 8, 13, 20, 40, 80, 200, 500, 2_000, 5_000], 2)
SAMPLE = {"draws": 1_000, "chains": 1, "cores": 1, "random_seed": 3, "progressbar": False}


def classifier(loss: str) -> pm.Model:
    """Linear classifier of rows with indicators, each in a number of rows."""
    rng = np.random.default_rng(1)
    x = np.zeros((N_ROWS, COUNTS.size))
    for j, count in enumerate(COUNTS):
        x[rng.choice(N_ROWS, count, replace=False), j] = 1.0
    score = -0.5 + x @ rng.normal(size=COUNTS.size)
    y = (rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    with pm.Model() as model:
        score = pm.Normal("a", 0.0, 2.0) + pm.Data("x", x) @ pm.Normal("w", shape=COUNTS.size)
        labels = pm.Data("labels", y)
        if loss == "hinge":
            pm.Potential("loss", -2.0 * pm.math.maximum(0.0, 1.0 - (2 * labels - 1) * score))
        else:
            pm.Bernoulli("y", logit_p=score, observed=labels)
    return model


def classifier_of_levels() -> pm.Model:
    """Logistic regression with indicators that the model computes: levels, and a product."""
    rng = np.random.default_rng(1)
    shares = np.append([2e-4, 4e-4, 1e-3, 2e-3], np.full(8, (1.0 - 3.6e-3) / 8.0))
    level = rng.choice(12, size=N_ROWS, p=shares)
    first, second = (rng.random((2, N_ROWS)) < 0.03).astype(float)
    score = -0.3 + 0.8 * first * second + 0.6 * first - 0.4 * second
    y = (rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    with pm.Model() as model:
        level, first, second = (
            pm.Data("level", level),
            pm.Data("first", first),
            pm.Data("second", second),
        )
        a, w = pm.Normal("a", 0.0, 2.0), pm.Normal("w", shape=7)
        score = a + w[0] * first + w[1] * second + w[2] * first * second
        for k in range(4):
            score += w[3 + k] * pt.eq(level, k)
        pm.Bernoulli("y", logit_p=score, observed=pm.Data("labels", y))
    return model


def sample(model: pm.Model, caplog, *, random_seed: int = 3, **rows):
    """Draws of w, and the warnings of the step."""
    arguments = SAMPLE | {"random_seed": random_seed}
    with model, caplog.at_level(logging.WARNING, "pymc"):
        step = pg.gSGNHT(minibatch=["x", "labels"], **rows)
        idata = pm.sample(step=step, compute_convergence_checks=False, **arguments)
    messages = [each.getMessage() for each in caplog.records]
    return idata.posterior["w"].values[0], [each for each in messages if "gSGNHT[a, w]" in each]


@pytest.mark.slow
def test_coefficients_are_accurate(caplog):
    """The rare rows are part of every gradient estimate."""
    model = classifier("logistic")
    w, messages = sample(model, caplog, batch_size=100)
    assert messages == []
    with model:
        exact = pm.sample(step=pg.GMC(), **(SAMPLE | {"draws": 4_000})).posterior["w"].values[0]
    sd = exact.std(axis=0)
    assert np.abs((w.mean(axis=0) - exact.mean(axis=0)) / sd).max() < 0.25
    assert np.abs(w.std(axis=0) / sd - 1.0).max() < 0.15


@pytest.mark.parametrize("order", ["independent", "random"])
def test_rows_that_minibatches_leave_out_are_counted(caplog, order):
    """Minibatches with replacement need not contain rare rows, of which a warning is issued."""
    with classifier("hinge"), caplog.at_level(logging.WARNING, "pymc"):
        pg.gSGNHT(minibatch=["x", "labels"], batch_size=100, minibatch_order=order)
    messages = [each.getMessage() for each in caplog.records]
    assert len(messages) == (order == "random")
    assert all("rare level or indicator (342 rows altogether)" in each for each in messages)


COMPUTED = {"minibatch": ["level", "first", "second", "labels"], "batch_size": 100}


def test_rows_of_computed_indicators_are_counted(caplog):
    """Those of four rare levels and of a product."""
    with classifier_of_levels() as model, caplog.at_level(logging.WARNING, "pymc"):
        pg.gSGNHT(minibatch_order="random", **COMPUTED)
    level, first, second = (model[name].get_value() for name in ("level", "first", "second"))
    n_rare = np.count_nonzero((level < 4) | (first * second > 0.0))
    (message,) = (each.getMessage() for each in caplog.records)
    assert f"rare level or indicator ({n_rare} rows altogether)" in message


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.gSGNHT])
def test_coefficients_of_computed_indicators_are_accurate(sampler):
    model, draws = classifier_of_levels(), []
    for step, n in ((sampler, 1_000), (pg.GMC, 4_000)):
        with model:
            made = step(**COMPUTED) if step is sampler else step()
            idata = pm.sample(
                step=made, compute_convergence_checks=False, **(SAMPLE | {"draws": n})
            )
        draws.append(idata.posterior["w"].values[0])
    w, exact = draws
    sd = exact.std(axis=0)
    assert np.abs((w.mean(axis=0) - exact.mean(axis=0)) / sd).max() < 0.25
    assert np.abs(w.std(axis=0) / sd - 1.0).max() < 0.15


@pytest.mark.slow
def test_all_coefficients_that_mix_slowly_are_named(caplog):
    """With a kink a few coefficients have long tails on one side of it."""
    model = classifier("hinge")
    w, messages = sample(model, caplog, batch_size=100)
    sizes = np.array([az.ess(each[np.newaxis]) for each in w.T])
    named = {int(each) for each in re.findall(r"'w\[(\d+)\]'", " ".join(messages))}
    assert set(np.flatnonzero(sizes < 40)) <= named
