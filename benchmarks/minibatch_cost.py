"""Cost of independent draws with minibatches, compared with all rows: predicted and measured.

``python -m benchmarks.minibatch_cost`` samples regressions by ``SGGMC(batch_size=...)`` and by
`GMC` with nothing else set, and compares the ratio of times per effective draw with the prediction
of `pymc_geodesic.adaptation.minibatch_cost`, whose constants come from this table. Times are
processor time of draws after the warm-up, with one thread; effective draws are those of the worst
coordinate (ESS bulk). *µs per gradient* include all of a draw, divided by its gradients.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass

import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.large_hierarchy_runs import DrawClock, summarize
from benchmarks.sampling_warnings import SamplingWarnings


@dataclass(frozen=True)
class Setting:
    """A regression, and the size of its minibatches.

    Attributes
    ----------
    likelihood : {"logistic", "normal", "Poisson"}
    n_rows, n_groups, n_covariates, batch_size : int
        Without effects if there are no groups.
    has_slopes : bool
        Whether groups have correlated intercepts and slopes instead of intercepts.
    """

    likelihood: str
    n_rows: int
    n_groups: int
    n_covariates: int
    batch_size: int
    has_slopes: bool = False


SETTINGS = [
    Setting("logistic", 10_000, 0, 4, 100),
    Setting("logistic", 100_000, 0, 4, 100),
    Setting("logistic", 1_000_000, 0, 4, 100),
    Setting("logistic", 100_000, 0, 50, 500),
    Setting("Poisson", 10_000, 100, 4, 200),
    Setting("Poisson", 100_000, 0, 4, 100),
    Setting("normal", 10_000, 0, 4, 200),
    Setting("normal", 100_000, 100, 4, 200),
    Setting("logistic", 30_000, 100, 4, 500),
    Setting("normal", 100_000, 500, 4, 500, has_slopes=True),
    Setting("logistic", 100_000, 500, 4, 500, has_slopes=True),
    Setting("logistic", 100_000, 2_000, 4, 1_000),
    Setting("logistic", 1_000_000, 2_000, 4, 1_000),
]


def model_of(setting: Setting) -> pm.Model:
    """Create a model with data."""
    rng = np.random.default_rng(0)
    n, p = setting.n_rows, setting.n_covariates
    X, group = rng.normal(size=(n, p)), rng.integers(max(setting.n_groups, 1), size=n)
    eta = -0.5 + X @ rng.normal(size=p) * 0.5 / np.sqrt(p / 4)
    eta += (0.5 * rng.normal(size=max(setting.n_groups, 1)) * (setting.n_groups > 0))[group]
    if setting.has_slopes:
        eta += (0.5 * rng.normal(size=setting.n_groups))[group] * X[:, 0]
    with pm.Model() as model:
        predictor = pm.Normal("intercept", 0.0, 2.0) + X @ pm.Normal("slopes", shape=p)
        if setting.has_slopes:
            sds = pm.HalfNormal.dist(1.0, shape=2)
            chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sds)
            effects = pm.MvNormal("effects", 0.0, chol=chol, shape=(setting.n_groups, 2))
            predictor = predictor + effects[group, 0] + effects[group, 1] * X[:, 0]
        elif setting.n_groups:
            sd = pm.HalfNormal("sd", 1.0)
            predictor = predictor + pm.Normal("effect", 0.0, sd, shape=setting.n_groups)[group]
        match setting.likelihood:
            case "logistic":
                y = rng.random(n) < 1.0 / (1.0 + np.exp(-eta))
                pm.Bernoulli("y", logit_p=predictor, observed=y.astype(int))
            case "Poisson":
                pm.Poisson("y", pm.math.exp(predictor), observed=rng.poisson(np.exp(eta)))
            case _:
                noise = pm.HalfNormal("noise", 1.0)
                pm.Normal("y", predictor, noise, observed=eta + rng.normal(size=n))
    return model


def run(model: pm.Model, *, batch_size: int | None, draws: int) -> dict[str, float]:
    """Sample a model by `SGGMC` with this batch size, or by `GMC` without one."""
    with model, SamplingWarnings():
        step = pg.GMC() if batch_size is None else pg.SGGMC(batch_size=batch_size)
        clock = DrawClock()
        idata = pm.sample(
            draws, tune=draws, chains=1, cores=1, step=step, random_seed=1, progressbar=False,
            callback=clock, compute_convergence_checks=False,
        )  # fmt: skip
    found = summarize(model, {name: idata.posterior[name].values for name in idata.posterior})
    seconds, gradients = clock.seconds[1], clock.gradients[1]
    cost = getattr(step.sampler.adaptation, "cost", None)
    return {
        "ess": float(found["bulk"].min()),
        "seconds": seconds,
        "per_draw": gradients / draws,
        "microseconds": 1e6 * seconds / gradients,
        "ratio": float("nan") if cost is None else cost.ratio,
        "steps": float("nan") if cost is None else cost.n_steps,
        "steps_all": float("nan") if cost is None else cost.n_steps_all,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--slopes", action="store_true", help="only models with slopes by group")
    parser.add_argument("--quick", action="store_true", help="few rows and draws; tests the script")
    asked = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print(
        "| model | rows | groups | covariates | batch | gradients/draw, predicted | ESS/draw "
        "| µs per gradient | GMC: gradients/draw, predicted | ESS/draw | µs per gradient "
        "| ratio, predicted | measured |\n|---|" + "---:|" * 12
    )
    settings = [Setting("logistic", 2_000, 0, 4, 50)] if asked.quick else SETTINGS
    for setting in [each for each in settings if each.has_slopes or not asked.slopes]:
        draws = 100 if asked.quick else asked.draws
        model = model_of(setting)
        small = run(model, batch_size=setting.batch_size, draws=draws)
        large = run(model, batch_size=None, draws=draws)
        measured = small["seconds"] / small["ess"] * large["ess"] / large["seconds"]
        slopes = ", slopes" if setting.has_slopes else ""
        print(
            f"| {setting.likelihood}{slopes} | {setting.n_rows:,} | {setting.n_groups:,} "
            f"| {setting.n_covariates} | {setting.batch_size:,} "
            f"| {small['per_draw']:.1f}, {small['steps']:.1f} | {small['ess'] / draws:.2f} "
            f"| {small['microseconds']:.1f} | {large['per_draw']:.1f}, {small['steps_all']:.1f} "
            f"| {large['ess'] / draws:.2f} | {large['microseconds']:.1f} "
            f"| {small['ratio']:.2g} | {measured:.2g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
