"""Samplers with default settings, and NUTS, compared with reference draws of sixteen posteriors.

``python -m benchmarks.adaptation`` prints one line for each posterior and sampler, a table of the
effective draws per gradient relative to NUTS in the same run, with a diagonal or a dense mass
matrix, whichever has more, and all results as JSON in the last line. R-hat, effective sample size
(bulk) and errors are those of the worst parameter. A gradient is evaluated on all rows, or on one
minibatch for samplers with minibatches. ``--reference`` prints the errors of the reference draws
instead, for regressions with flat priors.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.posteriordb import POSTERIORS, Posterior, load, worst_errors
from benchmarks.sampling_warnings import SamplingWarnings

SAMPLERS: dict[str, Callable[..., Any] | None] = {
    "NUTS": None,
    "NUTS, dense": None,
    "GMC": pg.GMC,
    "gSGNHT": pg.gSGNHT,
    "SGGMC": pg.SGGMC,
    "gSGNHT, minibatches": pg.gSGNHT,
    "SGGMC, minibatches": pg.SGGMC,
}
INITIALIZATION = {"NUTS, dense": "jitter+adapt_full"}
"""Argument ``init`` of `pymc.sample`, where it is not the default."""

BATCH_SIZE, FEWEST_ROWS = 100, 500
"""Rows of a minibatch, and minimum rows of data that are sampled with minibatches."""

FLAT_PRIORS = (
    "earnings-earn_height",
    "earnings-logearn_height",
    "earnings-logearn_interaction",
    "nes1980-nes",
    "nes2000-nes",
    "mesquite-logmesquite_logvash",
)
"""Regressions with flat priors of the coefficients and of sigma."""

CHAINS, TUNE, DRAWS = 4, 1000, 2000
FIGURE = ("NUTS", "NUTS, dense", "GMC", "gSGNHT", "SGGMC")
COLUMNS = ("R-hat", "ESS", "error of mean / sd", "sd ratio", "grad/draw", "ESS/1,000 grad", "s")


def applies(sampler: str, posterior: Posterior) -> bool:
    """Return whether a posterior has enough rows for a sampler with minibatches."""
    return "minibatches" not in sampler or posterior.n_rows >= FEWEST_ROWS


def parameters(posterior: Posterior, idata: Any) -> dict[str, np.ndarray]:
    """Draws of the parameters that have a reference, shape (chains, draws)."""
    draws = {}
    for name in posterior.reference:
        variable, _, index = name.rstrip("]").partition("[")
        values = idata.posterior[variable].values
        draws[name] = values[..., int(index) - 1] if index else values
    return draws


def measure(
    posterior: Posterior, sampler: str, *, draws: int = DRAWS, tune: int = TUNE, cores: int = 2
) -> dict[str, Any]:
    """Sample once, with four chains, and compare with the reference."""
    make = SAMPLERS[sampler]
    began = time.perf_counter()
    with SamplingWarnings() as caught, posterior.model:
        rows: dict[str, Any] = {}
        if "minibatches" in sampler:
            rows = {"batch_size": BATCH_SIZE, "minibatch": posterior.rows}
        idata = pm.sample(
            draws=draws,
            tune=tune,
            chains=CHAINS,
            cores=cores,
            step=None if make is None else make(**rows),
            init=INITIALIZATION.get(sampler, "auto"),
            nuts_sampler="pymc",
            random_seed=1,
            progressbar=False,
        )
    seconds = time.perf_counter() - began
    chains = parameters(posterior, idata)
    dataset = az.from_dict({"posterior": chains}).posterior.dataset
    size = min(float(value) for value in az.ess(dataset).data_vars.values())
    stats = idata.sample_stats
    n_grad = stats["n_steps" if make is None else "n_grad"].values
    pooled = {name: idata.posterior[name].values for name in idata.posterior.data_vars}
    pooled = {name: values.reshape(-1, *values.shape[2:]) for name, values in pooled.items()}
    mean, sd_ratio = worst_errors(posterior, pooled)
    return {
        "posterior": posterior.name,
        "sampler": sampler,
        "rhat": max(float(value) for value in az.rhat(dataset).data_vars.values()),
        "ess": size,
        "mean_error": mean,
        "sd_ratio": sd_ratio,
        "n_grad": float(n_grad.mean()),
        "ess_per_1000_gradients": 1000.0 * size / float(n_grad.sum()),
        "seconds": seconds,
        "warnings": caught.messages,
    }


def reference_errors(posterior: Posterior) -> tuple[float, float]:
    """Errors of the reference of a regression with flat priors.

    The exact posterior of its n coefficients is a Student-t distribution.

    Returns
    -------
    mean, sd_ratio : float
        Largest error of a mean in exact standard deviations, and ratio of the standard deviation
        to the exact one that is farthest from 1.
    """
    design, y = (posterior.model[name].get_value() for name in ("X", "y"))
    n_rows, n = design.shape
    exact_mean, residuals, *_ = np.linalg.lstsq(design, y)
    covariance = residuals * np.linalg.inv(design.T @ design) / (n_rows - n - 3)
    exact_sd = np.sqrt(np.diag(covariance))
    draws = np.array([posterior.reference[f"beta[{i + 1}]"] for i in range(n)])
    ratios = draws.std(axis=1) / exact_sd
    errors = np.abs(draws.mean(axis=1) - exact_mean) / exact_sd
    return float(errors.max()), float(ratios[np.argmax(np.abs(np.log(ratios)))])


def line(result: dict[str, Any]) -> str:
    """One row of the table."""
    return (
        f"| {result['posterior']} | {result['sampler']} | {result['rhat']:.3f} "
        f"| {result['ess']:,.0f} | {result['mean_error']:.2f} | {result['sd_ratio']:.3f} "
        f"| {result['n_grad']:.1f} | {result['ess_per_1000_gradients']:.1f} "
        f"| {result['seconds']:.0f} |"
    )


def ratios(results: list[dict[str, Any]]) -> list[str]:
    """Effective draws per full-data gradient relative to the better NUTS, one row per posterior."""
    samplers = [name for name, make in SAMPLERS.items() if make and "minibatches" not in name]
    references = [name for name, make in SAMPLERS.items() if make is None]
    found = {(r["posterior"], r["sampler"]): r["ess_per_1000_gradients"] for r in results}
    lines = ["| per gradient / better NUTS | " + " | ".join([*samplers, "better NUTS"]) + " |"]
    lines.append("|---" * (2 + len(samplers)) + "|")
    for name in dict.fromkeys(r["posterior"] for r in results):
        measured = [reference for reference in references if (name, reference) in found]
        if measured:
            better = max(measured, key=lambda reference: found[name, reference])
            over = [found.get((name, s), np.nan) / found[name, better] for s in samplers]
            cells = [f"{value:.2f}" for value in over]
            lines.append(f"| {name} | " + " | ".join([*cells, better]) + " |")
    return lines


def draw_figure(results: list[dict[str, Any]], path: str) -> None:
    """Plot effective draws per full-data gradient, one line per posterior."""
    names = list(dict.fromkeys(r["posterior"] for r in results))[::-1]
    figure, ax = plt.subplots(figsize=(7.5, 0.32 * len(names) + 1.2), layout="constrained")
    for sampler, marker in zip(FIGURE, "oDs^v", strict=True):
        found = [r for r in results if r["sampler"] == sampler]
        ax.plot(
            [r["ess_per_1000_gradients"] for r in found],
            [names.index(r["posterior"]) for r in found],
            marker,
            color={"NUTS": "0.4", "NUTS, dense": "0.7"}.get(sampler),
            label=sampler,
            alpha=0.8,
        )
    ax.set(xscale="log", xlabel="effective draws of the worst parameter per 1,000 gradients")
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="both", color="0.9")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--posteriors", nargs="+", choices=POSTERIORS, default=POSTERIORS)
    parser.add_argument("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--without-nuts", nargs="+", choices=POSTERIORS, default=())
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--tune", type=int, default=TUNE)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", help="folder of posteriordb.npz (or PYMC_GEODESIC_DATA)")
    parser.add_argument("--figure", help="file for a plot of effective draws per gradient")
    parser.add_argument("--reference", action="store_true", help="errors of the reference draws")
    asked = parser.parse_args()
    if asked.reference:
        for name in FLAT_PRIORS:
            mean, sd_ratio = reference_errors(load(name, asked.data))
            print(f"| {name} | {mean:.2f} | {sd_ratio:.3f} |")
        return
    print("| posterior | sampler | " + " | ".join(COLUMNS) + " |")
    print("|---" * (2 + len(COLUMNS)) + "|", flush=True)
    results = []
    for name in asked.posteriors:
        posterior = load(name, asked.data)
        for sampler in asked.samplers:
            is_left_out = SAMPLERS[sampler] is None and name in asked.without_nuts
            if applies(sampler, posterior) and not is_left_out:
                result = measure(
                    posterior, sampler, draws=asked.draws, tune=asked.tune, cores=asked.cores
                )
                results.append(result)
                print(line(result), flush=True)
    print("\n".join(["", *ratios(results), ""]))
    if asked.figure:
        draw_figure(results, asked.figure)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
