"""Coefficients with unknown scales: horseshoe regressions and a random walk, GMC against NUTS.

``python -m benchmarks.shrinkage`` samples each model in centered and non-centered form by `GMC`,
with nothing set, and by nutpie with ``target_accept=0.95``: four chains of 1,000 draws one after
the other on one thread, after the default warm-up of each. Figures are those of the worst
coordinate among coefficients, of which both forms have the same, and log scales. ESS/s includes
warm-up, not compilation. The data are simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg

N_ROWS, N_COEFFICIENTS, N_STEPS = 300, 25, 100
N_DRAWS = 1000


def vector(name: str, scale: Any, size: int, *, centered: bool) -> Any:
    """Create normal variables with a standard deviation of their own or in common."""
    if centered:
        return pm.Normal(name, 0.0, scale, shape=size)
    return pm.Deterministic(name, scale * pm.Normal("z", shape=size))


def horseshoe(*, centered: bool, is_logistic: bool) -> pm.Model:
    """Build a regression with a horseshoe prior; four of 25 coefficients are not zero."""
    rng = np.random.default_rng(100)
    X = rng.normal(size=(N_ROWS, N_COEFFICIENTS))
    mean = X[:, :4] @ rng.choice([-1.0, 1.0], 4)
    with pm.Model() as model:
        scale = pm.HalfNormal("tau") * pm.HalfCauchy("local", 1.0, shape=N_COEFFICIENTS)
        fitted = X @ vector("a", scale, N_COEFFICIENTS, centered=centered)
        if is_logistic:
            observed = (rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-mean))).astype(int)
            pm.Bernoulli("y", logit_p=fitted, observed=observed)
        else:
            observed = mean + rng.normal(0.0, 2.0, N_ROWS)
            pm.Normal("y", fitted, pm.HalfNormal("sigma"), observed=observed)
    return model


def random_walk(*, centered: bool) -> pm.Model:
    """Build a model of counts whose log mean is a random walk of unknown step."""
    rng = np.random.default_rng(100)
    counts = rng.poisson(np.exp(1.0 + np.cumsum(rng.normal(0.0, 0.1, N_STEPS))))
    with pm.Model() as model:
        steps = vector("a", pm.HalfNormal("tau"), N_STEPS, centered=centered)
        log_mean = pm.Normal("start", 1.0, 1.0) + pm.math.cumsum(steps)
        pm.Poisson("y", pm.math.exp(log_mean), observed=counts)
    return model


MODELS: dict[str, Callable[..., pm.Model]] = {
    "horseshoe, logistic": lambda centered: horseshoe(centered=centered, is_logistic=True),
    "horseshoe, normal": lambda centered: horseshoe(centered=centered, is_logistic=False),
    "random walk, Poisson": lambda centered: random_walk(centered=centered),
}


def by_gmc(model: pm.Model) -> tuple[Any, float, float]:
    """Draws of `GMC`, seconds, and gradients per draw."""
    with model:
        step = pg.GMC()
        for draws, tune in ((10, 150), (N_DRAWS, 1000)):  # first compile
            began = time.process_time()
            idata = pm.sample(
                draws, tune=tune, chains=4, cores=1, step=step, random_seed=1, progressbar=False,
                compute_convergence_checks=False, quiet=True,
            )  # fmt: skip
    seconds = time.process_time() - began
    return idata, seconds, float(idata.sample_stats["n_grad"].mean())


def by_nutpie(model: pm.Model) -> tuple[Any, float, float]:
    """Draws of nutpie, seconds, and gradients per draw."""
    import nutpie

    compiled = nutpie.compile_pymc_model(model)
    began = time.process_time()
    idata = nutpie.sample(
        compiled, draws=N_DRAWS, chains=4, cores=1, seed=1, target_accept=0.95, progress_bar=False
    )
    seconds = time.process_time() - began
    return idata, seconds, float(idata.sample_stats["n_steps"].mean())


def rows() -> Iterator[str]:
    """Rows of the table."""
    yield (
        "| model | form | sampler | worst ESS | worst tail ESS | R-hat | divergences "
        "| gradients per draw | ESS/s |"
    )
    yield "|---|---|---|" + 6 * "---:|"
    for title, make in MODELS.items():
        for form in ("centered", "non-centered"):
            for sampler, run in (("GMC", by_gmc), ("nutpie", by_nutpie)):
                idata, seconds, n_grad = run(make(centered=form == "centered"))
                posterior = idata.posterior
                names = [n for n in ("tau", "local", "a") if n in posterior]
                draws = [posterior[n] if n == "a" else np.log(posterior[n]) for n in names]
                bulk, tail = (
                    min(float(az.ess(each, method=method).min()) for each in draws)
                    for method in ("bulk", "tail")
                )
                rhat = max(float(az.rhat(each).max()) for each in draws)
                n_divergent = int(idata.sample_stats["diverging"].sum())
                yield (
                    f"| {title} | {form} | {sampler} | {bulk:,.0f} | {tail:,.0f} | {rhat:.3f} "
                    f"| {n_divergent} | {n_grad:.1f} | {bulk / seconds:,.0f} |"
                )


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
