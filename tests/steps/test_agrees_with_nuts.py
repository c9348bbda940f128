"""Agreement of NUTS and geodesic steps for an unknown mean direction and concentration.

NUTS sees the direction through the unit-vector transform, GMC moves it along great circles, and κ
moves through its logarithm in both. An error in the transform, in a Jacobian, or in the splitting
of a model between two step methods would show in a moment of the posterior.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import GMC, VonMisesFisher

pytestmark = pytest.mark.slow

PAIRS = [(i, j) for i in range(4) for j in range(-1, i + 1)]
"""First moments (j = −1) and second moments of (μ₁, μ₂, μ₃, κ)."""


def model() -> pm.Model:
    """A few directions, so that the posterior is wide and far from normal."""
    x = pm.draw(VonMisesFisher.dist([0.0, 0.6, 0.8], 4.0), draws=12, random_seed=1)
    with pm.Model() as made:
        mu = VonMisesFisher("mu", [0.0, 0.0, 1.0], 0.5)
        kappa = pm.Gamma("kappa", 2.0, 0.2)
        VonMisesFisher("x_obs", mu, kappa, observed=x)
    return made


def moments(step, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """All first and second moments and their Monte Carlo errors."""
    made = model()
    with made:
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=1, step=step(made), random_seed=1,
            progressbar=False, compute_convergence_checks=False, quiet=True,
        )  # fmt: skip
    mu, kappa = idata.posterior["mu"].values, idata.posterior["kappa"].values / 8.0
    state = np.concatenate([mu, kappa[..., None]], axis=-1)
    products = [state[..., i] * (state[..., j] if j >= 0 else 1.0) for i, j in PAIRS]
    means = np.array([p.mean() for p in products])
    errors = np.array([p.std() / np.sqrt(float(az.ess(p))) for p in products])
    return means, errors


def worst_z(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the largest difference of two moments in standard errors."""
    return float(np.max(np.abs(one[0] - other[0]) / np.hypot(one[1], other[1])))


@pytest.fixture(scope="module")
def nuts() -> tuple[np.ndarray, np.ndarray]:
    """Both variables by NUTS."""
    return moments(lambda made: pm.NUTS(model=made), 3000)


def gmc_for_both(made: pm.Model) -> GMC:
    return GMC()


def gmc_and_nuts(made: pm.Model) -> list:
    return [GMC([made["mu"]]), pm.NUTS([made["kappa"]])]


@pytest.mark.parametrize("step", [gmc_for_both, gmc_and_nuts])
def test_first_and_second_moments(nuts, step):
    found = moments(step, 6000)
    assert worst_z(found, nuts) < 4.0


def test_the_moments_detect_a_small_error(nuts):
    """A shift of κ by a tenth of its standard deviation is rejected."""
    means, errors = nuts
    sd = np.sqrt(means[PAIRS.index((3, 3))] - means[PAIRS.index((3, -1))] ** 2)
    shifted = means.copy()
    shifted[PAIRS.index((3, -1))] += 0.1 * sd
    assert worst_z((shifted, errors), nuts) > 4.0
