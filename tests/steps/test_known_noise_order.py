"""Minibatch order for known gradient noise: random rows if there are few blocks."""

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

from pymc_geodesic import SGGMC, SGLD, SSGNHT, SparseData, gSGNHT
from pymc_geodesic.datasets import row_blocks
from pymc_geodesic.minibatches.resident_rows import IndependentRows, RandomRows, ShuffledRows
from tests.grids import cross, slow

BATCH = 5


@pytest.mark.parametrize(
    ("route", "step_class", "n_rows", "noise", "expected"),
    cross(["minibatch=", "pm.Minibatch"], [
        (SGGMC, 999 * BATCH, 3.0, RandomRows),
        (SGGMC, 1000 * BATCH, 3.0, IndependentRows),
        (SGGMC, 999 * BATCH, None, IndependentRows),
        (SGGMC, 999 * BATCH, "fisher", RandomRows),
        (gSGNHT, 999 * BATCH, 3.0, RandomRows),
        (gSGNHT, 1000 * BATCH, 3.0, IndependentRows),
        (gSGNHT, 999 * BATCH, None, IndependentRows),
    ]),
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("step_class", "n_rows", "arguments", "expected"),
    cross([SGGMC, gSGNHT, SSGNHT, SGLD], [
        (999 * BATCH, {}, RandomRows),
        (1000 * BATCH, {}, IndependentRows),
        (999 * BATCH, {"control_variates": False}, RandomRows),
    ]),
)  # fmt: skip
def test_order_of_the_rows_without_control_variates(step_class, n_rows, arguments, expected):
    """With a variable of another step, whose changes would invalidate the control variates."""
    with pm.Model():
        mean, scale = pm.Normal("mean"), pm.HalfNormal("scale")
        pm.Normal("y", mean, scale, observed=pm.Data("rows", np.linspace(-1.0, 1.0, n_rows)))
        step = step_class(
            None if arguments else [mean], minibatch="rows", batch_size=BATCH,
            compile_kwargs={"mode": "FAST_COMPILE"}, **arguments,
        )  # fmt: skip
    assert type(step.estimator.source) is expected


@pytest.mark.parametrize(
    ("n_minibatches", "arguments", "expected"),
    [
        (999, {"control_variates": False}, "random"),
        (1000, {"control_variates": False}, "independent"),
        (999, {}, "independent"),
        (1000, {"gradient_noise": 3.0}, "independent"),
    ],
)
@pytest.mark.parametrize("n_placeholders", [1, 1000 * BATCH])
def test_order_from_disk_does_not_depend_on_the_placeholder(
    n_minibatches, arguments, expected, n_placeholders
):
    rows = np.linspace(-1.0, 1.0, n_minibatches * BATCH)
    with pm.Model():
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=pm.Data("rows", np.zeros(n_placeholders)))
        source = SGGMC(
            minibatch="rows", batches=row_blocks(rows, block_size=500), batch_size=BATCH,
            compile_kwargs={"mode": "FAST_COMPILE"}, **arguments,
        ).estimator.source  # fmt: skip
    assert source._order == expected


@pytest.mark.parametrize(("n_rows", "expected"), [(20, RandomRows), (1000, IndependentRows)])
def test_order_of_sparse_rows(n_rows, expected):
    with pm.Model():
        X, w = SparseData("X", sparse.eye_array(n_rows, 3, format="csr")), pm.Normal("w", shape=3)
        pm.Normal("y", X @ w, 1.0, observed=pm.Data("rows", np.zeros(n_rows)))
        step = SGGMC(
            minibatch=["X", "rows"], batch_size=1, gradient_noise=3.0,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )  # fmt: skip
    assert type(step.estimator.source) is expected


@pytest.mark.parametrize("step_class", [SGGMC, gSGNHT, slow(SGLD)])
def test_order_within_blocks_from_disk(step_class):
    """Subtracted noise must not add up to zero over a block."""
    rows = np.linspace(-1.0, 1.0, 100 * BATCH)
    with pm.Model():
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=pm.Data("rows", rows[:1]))
        for metric, has_epochs in (("auto", False), (None, step_class is not gSGNHT)):
            step = step_class(
                minibatch="rows", batches=row_blocks(rows, block_size=200), batch_size=BATCH,
                metric=metric, compile_kwargs={"mode": "FAST_COMPILE"},
            )  # fmt: skip
            assert step.estimator.source.has_epochs is has_epochs


@pytest.mark.parametrize("step_class", [SGGMC, slow(gSGNHT), slow(SGLD)])
def test_blocks_from_disk_need_control_variates_to_be_whitened(step_class):
    """The noise of a whole block does not show in differences of its minibatches.

    Ten passes over blocks of 4,000 rows made the variance of SGGMC seven times what it is.
    """
    rows = np.linspace(-1.0, 1.0, 1000 * BATCH)
    with pm.Model():
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=pm.Data("rows", rows[:1]))
        for variates, adapts in (("auto", True), (False, False)):
            step = step_class(
                minibatch="rows", batches=row_blocks(rows, block_size=200), batch_size=BATCH,
                control_variates=variates, compile_kwargs={"mode": "FAST_COMPILE"},
            )  # fmt: skip
            assert step.adaptation.whitens is adapts
