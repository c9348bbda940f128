"""Conjugate von Mises–Fisher posteriors of mean directions.

100,000 directions of known concentration κ around μ, and the prior vMF(m₀, κ₀): the
posterior of μ is vMF with the mean direction of κ₀m₀ + κ Σx and its length as concentration.
The dispersion E[1 − m·μ] is proportional to the temperature.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import GMC, SGGMC, VonMisesFisher, gSGNHT
from pymc_geodesic.ops.bessel import mean_resultant_length

pytestmark = pytest.mark.slow

N_ROWS, BATCH = 100_000, 100
PRIOR = 10.0
DRAWS, CHAINS = 2_000, 4


@pytest.fixture(scope="module", params=[3, 50, 1000], ids="d={}".format)
def posterior(request):
    """Model, exact mean direction and exact concentration."""
    d = request.param
    rng = np.random.default_rng(1)
    truth = rng.standard_normal(d)
    truth /= np.linalg.norm(truth)
    x = pm.draw(VonMisesFisher.dist(truth, float(d)), draws=N_ROWS, random_seed=1)
    centre = np.eye(d)[0]
    with pm.Model() as model:
        mu = VonMisesFisher("mu", centre, PRIOR)
        VonMisesFisher("x_obs", mu, float(d), observed=pm.Data("x", x))
    total = PRIOR * centre + d * x.sum(axis=0)
    concentration = np.linalg.norm(total)
    return model, total / concentration, concentration


def relative_dispersion(model, mean, concentration, step, draws=DRAWS):
    """Mean of 1 − m·μ over its exact value, its standard error, and z of the mean direction."""
    with model:
        idata = pm.sample(
            step=step, draws=draws, tune=1000, chains=CHAINS, cores=2, random_seed=1,
            progressbar=False, compute_convergence_checks=False, quiet=True,
        )  # fmt: skip
    draws = idata.posterior["mu"].values
    d = draws.shape[-1]
    exact = 1.0 - mean_resultant_length(d, concentration)
    if exact < 1e-6:  # accuracy of 1 − A by subtraction
        exact = (d - 1) / (2.0 * concentration)
    loss = 1.0 - draws @ mean
    error = loss.std() / np.sqrt(az.ess(loss)) / exact
    # two directions orthogonal to the mean
    axes = np.linalg.qr(np.column_stack([mean, np.eye(d)[:, :2]]))[0][:, 1:]
    along = draws @ axes
    z = [
        along[..., i].mean() / (along[..., i].std() / np.sqrt(az.ess(along[..., i])))
        for i in range(2)
    ]
    return loss.mean() / exact, error, np.abs(z).max(), idata


@pytest.mark.parametrize(
    ("step_class", "noise", "n_steps"),
    [(SGGMC, "fisher", {3: 200, 50: 50, 1000: 20}), (gSGNHT, None, {3: 3000, 50: 100, 1000: 50})],
    ids=["SGGMC", "gSGNHT"],
)
def test_minibatches(posterior, step_class, noise, n_steps):
    model, mean, concentration = posterior
    with model:
        step = step_class(
            minibatch="x", batch_size=BATCH, gradient_noise=noise, n_steps=n_steps[mean.size]
        )
    ratio, error, z, idata = relative_dispersion(model, mean, concentration, step)
    print(
        f"\n{step_class.__name__} d={mean.size}: dispersion {ratio:.4f} ± {error:.4f}, |z| {z:.2f}"
    )
    assert float(idata.sample_stats["temperature"].mean()) == pytest.approx(1.0, abs=0.05)
    assert abs(ratio - 1.0) < 0.05
    assert error < 0.03
    assert z < 4.0


def test_full_data(posterior):
    """The same posterior by its sufficient statistic; trajectories of a quarter of a period."""
    _, mean, concentration = posterior
    d = mean.size
    with pm.Model() as model:
        mu = VonMisesFisher("mu", np.eye(d)[0], PRIOR)
        pm.Potential("likelihood", mu @ (concentration * mean - PRIOR * np.eye(d)[0]))
        step = GMC(n_steps={3: 1, 50: 3, 1000: 5}[d])
    ratio, error, z, idata = relative_dispersion(model, mean, concentration, step, draws=4 * DRAWS)
    print(f"\nGMC d={d}: dispersion {ratio:.4f} ± {error:.4f}, |z| {z:.2f}")
    assert float(idata.sample_stats["acceptance_rate"].mean()) > 0.6
    assert abs(ratio - 1.0) < 0.02
    assert error < 0.01
    assert z < 4.0
