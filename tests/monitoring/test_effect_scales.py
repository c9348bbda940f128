"""Scales of group effects that reach values at which the data are uninformative."""

import logging

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
    beginning = "The median posterior standard deviation of the group effects of 'e' is "
    assert diagnosis.finding.startswith(beginning)
    end = " times the 1% posterior quantile of their scale (expected at most 1.2): at small scales"
    assert end in diagnosis.finding


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
    assert ("scale may be too large" in caplog.text) == (sd == 0.0)
    if sd:
        assert idata.posterior["tau"].mean() == pytest.approx(1.1, abs=0.2)


# --- the seeds example of BUGS: germination on 21 plates ------------------------------------------

GERMINATED = [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]
SEEDS = [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]
VARIETY = np.repeat([0.0, 1.0], [11, 10])
EXTRACT = np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5])


def seeds(scale, *, is_centered=True):
    """Logistic regression with an effect of each plate."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1e3, shape=4)
        match scale:
            case "precision":
                sd = pm.Gamma("tau", 0.001, 0.001) ** -0.5
            case "variance":
                sd = pm.InverseGamma("tau", 0.001, 0.001) ** 0.5
            case "log scale":
                sd = pm.math.exp(pm.Normal("tau", -1.0, 1.5))
            case "scale":
                sd = pm.HalfNormal("tau", 1.0)
        effect = pm.Normal("b", 0.0, sd, shape=21) if is_centered else sd * pm.Normal("b", shape=21)
        mean = a[0] + a[1] * VARIETY + a[2] * EXTRACT + a[3] * VARIETY * EXTRACT + effect
        pm.Binomial("germinated", n=SEEDS, logit_p=mean, observed=GERMINATED)
    return model


def is_warned(model, step, caplog):
    with model, caplog.at_level(logging.WARNING, "pymc"):
        pm.sample(
            300, tune=1_000, chains=1, random_seed=1, progressbar=False, step=step,
            compute_convergence_checks=False,
        )  # fmt: skip
    return "the scale may be too large" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "sampler"),
    [
        ("precision", pg.SGGMC),
        pytest.param("precision", pg.gSGNHT, marks=pytest.mark.slow),
        pytest.param("variance", pg.SGGMC, marks=pytest.mark.slow),
        pytest.param("log scale", pg.SGGMC, marks=pytest.mark.slow),
        pytest.param("scale", pg.gSGNHT, marks=pytest.mark.slow),
    ],
)
def test_seeds_have_a_warning(scale, sampler, caplog):
    model = seeds(scale)
    assert is_warned(model, sampler(model=model, metric="dense"), caplog)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC])
def test_seeds_as_products_have_no_warning(sampler, caplog):
    model = seeds("scale", is_centered=False)
    assert not is_warned(model, sampler(model=model), caplog)


def test_informative_groups_have_no_warning(caplog):
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(15), 20)
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mu", 0.0, 3.0), pm.HalfNormal("sd"), shape=15)
        y = rng.normal(0.0, 0.6, 15)[group] + rng.normal(size=group.size)
        pm.Normal("y", effect[group], 1.0, observed=y)
    assert not is_warned(model, pg.SGGMC(model=model), caplog)
