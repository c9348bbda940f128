"""Step methods on one model beside NUTS, and how far each is from it."""

import time
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

Runs = dict[str, tuple[Any, float]]
"""Draws and seconds by the name of the sampler, NUTS first."""


def run_beside_nuts(
    model: pm.Model,
    samplers: dict[str, tuple[int, Callable[[], Any]]],
    *,
    draws: int,
    random_seed: int,
) -> Runs:
    """Sample with NUTS and with each step method, two chains on two cores.

    ``samplers`` gives each step method as many times the draws of NUTS as stands before it.
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
    """Print how far the draws of a variable are from those of NUTS."""
    reference = results["NUTS"][0].posterior[variable]
    mean, deviation = reference.mean(("chain", "draw")), reference.std(("chain", "draw"))
    print(f"{'':20}{'mean off by':>13}{'spread':>16}{'ESS':>8}{'R-hat':>8}{'seconds':>9}")
    for name, (idata, seconds) in results.items():
        values = idata.posterior[variable]
        off = float(np.abs((values.mean(("chain", "draw")) - mean) / deviation).max())
        ratio = values.std(("chain", "draw")) / deviation
        ess, rhat = az.ess(idata)[variable], az.rhat(idata)[variable]
        print(
            f"{name:20}{off:13.3f}{float(ratio.min()):9.3f}–{float(ratio.max()):.3f}"
            f"{float(ess.min()):8.0f}{float(rhat.max()):8.3f}{seconds:9.1f}"
        )
    print("Largest error of a mean in posterior standard deviations, and spreads as multiples of")
    print("those of NUTS, whose draws have errors of their own; seconds include compilation.")
