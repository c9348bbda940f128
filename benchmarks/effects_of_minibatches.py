"""Non-centered group effects, scale × z, sampled with minibatches.

Groups of equal size, y = a + b x + τ z[group] + noise of variance 1, 20,000 rows, `SGGMC` with
minibatches of 500 rows and default warm-up. *centered* samples the effects τ z, *non-centered*
samples z, and `GMC` is the reference for the quantiles of log τ. *ratio* is that of
`pymc_geodesic.monitoring.effect_scales` in the last chain; other warnings are not counted. Two
chains of 1,000 draws.

    python -m benchmarks.effects_of_minibatches [--rows 1000 100 30 10] [--sds 1 0.3 0.05 0.001]
"""

from __future__ import annotations

import argparse
import logging
import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from pymc_geodesic.densities import centered_effects
from pymc_geodesic.monitoring import effect_scales

N_ROWS = 20_000
DRAWS = 1_000


def model_of(n_groups: int, sd: float) -> pm.Model:
    """Create a model with non-centered effects of groups, and data with effects of this sd."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(n_groups, size=N_ROWS), rng.normal(size=N_ROWS)
    y = 1.0 + 0.5 * x + sd * rng.normal(size=n_groups)[group] + rng.normal(size=N_ROWS)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 5.0), pm.Normal("b")
        noise, tau = pm.HalfNormal("noise"), pm.HalfNormal("tau", 2.5)
        z = pm.Normal("z", shape=n_groups)
        pm.Normal("y", a + b * x + (tau * z)[group], noise, observed=y)
    return model


def largest_ratio(step: object) -> float:
    """Ratio of the effect scale monitor for the last chain; NaN without centered effects."""
    for monitor in getattr(step, "monitors", ()):
        if isinstance(monitor, effect_scales.EffectScaleMonitor):
            return monitor.ratios.max()
    return float("nan")


def run(n_groups: int, sd: float, form: str) -> str:
    """Sample and return a line of the table."""
    limit = centered_effects.MIN_ROWS
    centered_effects.MIN_ROWS = 0 if form == "centered" else 10**9
    with model_of(n_groups, sd):
        step = pg.GMC() if form == "GMC" else pg.SGGMC(batch_size=500)
        start = time.process_time()
        idata = pm.sample(
            DRAWS, tune=DRAWS, chains=2, cores=1, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.process_time() - start
    centered_effects.MIN_ROWS = limit
    names = ["a", "b", "noise", "tau"]
    r_hat = max(float(each.max()) for each in az.rhat(idata, var_names=names).values())
    ess = min(float(each.min()) for each in az.ess(idata, var_names=names).values())
    low, middle, high = np.quantile(np.log(idata.posterior["tau"].values), [0.01, 0.5, 0.99])
    return (
        f"| {N_ROWS // n_groups:,} | {sd:g} | {form} | {r_hat:.3f} | {ess:,.0f} | {seconds:.1f} "
        f"| {low:.2f} | {middle:.2f} | {high:.2f} | {largest_ratio(step):.2f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100, 30, 10])
    parser.add_argument("--sds", type=float, nargs="+", default=[1.0, 0.3, 0.05, 0.001])
    given = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print("| rows per group | sd | form | R-hat | ESS | CPU s | 1 % | 50 % | 99 % | ratio |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for rows in given.rows:
        for sd in given.sds:
            for form in ("centered", "non-centered", "GMC"):
                print(run(N_ROWS // rows, sd, form), flush=True)


if __name__ == "__main__":
    main()
