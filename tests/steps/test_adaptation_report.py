"""What a step adapts, what keeps it from adapting more, and the remedy: `step.adaptation`, logs."""

import re

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg


def effects(batch_size: int, sampler: type = pg.SGGMC, n: int = 10_005, **kwargs):
    """Step for effects of 12,000 rows, of which 9,995 in ten minibatches are the limit."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        group = pm.Data("group", np.arange(12_000) % n)
        effect = pm.Normal("effect", shape=n)
        observed = pm.Data("observed", rng.normal(size=12_000))
        pm.Normal("y", effect[group], 1.0, observed=observed)
    rows = {"minibatch": ["group", "observed"], "batch_size": batch_size}
    return sampler(model=model, compile_kwargs={"mode": "FAST_COMPILE"}, **rows, **kwargs)


def warnings_of(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.SGLD])
def test_adaptation_that_is_off_is_reported_with_the_remedy(sampler, caplog):
    step = effects(1_000, sampler)
    (message,) = warnings_of(caplog)
    assert message.startswith(f"{sampler.__name__}[effect] adapts ")
    for text in (message, repr(step.adaptation)):
        assert "without a metric and without control variates" in text
        assert "10000 rows (10 minibatches of batch_size=1000) times 10005 coordinates" in text
        assert "Use batch_size <= 999" in text
    assert not step.adaptation.is_whitened
    caplog.clear()
    step = effects(999, sampler)
    assert warnings_of(caplog) == []
    assert step.adaptation.is_whitened
    assert re.match(
        "adapts metric='auto', control_variates='auto', step size", repr(step.adaptation)
    )


def test_fixed_parameters_are_no_obstacle(caplog):
    step = effects(1_000, step_size=0.01, friction=1.0)
    assert warnings_of(caplog) == []
    assert repr(step.adaptation) == "adapts nothing: step size and friction are user-specified."
    step = effects(1_000, step_size=0.01)
    assert warnings_of(caplog) == []
    assert "adapts step size and friction" in repr(step.adaptation)
    assert "user-specified" in repr(step.adaptation)


def test_warnings_recommend_the_batch_size_that_adapts():
    """Of a chain that is too short, and of one whose temperature is above 1."""
    step = effects(1_000)
    step.setup_chain(np.random.default_rng(1), 1, 2_000)
    rng, x = np.random.default_rng(2), np.zeros(10_005)
    hot, size = step.monitors
    stats = {"temperature": 50.0, "n_steps": 10, "step_size": 1e-4, "friction": 1.0}
    names = [f"effect[{i}]" for i in range(10_005)]
    for _ in range(2_000):
        x = 0.9999 * x + 0.01 * rng.normal()
        hot.observe(x, stats)
        size.observe(x, stats)
    for monitor, text in ((hot, "kinetic temperature"), (size, "effective")):
        diagnosis = monitor.diagnosis(names)
        message = diagnosis.message("SGGMC", step.adaptation.minibatch_remedy)
        assert text in message
        assert "batch_size <= 999" in message
        assert "larger minibatches" not in message
