"""Jitter of the starting points of chains, as `pymc.sample` adds for NUTS."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_geodesic import GMC, SGGMC, UniformSphere, gSGNHT
from tests.steps.runs import INTERPRETED, sample


@pytest.fixture(scope="module")
def two_modes():
    """Modes at −1/2 and 1/2, between which no trajectory leads, and an initial point near one."""
    with pm.Model() as model:
        x = pm.Flat("x", initval=0.2)
        pm.Potential("modes", pt.logaddexp(*(-0.5 * ((x - m) / 0.02) ** 2 for m in (-0.5, 0.5))))
    return model


def signs(model, step_class, **kwargs):
    """Sign of the last draw of each of eight chains."""
    with model:
        step = step_class(compile_kwargs=INTERPRETED)
    run = sample(model, step, chains=8, tune=100, draws=10, random_seed=11, **kwargs)
    return set(np.sign(run.posterior["x"].values[:, -1]))


@pytest.mark.parametrize("step_class", [GMC, SGGMC, gSGNHT])
def test_chains_find_more_modes_than_that_of_the_initial_point(two_modes, step_class):
    assert signs(two_modes, step_class) == {-1.0, 1.0}


def test_jitter_is_checked_with_rows_of_the_data():
    """The gradient at a jittered point is that of a minibatch, here of rows that are all 1.

    A step of some variables draws the rows of its minibatches with replacement, into an array that
    has no values before the first minibatch.
    """
    with pm.Model() as model:
        pm.Normal("z")
        x, y = pm.Flat("x", initval=0.2), pm.Data("y", np.ones(120_000))
        modes = pt.logaddexp(*(-0.5 * ((x - m) / 0.02) ** 2 for m in (-0.5, 0.5)))
        pm.Potential("rows", (pt.sqrt(2.0 * y - 1.0) * modes / 120_000.0).sum())
        step = SGGMC([x], batch_size=20_000, minibatch=["y"])
    run = sample(model, step, chains=1, tune=100, draws=10, random_seed=1, compile_kwargs=None)
    assert (run.posterior["x"] < 0.0).all()


def test_no_jitter_where_users_of_pymc_turn_it_off(two_modes):
    """By ``init=``; and user-specified starting points are exact."""
    assert signs(two_modes, GMC, init="adapt_diag") == {1.0}
    assert signs(two_modes, GMC, initvals={"x": -0.2}) == {-1.0}


@pytest.mark.parametrize("max_retries", [0, 10])
def test_points_outside_the_support_are_not_used(max_retries):
    """The chain begins at the initial point if all jittered points are outside."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("support", pt.switch(pt.abs(x) < 0.01, 0.0, -np.inf))
        step = GMC(compile_kwargs=INTERPRETED)
    run = sample(model, step, chains=3, tune=100, draws=5, jitter_max_retries=max_retries)
    assert (np.abs(run.posterior["x"].values) < 0.01).all()


def test_directions_keep_their_starting_point():
    with pm.Model() as model:
        u = UniformSphere("u", shape=3, initval=[0.0, 0.0, 1.0])
        pm.Potential("poles", 2000.0 * u[2] ** 2)  # two modes
        step = GMC(compile_kwargs=INTERPRETED)
    run = sample(model, step, chains=4, tune=100, draws=5)
    assert (run.posterior["u"].values[..., 2] > 0.9).all()


@pytest.mark.parametrize("step_class", [GMC, SGGMC])
def test_jitter_is_small_where_the_density_is_steep(step_class):
    """A logarithmic link and an age in years: 40 times the slope is added to the log mean."""
    rng = np.random.default_rng(1)
    age = rng.normal(40.0, 12.0, size=500)
    y = rng.exponential(np.exp(0.02 * age))
    with pm.Model() as model:
        slope = pm.Normal("slope")
        pm.Exponential("y", pm.math.exp(-slope * age), observed=y)
        step = step_class()
    run = sample(model, step, chains=4, tune=300, draws=300, compile_kwargs=None)
    means = run.posterior["slope"].mean("draw").values
    np.testing.assert_allclose(means, 0.02, atol=0.005)
