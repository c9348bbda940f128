"""Bayesian support vector machine with two weights, every sampler against quadrature.

Section 5.1.1 of Hu, Zhu, Zhang, "Fast Sampling Methods for Bayesian Max-margin Models": 1,000 rows
x ~ U(0, 1)², weights η ~ N(0, I/3), labels from the normalized hinge loss, prior N(0, I). All
samplers are compared with quadrature: densities side by side, and a table of

- Δ mean: the largest error of a posterior mean, in posterior standard deviations;
- sd ratio: the posterior standard deviation with the largest relative error, divided by the exact
  one;
- max |z|: the largest error of a mean or an entry of the covariance matrix in Monte Carlo standard
  errors, which tests for bias; the stochastic samplers are biased.

Run it with ``python examples/bayesian_svm_synthetic.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
from script_parts import parse_options
from svm_baselines import DataAugmentationGibbs, Quadrature, quadrature

import pymc_geodesic as pg
from pymc_geodesic.distributions.labels import probability_of_plus_one

N_ROWS = 1000
BATCH_SIZE = 100
CHAINS = 2
SEED = 11


def make_data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of section 5.1.1."""
    X = rng.uniform(size=(N_ROWS, 2))
    weights = rng.normal(0.0, np.sqrt(1.0 / 3.0), size=2)
    return X, np.where(rng.random(N_ROWS) < probability_of_plus_one(X @ weights), 1, -1)


def make_samplers() -> dict[str, Callable[[], Any]]:
    """Step methods by name; inner steps make consecutive draws nearly independent."""
    batch = {"batch_size": BATCH_SIZE, "minibatch": ["X", "y"]}
    return {
        "SubgradientHMC": lambda: pg.SubgradientHMC(),
        "SSGLD": lambda: pg.SSGLD(n_steps=400, **batch),
        "SSGLD, AdaGrad": lambda: pg.SSGLD(n_steps=400, preconditioner="adagrad", **batch),
        "SSGNHT": lambda: pg.SSGNHT(n_steps=200, **batch),
        "gSGNHT": lambda: pg.gSGNHT(n_steps=200, **batch),
    }


def sample_all(X: np.ndarray, y: np.ndarray, *, draws: int, tune: int) -> dict[str, np.ndarray]:
    """Run every sampler; return draws by name, shape (chain, draw, 2)."""
    model = pg.svm.linear_svm(X, y)
    results = {}
    for name, make_step in make_samplers().items():
        with model:
            idata = pm.sample(
                draws, tune=tune, chains=CHAINS, cores=1, step=make_step(), random_seed=SEED,
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
        results[name] = idata.posterior["weights"].values
        step_size = float(idata.sample_stats["step_size"].mean())
        print(f"{name}: step size {step_size:.3g}", flush=True)
    results["Gibbs, data augmentation"] = np.stack(
        [
            DataAugmentationGibbs(X, y, random_seed=SEED + k).sample(draws, tune)
            for k in range(CHAINS)
        ]
    )
    return results


def report(results: dict[str, np.ndarray], exact: Quadrature) -> list[str]:
    """Return the lines of the table."""
    lines = ["| sampler | ESS | Δ mean (sd) | sd ratio | max abs z |", "|---|---:|---:|---:|---:|"]
    for name, draws in results.items():
        flat = (draws - exact.mean) / exact.sd
        ratios = flat.std(axis=(0, 1))
        worst = ratios[np.argmax(np.abs(np.log(ratios)))]
        correlation = exact.covariance[0, 1] / np.prod(exact.sd)
        moments = [flat[..., 0], flat[..., 1], flat[..., 0] ** 2 - 1, flat[..., 1] ** 2 - 1]
        moments.append(flat[..., 0] * flat[..., 1] - correlation)
        z = [v.mean() / (v.std() / np.sqrt(az.ess(v))) for v in moments]
        ess = min(float(az.ess(flat[..., k])) for k in range(2))
        delta = np.abs(flat.mean(axis=(0, 1))).max()
        lines.append(f"| {name} | {ess:.0f} | {delta:.3f} | {worst:.3f} | {np.abs(z).max():.1f} |")
    return lines


def plot(results: dict[str, np.ndarray], exact: Quadrature) -> Any:
    """Plot the densities as gray values, with contours by quadrature."""
    from matplotlib import pyplot as plt

    names = ["Quadrature", *results]
    columns = (len(names) + 1) // 2
    figure, panels = plt.subplots(
        2, columns, figsize=(2.6 * columns, 5.4), sharex=True, sharey=True, layout="constrained"
    )
    edges = [
        np.linspace(mean - 3.2 * sd, mean + 3.2 * sd, 29)
        for mean, sd in zip(exact.mean, exact.sd, strict=True)
    ]
    rng = np.random.default_rng(SEED)
    levels = np.quantile(
        rng.choice(exact.probability.ravel(), 20_000, p=exact.probability.ravel()), [0.1, 0.5, 0.9]
    )
    width = [axis[1] - axis[0] for axis in exact.axes]
    peak = exact.probability.max() / (width[0] * width[1])
    for panel, name in zip(panels.flat, names, strict=False):
        draws = exact.sample(200_000, rng) if name == "Quadrature" else results[name].reshape(-1, 2)
        height = np.histogram2d(*draws.T, bins=edges, density=True)[0]
        panel.pcolormesh(*edges, height.T, cmap="Greys", vmin=0.0, vmax=1.3 * peak)
        panel.contour(*exact.axes, exact.probability.T, levels, colors="tab:red", linewidths=0.7)
        panel.set_title(name, fontsize=10)
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    panels.flat[0].set(xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
    figure.supxlabel("first weight")
    figure.supylabel("second weight")
    return figure


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2500, help="of each of two chains")
    parser.add_argument("--tune", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, draws=200, tune=200)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    X, y = make_data(np.random.default_rng(SEED))
    exact = quadrature(X, y)
    results = sample_all(X, y, draws=options.draws, tune=options.tune)
    print(f"\nexact: mean {exact.mean.round(4)}, sd {exact.sd.round(4)}")
    print("\n".join(report(results, exact)))
    path = options.output / "bayesian_svm_synthetic.png"
    plot(results, exact).savefig(path, dpi=100)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
