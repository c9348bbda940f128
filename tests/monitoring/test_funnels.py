"""Detection of variables that set the scale of others, in both parametrizations."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.adaptation.mass_matrix import FactorEstimator, MassMatrixWindows
from pymc_geodesic.monitoring.funnels import find_funnel
from tests.grids import slow

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
    assert "as a product with its standard deviation 1/sqrt(v)" in remedy


def test_variances_and_log_scales_are_written_as_products_with_the_standard_deviation():
    remedy = find_funnel(*centered(1.0), PARTS).diagnosis({("v", "x")}).remedy
    assert "non-centered, as a product with its standard deviation;" in remedy


def test_pairs_in_the_model_have_a_lower_bound():
    draws = by_precision(0.3)
    assert find_funnel(*draws, PARTS) is None
    assert find_funnel(*draws, PARTS, {("mu", "x")}) is None
    assert find_funnel(*draws, PARTS, {("v", "x")}).scale == "v"
    assert find_funnel(*by_precision(0.05), PARTS, {("v", "x")}) is None


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


def warnings_of_chains(model, step, caplog, chains):
    with model, caplog.at_level(logging.WARNING, "pymc"):
        pm.sample(
            draws=20,
            tune=1_000,
            chains=chains,
            cores=1,
            step=step,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    return [each.getMessage() for each in caplog.records if "sets the scale" in each.getMessage()]


@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.gSGNHT])
@pytest.mark.parametrize(
    ("scale", "advice"),
    [
        ("precision", "its standard deviation 1/sqrt(tau);"),
        slow("variance", "its standard deviation;"),
        slow("log scale", "its standard deviation;"),
        slow("scale", "its standard deviation;"),
    ],
)
def test_every_chain_of_seeds_has_the_advice(sampler, scale, advice, caplog):
    model = seeds(scale)
    found = warnings_of_chains(model, sampler(model=model), caplog, chains=2)
    assert len(found) == 2
    assert all(
        f"Write 'b' non-centered, as a product with {advice}" in message for message in found
    )


@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC])
def test_seeds_as_products_have_no_warning(sampler, caplog):
    model = seeds("scale", is_centered=False)
    assert warnings_of_chains(model, sampler(model=model), caplog, chains=1) == []


def test_informative_groups_have_no_warning(caplog):
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(15), 20)
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mu", 0.0, 3.0), pm.HalfNormal("sd"), shape=15)
        y = rng.normal(0.0, 0.6, 15)[group] + rng.normal(size=group.size)
        pm.Normal("y", effect[group], 1.0, observed=y)
    assert warnings_of_chains(model, pg.SGGMC(model=model), caplog, chains=2) == []
