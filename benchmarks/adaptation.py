"""Samplers with default settings, and NUTS, compared with reference draws of sixteen posteriors.

``python -m benchmarks.adaptation`` prints one line for each posterior and sampler, a table of the
effective draws per gradient relative to NUTS in the same run, and all results as JSON in the last
line. R-hat, effective sample size (bulk) and errors are those of the worst parameter. A gradient is
evaluated on all rows, or on one minibatch for samplers with minibatches.
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
    "GMC": pg.GMC,
    "gSGNHT": pg.gSGNHT,
    "SGGMC": pg.SGGMC,
    "gSGNHT, minibatches": pg.gSGNHT,
    "SGGMC, minibatches": pg.SGGMC,
}
BATCH_SIZE, FEWEST_ROWS = 100, 500
"""Rows of a minibatch, and minimum rows of data that are sampled with minibatches."""

CHAINS, TUNE, DRAWS = 4, 1000, 2000
COLUMNS = ("R-hat", "ESS", "mean, sd", "sd ratio", "grad/draw", "ESS/1,000 grad", "s")


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


def line(result: dict[str, Any]) -> str:
    """One row of the table."""
    return (
        f"| {result['posterior']} | {result['sampler']} | {result['rhat']:.3f} "
        f"| {result['ess']:,.0f} | {result['mean_error']:.2f} | {result['sd_ratio']:.3f} "
        f"| {result['n_grad']:.1f} | {result['ess_per_1000_gradients']:.1f} "
        f"| {result['seconds']:.0f} |"
    )


def ratios(results: list[dict[str, Any]]) -> list[str]:
    """Effective draws per full-data gradient relative to NUTS, one row per posterior."""
    samplers = [name for name in SAMPLERS if name != "NUTS" and "minibatches" not in name]
    found = {(r["posterior"], r["sampler"]): r["ess_per_1000_gradients"] for r in results}
    lines = ["| per gradient / NUTS | " + " | ".join(samplers) + " |", "|---" * 4 + "|"]
    for name in dict.fromkeys(r["posterior"] for r in results):
        if (name, "NUTS") in found:
            over = [found.get((name, s), np.nan) / found[name, "NUTS"] for s in samplers]
            lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in over) + " |")
    return lines


def draw_figure(results: list[dict[str, Any]], path: str) -> None:
    """Plot effective draws per full-data gradient, one line per posterior."""
    names = list(dict.fromkeys(r["posterior"] for r in results))[::-1]
    figure, ax = plt.subplots(figsize=(7.5, 0.32 * len(names) + 1.2), layout="constrained")
    for sampler, marker in zip(("NUTS", "GMC", "gSGNHT", "SGGMC"), "os^v", strict=True):
        found = [r for r in results if r["sampler"] == sampler]
        ax.plot(
            [r["ess_per_1000_gradients"] for r in found],
            [names.index(r["posterior"]) for r in found],
            marker,
            color="0.4" if sampler == "NUTS" else None,
            label=sampler,
            alpha=0.8,
        )
    ax.set(xscale="log", xlabel="effective draws of the worst parameter per 1,000 gradients")
    ax.set_yticks(range(len(names)), names)
    ax.grid(axis="both", color="0.9")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--posteriors", nargs="+", choices=POSTERIORS, default=POSTERIORS)
    parser.add_argument("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--tune", type=int, default=TUNE)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--data", help="folder of posteriordb.npz (or PYMC_GEODESIC_DATA)")
    parser.add_argument("--figure", help="file for a plot of effective draws per gradient")
    asked = parser.parse_args()
    print("| posterior | sampler | " + " | ".join(COLUMNS) + " |")
    print("|---" * (2 + len(COLUMNS)) + "|", flush=True)
    results = []
    for name in asked.posteriors:
        posterior = load(name, asked.data)
        for sampler in asked.samplers:
            if applies(sampler, posterior):
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
