"""Thermostats compensate gradient noise that exceeds a user-specified friction."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg

N, BATCH = 1000, 50
COUNTS = np.random.default_rng(3).multinomial(N, [0.6, 0.25, 0.1, 0.05])
ROWS = np.repeat(np.arange(4), COUNTS)
Y = np.random.default_rng(1).normal(size=N)


def mean():
    pm.Normal("y", pm.Normal("x", 0.0, 10.0), 1.0, observed=Y)


def proportions():
    pm.Categorical("y", pm.Dirichlet("x", np.ones(4)), observed=ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "step", "arguments"),
    [
        (mean, pg.gSGNHT, {"friction": 5.0}),
        (proportions, pg.gSGNHT, {"friction": 5.0}),
        (proportions, pg.SSGNHT, {"step_size": 0.01}),
    ],
)
def test_temperature_after_the_warm_up(build, step, arguments):
    with pm.Model():
        build()
        idata = pm.sample(
            3000, tune=1000, chains=2, cores=1, random_seed=2, progressbar=False,
            step=step(batch_size=BATCH, **arguments), compute_convergence_checks=False,
        )  # fmt: skip
    assert 0.8 < float(idata.sample_stats["temperature"].mean()) < 1.15
