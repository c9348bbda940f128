"""Stationarity of a chain: no deviation where it is right, and small errors where it is not."""

from copy import deepcopy

import numpy as np
import pytest

from pymc_geodesic.monitoring.stationarity import SETTINGS, Deviation, Stationarity

N_DRAWS, DEPENDENCE = 1000, 0.3


def chain(rng, d, *, scale=1.0, shift=0.0, curvature=1.0, observes=True):
    """Checks of dependent draws of N(shift, scale²) where the gradient is −λz.

    The draws are right where λ scale² = 1 and nothing is shifted.
    """
    stationarity = Stationarity(d, d, N_DRAWS // SETTINGS.check_every)
    z = rng.standard_normal(d)
    for draw in range(N_DRAWS):
        z = DEPENDENCE * z + np.sqrt(1.0 - DEPENDENCE**2) * rng.standard_normal(d)
        x = shift + scale * z
        if observes:
            stationarity.observe(x)
        if draw % SETTINGS.check_every == 0:
            stationarity.check(x, -curvature * x)
    return stationarity


@pytest.mark.parametrize(("d", "scale"), [(2, 1.0), (30, 1.0), (5, 3.0)])
def test_right_chains_have_no_deviation(d, scale):
    rng = np.random.default_rng(1)
    found = [chain(rng, d, scale=scale, curvature=scale**-2).worst() for _ in range(100)]
    assert found == [None] * 100


@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        ({"shift": 0.4}, {"mean"}),
        ({"scale": 0.8}, {"temperature"}),
        ({"scale": 1.2}, {"temperature"}),
    ],
)
def test_small_errors_are_found(wrong, kinds):
    rng = np.random.default_rng(1)
    found = [chain(rng, 6, **wrong).worst() for _ in range(20)]
    assert {one.kind for one in found if one is not None} == kinds
    assert sum(one is not None for one in found) == 20


def test_errors_too_small_in_each_coordinate_are_found_in_all_together():
    """Variances 20 % too small, with noise that hides each single error."""
    rng = np.random.default_rng(1)
    d, n = 50, 1000
    stationarity = Stationarity(d, d, n)
    for _ in range(n):
        z = np.sqrt(0.8) * rng.standard_normal(d)
        stationarity.check(z, -z + 3.0 * rng.standard_normal(d))
    worst = stationarity.worst()
    assert isinstance(worst, Deviation)
    assert (worst.kind, worst.coordinate) == ("all temperatures", -1)
    assert worst.value == pytest.approx(0.8, abs=0.05)


def test_positions_between_checks_halve_the_errors():
    """There are four times as many draws as checks, nearly independent, of one distribution."""
    rng = np.random.default_rng(1)
    with_all = np.array([chain(rng, 4, scale=1.3).means()[0] for _ in range(60)])
    without = np.array([chain(rng, 4, scale=1.3, observes=False).means()[0] for _ in range(60)])
    assert with_all.std(axis=0).mean() < 0.75 * without.std(axis=0).mean()
    np.testing.assert_allclose(with_all.mean(axis=0), [0.0] * 4 + [1.69] * 5, atol=0.05)
    claimed = np.mean([chain(rng, 4, scale=1.3).means()[1] for _ in range(20)], axis=0)
    np.testing.assert_allclose(claimed / with_all.std(axis=0), 1.0, atol=0.35)


def test_gradients_that_do_not_depend_on_positions_are_not_corrected():
    """A gradient that is noise alone: the regression on z must not add to its error."""
    rng = np.random.default_rng(1)
    stationarity = Stationarity(3, 3, N_DRAWS)
    for _ in range(N_DRAWS):
        z = rng.standard_normal(3)
        stationarity.observe(z)
        stationarity.check(z, rng.standard_normal(3))
        stationarity.observe(rng.standard_normal(3))
    np.testing.assert_allclose(stationarity.means()[1], N_DRAWS**-0.5, rtol=0.6)
    assert stationarity.worst().kind in ("temperature", "all temperatures")


def test_a_constant_chain():
    """Its position is the same to rounding, so that there is nothing to regress on."""
    stationarity = Stationarity(2, 2, 200)
    for draw in range(800):
        z = np.array([2.0, -1.0]) * (1.0 + 1e-12 * (-1) ** draw)
        stationarity.observe(z)
        if draw % 4 == 0:
            stationarity.check(z, -z)
    means, errors = stationarity.means()
    np.testing.assert_allclose(means, [-2.0, 1.0, 4.0, 1.0, 2.5], rtol=1e-9)
    assert (errors < 1e-9).all()
    assert stationarity.worst().coordinate == 0


def test_continues_from_its_state():
    whole = chain(np.random.default_rng(1), 3)
    copy = Stationarity(3, 3, N_DRAWS // SETTINGS.check_every)
    copy.sums = deepcopy(whole.sums)
    for one in (whole, copy):
        one.observe(np.ones(3))
        one.check(np.ones(3), -np.ones(3))
    for mine, theirs in zip(whole.means(), copy.means(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_scale_among_many_effects_is_found():
    """The error of one variable in a thousand coordinates, of which the others are one variable."""

    def worst(sizes):
        rng = np.random.default_rng(1)
        stationarity = Stationarity(1001, 1001, 250, sizes)
        for _ in range(250):
            z = rng.standard_normal(1001)
            z[0] += 0.5
            stationarity.check(z, -z)
        return stationarity.worst()

    assert worst(None) is None
    found = worst([1, 1000])
    assert (found.kind, found.coordinate) == ("mean", 0)
