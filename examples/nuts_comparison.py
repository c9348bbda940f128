"""Comparison of step methods with NUTS on one model: errors, effective sample sizes, seconds."""

import time
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

Runs = dict[str, tuple[Any, float]]
"""Draws and seconds by the name of the sampler, NUTS first."""


def run_with_nuts(
    model: pm.Model,
    samplers: dict[str, tuple[int, Callable[[], Any]]],
    *,
    draws: int,
    random_seed: int,
) -> Runs:
    """Sample with NUTS and with each step method, two chains on two cores.

    ``samplers`` maps names to a step method and its number of draws as a multiple of that of NUTS.
    """
    results = {}
    for name, (longer, make_step) in {"NUTS": (1, lambda: None), **samplers}.items():
        with model:
            begin = time.perf_counter()
            idata = pm.sample(
                draws=longer * draws,
                tune=1000,
                chains=2,
                cores=2,
                step=make_step(),
                random_seed=random_seed,
                progressbar=False,
                compute_convergence_checks=False,
            )
        results[name] = idata, time.perf_counter() - begin
    return results


def report(results: Runs, variable: str) -> None:
    """Print differences between the draws of a variable and those of NUTS."""
    reference = results["NUTS"][0].posterior[variable]
    mean, deviation = reference.mean(("chain", "draw")), reference.std(("chain", "draw"))
    print(f"{'':20}{'Δ mean (sd)':>13}{'sd ratio':>16}{'ESS':>8}{'R-hat':>8}{'seconds':>9}")
    for name, (idata, seconds) in results.items():
        values = idata.posterior[variable]
        difference = float(np.abs((values.mean(("chain", "draw")) - mean) / deviation).max())
        ratio = values.std(("chain", "draw")) / deviation
        ess, rhat = az.ess(idata)[variable], az.rhat(idata)[variable]
        print(
            f"{name:20}{difference:13.3f}{float(ratio.min()):9.3f}–{float(ratio.max()):.3f}"
            f"{float(ess.min()):8.0f}{float(rhat.max()):8.3f}{seconds:9.1f}"
        )
    print(
        "Largest difference of a mean in posterior standard deviations, and range of the ratios of"
    )
    print("standard deviations, both relative to NUTS; seconds include compilation.")
