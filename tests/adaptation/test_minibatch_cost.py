"""Expected cost of minibatches and of all rows, reported when a step is created."""

import re

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg


def groups(n_rows: int, rows_per_group: int) -> pm.Model:
    """Logistic regression with group effects."""
    rng = np.random.default_rng(1)
    group = rng.permutation(np.arange(n_rows) // rows_per_group)
    x, effect = rng.normal(size=n_rows), rng.normal(0.0, 0.7, size=n_rows // rows_per_group)
    y = rng.random(n_rows) < 1.0 / (1.0 + np.exp(0.3 - 0.5 * x - effect[group]))
    with pm.Model() as model:
        mu, beta = pm.Normal("mu", 0.0, 2.0), pm.Normal("beta")
        effects = pm.Normal("effect", 0.0, pm.HalfNormal("sd", 1.0), shape=effect.size)
        pm.Bernoulli("y", logit_p=mu + beta * x + effects[group], observed=y.astype(int))
    return model


def made(model: pm.Model, sampler: type = pg.SGGMC, **kwargs):
    return sampler(model=model, compile_kwargs={"mode": "FAST_COMPILE"}, **kwargs)


def advice_of(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize(
    ("n_rows", "rows_per_group", "batch_size", "noise"),
    [
        (60_000, 20, 200, 0.054),
        (60_000, 50, 200, 0.017),
        (60_000, 200, 200, 0.0021),
        (200_000, 100, 5, 0.65),
        (900, 10, 100, 0.23),
    ],
)
def test_expected_noise_is_that_of_a_warm_up(n_rows, rows_per_group, batch_size, noise, caplog):
    """Reference values: medians over coordinates of the variances measured in warm-ups.

    With 900 rows the warm-up chose first order.
    """
    step = made(groups(n_rows, rows_per_group), batch_size=batch_size)
    assert step.adaptation.cost.noise == pytest.approx(noise, rel=0.25)
    assert advice_of(caplog) == []
    assert f"gradients (batch_size={batch_size} of {n_rows:,} rows)" in repr(step.adaptation)


@pytest.mark.parametrize(
    ("rows_per_group", "noise"),
    [(20, 6.9), (50, 4.3), (200, 1.7)],
)
def test_expected_noise_of_first_order(rows_per_group, noise):
    model = groups(60_000, rows_per_group)
    step = made(model, batch_size=200, control_variates=1)
    assert step.adaptation.cost.noise == pytest.approx(noise, rel=0.25)


@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.gSGNHT])
def test_all_rows_are_recommended_where_they_are_cheaper(sampler, caplog):
    """Without control variates, even minibatches of 2,000 rows are too noisy."""
    made(groups(5_000, 20), sampler, batch_size=2_000, control_variates=False)
    (message,) = advice_of(caplog)
    assert message.startswith(
        f"{sampler.__name__}[mu, beta, sd, effect]: An independent draw takes"
    )
    assert "Use GMC" in message


def test_larger_minibatches_are_recommended_for_many_groups(caplog):
    model = groups(1_000_000, 500)
    step = made(model, batch_size=5, control_variates=1)
    (message,) = advice_of(caplog)
    size = int(re.search(r"batch_size >= (\d+)", message)[1])
    assert 20 <= size <= 400
    assert step.adaptation.cost.n_steps > 200
    caplog.clear()
    step = made(model, batch_size=size, control_variates=1)
    assert step.adaptation.cost.n_steps < 200
    assert advice_of(caplog) == []


def test_no_cost_without_minibatches_or_adaptation(caplog):
    model = groups(2_000, 20)
    assert made(model).adaptation.cost is None
    made(model, batch_size=1_500, step_size=0.01, friction=1.0)
    assert advice_of(caplog) == []


def test_all_rows_are_cheaper_with_small_groups(caplog):
    """Measured: a draw of 5,000 rows in groups of 20 takes as long as 20 with all rows."""
    assert made(groups(5_000, 20), batch_size=500).adaptation.cost.ratio > 4.0
    (message,) = advice_of(caplog)
    assert message.partition("rows. ")[2].startswith("Use GMC")
    assert made(groups(5_000, 1_000), batch_size=100).adaptation.cost.ratio < 1.5


def test_two_effects_with_one_index_have_few_statistics(caplog):
    """An index that is used twice is two constants of the model."""
    rng = np.random.default_rng(1)
    group, x = rng.integers(0, 300, 60_000), rng.normal(size=60_000)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("sd"), shape=300)
        slope = pm.Normal("slope", 0.0, pm.HalfNormal("slope_sd"), shape=300)
        pm.Normal("y", effect[group] + slope[group] * x, observed=rng.normal(size=60_000))
    step = made(model, batch_size=1_000)
    assert step.estimator.count_statistics() == 600 + 300
    (message,) = advice_of(caplog)
    assert "Use GMC, for which sufficient statistics replace the rows" in message


@pytest.mark.slow
def test_number_of_gradients_per_draw_is_the_expected_one():
    model = groups(20_000, 20)
    step = pg.SGGMC(model=model, batch_size=200, control_variates=1)
    pm.sample(
        draws=10,
        tune=1_000,
        chains=1,
        cores=1,
        step=step,
        model=model,
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
    )
    assert step.adaptation.parameters.n_steps == pytest.approx(
        step.adaptation.cost.n_steps, rel=0.5
    )
