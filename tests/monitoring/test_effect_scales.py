"""Scales of group effects that reach values at which the data are uninformative."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.monitoring.effect_scales import EffectScaleMonitor

GROUPS = 40


def monitored(data_sd, log_scale_sd):
    """Monitor of draws of effects given a log-normal scale around 1 and data with this sd."""
    rng = np.random.default_rng(1)
    monitor = EffectScaleMonitor(["e"], lambda x: [(x[1:], np.full(GROUPS, np.exp(x[0])))])
    monitor.initialize(400)
    for _ in range(400):
        log_scale = log_scale_sd * rng.normal()
        sd = (np.exp(-2.0 * log_scale) + data_sd**-2) ** -0.5
        monitor.observe(np.append(log_scale, 5.0 + sd * rng.normal(size=GROUPS)), {})
    return monitor


def test_informative_data():
    assert monitored(0.1, 0.3).diagnosis([]) is None


def test_prior_dominates_at_the_low_quantile_of_the_scale():
    diagnosis = monitored(1.0, 1.0).diagnosis([])
    assert diagnosis.coordinates == ("e",)
    assert 4.0 < diagnosis.value < 8.0  # 1 % quantile e^(−2.33), sd of the effects 0.5 to 0.8
    assert "GMC" in diagnosis.remedy


def test_state_restores_the_sums():
    monitor, other = monitored(1.0, 1.0), monitored(0.1, 0.3)
    other.state = monitor.state
    assert other.diagnosis([]) == monitor.diagnosis([])


def effects_of_zero(n_groups, sd):
    rng = np.random.default_rng(0)
    group = rng.integers(n_groups, size=8_000)
    y = sd * rng.normal(size=n_groups)[group] + rng.normal(size=len(group))
    with pm.Model() as model:
        z = pm.Normal("z", shape=n_groups)
        pm.Normal("y", pm.Normal("m") + (pm.HalfNormal("tau") * z)[group], 1.0, observed=y)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("step", [pg.SGGMC, pg.gSGNHT, pg.SSGNHT, pg.SGLD])
@pytest.mark.parametrize("sd", [1.0, 0.0])
def test_warning_of_a_variance_component_that_is_zero(step, sd, caplog):
    with effects_of_zero(20, sd):
        idata = pm.sample(
            500, tune=500, chains=1, random_seed=1, progressbar=False,
            step=step(batch_size=400), compute_convergence_checks=False,
        )  # fmt: skip
    assert ("lower tail of the scale" in caplog.text) == (sd == 0.0)
    if sd:
        assert idata.posterior["tau"].mean() == pytest.approx(1.1, abs=0.2)
