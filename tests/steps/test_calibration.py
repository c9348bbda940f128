"""Simulation-based calibration of hierarchical models with default settings.

For parameters drawn from the prior and data drawn given them, the rank of a parameter among
independent posterior draws is uniform (Talts and others, 2018). A correct sampler fails for one
model in a thousand.
"""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_geodesic as pg

N_DATA_SETS, N_RANKED = 200, 19


def crossed():
    """Ratings of 8 items by 12 persons, 40 rows."""
    rng = np.random.default_rng(1)
    person, item = rng.integers(0, 12, 40), rng.integers(0, 8, 40)
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(40))
        intercept = pm.Normal("intercept", 0.0, 1.0)
        a = pm.Normal("a", 0.0, pm.HalfNormal("sd_a", 1.0), shape=12)
        b = pm.Normal("b", 0.0, pm.HalfNormal("sd_b", 1.0), shape=8)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("rows", intercept + a[person] + b[item], sigma, observed=y)
    return model


def counts():
    """Counts of 10 groups with offsets, non-centered, some groups with one row."""
    group = np.concatenate([np.arange(10), np.repeat([0, 1, 2], 8)])
    exposure = np.random.default_rng(2).uniform(0.5, 4.0, len(group))
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(len(group), dtype=int))
        rate = pm.Normal("rate", 0.0, 1.0)
        a = pm.HalfNormal("sd_a", 1.0) * pm.Normal("a", 0.0, 1.0, shape=10)
        pm.Poisson("rows", exposure * pm.math.exp(rate + a[group]), observed=y)
    return model


def germination():
    """Binomial counts of 21 plates with a precision of their effects, as in BUGS `seeds`."""
    x = np.random.default_rng(3).normal(size=21)
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(21, dtype=int))
        beta = pm.Normal("beta", 0.0, 1.0, shape=2)
        b = pm.Normal("b", 0.0, tau=pm.Gamma("tau", 2.0, 1.0), shape=21)
        pm.Binomial("rows", 20, logit_p=beta[0] + beta[1] * x + b[np.arange(21)], observed=y)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pg.GMC, pg.SGGMC])
@pytest.mark.parametrize("make", [crossed, counts, germination])
def test_ranks_are_uniform(make, sampler):
    model = make()
    ranks: dict[str, list[np.ndarray]] = {}
    with model:
        prior = pm.sample_prior_predictive(N_DATA_SETS, random_seed=1)
        step = sampler()
        assert "sparse" in repr(step.adaptation)
        for k in range(N_DATA_SETS):
            pm.set_data({"y": prior.prior_predictive["rows"].values[0, k]})
            posterior = pm.sample(
                20 * N_RANKED, tune=500, chains=1, cores=1, step=step, random_seed=k,
                progressbar=False, compute_convergence_checks=False, quiet=True,
            ).posterior  # fmt: skip
            for rv in model.free_RVs:
                truth = prior.prior[rv.name].values[0, k]
                draws = posterior[rv.name].values[0, 19::20]
                ranks.setdefault(rv.name, []).append((draws < truth).sum(axis=0).ravel()[:2])
    n_tests = sum(len(each[0]) for each in ranks.values())
    for name, found in ranks.items():
        for column in np.array(found).T:
            observed = np.bincount(column // 2, minlength=(N_RANKED + 1) // 2)
            assert stats.chisquare(observed).pvalue > 0.001 / n_tests, (name, observed)
