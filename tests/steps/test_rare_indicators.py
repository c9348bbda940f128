"""Coefficients of rare indicators: accurate, or named together in one warning."""

import logging
import re

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg

N_ROWS = 20_000
COUNTS = np.repeat([1, 2, 3, 5, 8, 13, 20, 40, 80, 200, 500, 2_000, 5_000], 2)


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


def warnings_of(loss, caplog):
    with classifier(loss), caplog.at_level(logging.WARNING, "pymc"):
        pm.sample(
            draws=1_000,
            tune=1_000,
            chains=1,
            cores=1,
            random_seed=3,
            progressbar=False,
            step=pg.gSGNHT(batch_size=100, minibatch=["x", "labels"]),
            compute_convergence_checks=False,
        )
    return [each.getMessage() for each in caplog.records if "gSGNHT[a, w]" in each.getMessage()]


@pytest.mark.slow
def test_all_coefficients_are_named_in_one_warning(caplog):
    (message,) = warnings_of("hinge", caplog)
    number = int(re.search(r"all (\d+) coordinates for which few", message)[1])
    assert number >= np.sum(COUNTS <= 40)
    assert f"This concerns {number} of {1 + COUNTS.size} coordinates" in message


@pytest.mark.slow
def test_no_warning_if_they_are_accurate(caplog):
    """Second-order control variates leave little noise: sds within 5 % of those of GMC."""
    assert warnings_of("logistic", caplog) == []
