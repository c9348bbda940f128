"""Observed values of all rows are no minibatch, whatever the number of rows of one."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.minibatches.row_inputs import check_observed_minibatches

N = 30
X, Y = np.random.default_rng(1).normal(size=(N, 2)), np.arange(float(N))


def regression(rows, batch_size):
    """Without a step: PyMC builds the model whatever the numbers of rows are."""
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        data = pm.Data("X", X) if rows == "container" else X
        drawn = pm.Minibatch(data, batch_size=batch_size)
        pm.Normal("y", drawn @ slopes, observed=Y, total_size=N)
    return model


@pytest.mark.parametrize("batch_size", [1, 2, 10, N])
@pytest.mark.parametrize("rows", ["array", "container"])
def test_observed_values_of_all_rows_are_refused(rows, batch_size):
    named = "'X'" if rows == "container" else "its data"
    message = (
        rf"'y' has all 30 observed values, but pm.Minibatch draws {batch_size} of the 30 rows of "
        rf"{named}. Draw them together, X_rows, y_rows = "
        rf"pm.Minibatch\(X, y, batch_size={batch_size}"
        r"\), and pass observed=y_rows"
    )
    with pytest.raises(ValueError, match=message):
        check_observed_minibatches(regression(rows, batch_size))


def test_steps_refuse_them_before_pytensor_does():
    with pytest.raises(ValueError, match="'y' has all 30 observed values"):
        pg.SGGMC(model=regression("array", 10))


def test_observed_containers_are_seen():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        pm.Normal("y", pm.Minibatch(X, batch_size=5) @ slopes, observed=pm.Data("all", Y))
    with pytest.raises(ValueError, match="'y' has all 30 observed values"):
        check_observed_minibatches(model)


def test_rows_that_belong_together_pass():
    with pm.Model() as model:
        slopes = pm.Normal("slopes", shape=2)
        X_rows, y_rows = pm.Minibatch(X, Y, batch_size=10)
        pm.Normal("y", X_rows @ slopes, observed=y_rows, total_size=N)
        pm.Normal("beside", slopes[0], observed=Y)  # rows of another likelihood
        pm.Normal("mean", pm.Minibatch(X, batch_size=5).sum(), observed=0.0)
    check_observed_minibatches(model)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mean"), observed=Y)
    check_observed_minibatches(model)
