"""Detection of variables that set the scale of others, in both parametrizations."""

import numpy as np
import pytest

from pymc_geodesic.adaptation.mass_matrix import FactorEstimator, MassMatrixWindows
from pymc_geodesic.monitoring.funnels import find_funnel

N, D = 200, 8
PARTS = {"mu": slice(0, 1), "v": slice(1, 2), "x": slice(2, 2 + D)}


def draws(sd):
    rng = np.random.default_rng(1)
    return rng.standard_normal(N), sd * rng.standard_normal(N), rng.standard_normal((N, D))


def centered(sd):
    """A vector x ~ N(0, e^v), v ~ N(0, sd), and a normal mu."""
    mu, v, z = draws(sd)
    x = np.exp(v)[:, None] * z
    of_v = -v / sd**2 + np.sum(z**2 - 1.0, axis=1)
    return np.column_stack([mu, v, x]), np.column_stack([-mu, of_v, -z * np.exp(-v)[:, None]])


def products(sd):
    """The same as e^v z where data are informative about it: z is narrow where v is large."""
    mu, v, z = draws(sd)
    precision = 1.0 + 100.0 * np.exp(2.0 * v)[:, None]
    z = z / np.sqrt(precision)
    return np.column_stack([mu, v, z]), np.column_stack([-mu, -v, -precision * z])


@pytest.mark.parametrize(
    ("draw", "sign", "advice"),
    [(centered, -1, "Write 'x' non-centered"), (products, 1, "Write 'x' centered")],
)
def test_is_found_and_named(draw, sign, advice):
    funnel = find_funnel(*draw(1.0), PARTS)
    assert (funnel.scale, funnel.dependent, np.sign(funnel.slope)) == ("v", "x", sign)
    assert abs(funnel.slope) == pytest.approx(2.0, abs=0.4)  # curvatures are e^(∓2v)
    diagnosis = funnel.diagnosis(())
    assert "'v' sets the scale of 'x'" in diagnosis.finding
    assert diagnosis.value == pytest.approx(np.exp(0.5 * abs(funnel.slope)))
    assert diagnosis.remedy.startswith(advice)


def by_precision(sd):
    """The centered vector with u = −2v, the logarithm of a precision, as its coordinate."""
    positions, gradients = centered(sd)
    positions[:, 1] *= -2.0
    gradients[:, 1] *= -0.5
    return positions, gradients


def test_precision_of_a_centered_vector():
    funnel = find_funnel(*by_precision(1.0), PARTS)
    assert funnel.slope > 1.0
    remedy = funnel.diagnosis({("v", "x")}).remedy
    assert "it appears to be centered, with 'v' as its precision" in remedy
    assert "as a standard normal variable times 1/sqrt(v)" in remedy


def test_variances_and_log_scales_are_written_as_products_with_the_standard_deviation():
    remedy = find_funnel(*centered(1.0), PARTS).diagnosis({("v", "x")}).remedy
    assert "non-centered, as a standard normal variable times its standard deviation;" in remedy


def test_intercept_confounded_with_effects():
    """The prior of the intercept does not depend on the scale of the effects."""
    remedy = find_funnel(*centered(1.0), PARTS).diagnosis({("v", "effect")}).remedy
    assert remedy.startswith("'v' is the scale of 'effect', from which the data hardly distinguish")
    assert "narrower prior of 'v'" in remedy


@pytest.mark.parametrize("draw", [centered, products])
def test_narrow_scales_are_none(draw):
    assert find_funnel(*draw(0.2), PARTS) is None


def test_needs_draws_and_gradients():
    positions, gradients = centered(1.0)
    assert find_funnel(positions[:30], gradients[:30], PARTS) is None
    gradients[:, PARTS["x"]] = 0.0
    assert find_funnel(positions, gradients, PARTS) is None


def test_long_vectors_are_no_scales():
    """One of a thousand coordinates may be correlated with anything by chance."""
    positions, gradients = centered(1.0)
    rng = np.random.default_rng(1)
    many = slice(1, 1001)
    x = positions[:, PARTS["x"]]
    positions = np.column_stack([positions[:, :1], rng.standard_normal((N, 1000)), x])
    gradients = np.column_stack([gradients[:, :1], -positions[:, many], gradients[:, PARTS["x"]]])
    assert find_funnel(positions, gradients, {"v": many, "x": slice(1001, 1001 + D)}) is None


def test_windows_find_funnels_among_their_draws():
    windows = MassMatrixWindows(N, FactorEstimator("dense"))
    for position, gradient in zip(*centered(1.0), strict=True):
        windows.add(position, gradient)
    assert windows.funnel(PARTS).scale == "v"
