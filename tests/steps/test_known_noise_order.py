"""Where the gradient noise is known and blocks are few, rows are drawn at random."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import SGGMC, gSGNHT
from pymc_geodesic.minibatches.random_rows import RandomRows
from pymc_geodesic.minibatches.shuffled_rows import IndependentRows, ShuffledRows

BATCH = 5


@pytest.mark.parametrize("route", ["pm.Minibatch", "minibatch="])
@pytest.mark.parametrize(
    ("step_class", "n_rows", "noise", "expected"),
    [
        (SGGMC, 999 * BATCH, 3.0, RandomRows),
        (SGGMC, 1000 * BATCH, 3.0, IndependentRows),
        (SGGMC, 999 * BATCH, None, IndependentRows),
        (SGGMC, 999 * BATCH, "fisher", RandomRows),
        (gSGNHT, 999 * BATCH, 3.0, RandomRows),
        (gSGNHT, 1000 * BATCH, 3.0, IndependentRows),
        (gSGNHT, 999 * BATCH, None, IndependentRows),
    ],
)
def test_order_of_the_rows(route, step_class, n_rows, noise, expected):
    rows = np.random.default_rng(1).normal(size=n_rows)
    arguments = {"gradient_noise": noise, "compile_kwargs": {"mode": "FAST_COMPILE"}}
    with pm.Model():
        mean = pm.Normal("mean")
        if route == "pm.Minibatch":
            drawn = pm.Minibatch(rows, batch_size=BATCH)
            pm.Normal("y", mean, 1.0, observed=drawn, total_size=n_rows)
        else:
            pm.Normal("y", mean, 1.0, observed=pm.Data("rows", rows))
            arguments |= {"minibatch": "rows", "batch_size": BATCH}
        assert type(step_class(**arguments).estimator.source) is expected
        if noise is None:  # what only tuning to a temperature needs
            shuffled = ShuffledRows if step_class is SGGMC else IndependentRows
            assert type(step_class(metric=None, **arguments).estimator.source) is shuffled


@pytest.mark.parametrize("step_class", [SGGMC, gSGNHT])
@pytest.mark.parametrize(
    ("n_rows", "arguments", "expected"),
    [
        (999 * BATCH, {}, RandomRows),
        (1000 * BATCH, {}, IndependentRows),
        (999 * BATCH, {"control_variates": False}, RandomRows),
    ],
)
def test_order_of_the_rows_without_control_variates(step_class, n_rows, arguments, expected):
    """Beside a variable of another step, whose moves would leave the variates behind."""
    with pm.Model():
        mean, scale = pm.Normal("mean"), pm.HalfNormal("scale")
        pm.Normal("y", mean, scale, observed=pm.Data("rows", np.linspace(-1.0, 1.0, n_rows)))
        step = step_class(
            None if arguments else [mean], minibatch="rows", batch_size=BATCH,
            compile_kwargs={"mode": "FAST_COMPILE"}, **arguments,
        )  # fmt: skip
    assert type(step.estimator.source) is expected
