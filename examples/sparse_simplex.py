"""Sparse and dense probability vectors: SCIR and SGRLD against exact draws.

The running example of the SCIR paper (sections 1.3 and 2.2): 1,000 labels of ten categories and
the prior Dirichlet(0.1, …, 0.1). In the sparse data 800, 100 and 100 labels fall into the first
three categories and none into the others; in the dense data each category has 100. The posterior is
a Dirichlet distribution, with exact draws and distribution functions.

Two figures: box plots of the fifth component, which has no observations, for minibatches of 10
labels; and the Kolmogorov–Smirnov distance to the exact posterior against the proportion of the
data in a minibatch. The distance of a vector is that of its Rosenblatt transform, ωⱼ / (ωⱼ + … +
ω_d) through its beta distribution, averaged over j. Each sampler runs 1,000 steps after 1,000 of
burn-in, at the step size that a grid search with two other seeds found best.

Run it with ``python examples/sparse_simplex.py``; it takes some five minutes.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy import stats
from script_parts import parse_options

import pymc_geodesic as pg

N, DIMENSION, PRIOR = 1000, 10, 0.1
COUNTS = {
    "sparse": np.array([800, 100, 100, 0, 0, 0, 0, 0, 0, 0]),
    "dense": np.full(DIMENSION, 100),
}
PROPORTIONS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5)
GRIDS = {
    "SCIR": np.array([0.002, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]),
    "SGRLD": np.array([2e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 0.01, 0.03]),
}
SAMPLERS = {"SCIR": pg.SCIR, "SGRLD": pg.SGRLD}
COMPONENT = 4  # the fifth
STEPS = 1000  # of burn-in, and again of draws
GRID_SEEDS, SEEDS = (100, 101), (1, 2, 3, 4, 5)


def shorten() -> None:
    """Reduce minibatch sizes, step sizes, seeds and draws, for ``--quick``."""
    global PROPORTIONS, GRIDS, GRID_SEEDS, SEEDS, STEPS
    PROPORTIONS, GRID_SEEDS, SEEDS, STEPS = (0.01, 0.1), (100,), (1, 2), 300
    GRIDS = {name: grid[2::3] for name, grid in GRIDS.items()}


def posterior_shapes(data: str) -> np.ndarray:
    """Return the parameters of the Dirichlet posterior."""
    return PRIOR + COUNTS[data]


def build_model() -> pm.Model:
    """Return the model, with the labels in the container ``labels``."""
    with pm.Model() as model:
        labels = pm.Data("labels", np.repeat(np.arange(DIMENSION), COUNTS["sparse"]))
        weights = pm.Dirichlet("weights", np.full(DIMENSION, PRIOR))
        pm.Categorical("y", weights, observed=labels)
    return model


class CompiledSampler:
    """A sampler with a fixed minibatch size, compiled once for all its runs."""

    def __init__(self, name: str, data: str, batch_size: int) -> None:
        self.name, self.data, self.step_size = name, data, 1.0
        self.model = build_model()
        with self.model:
            pm.set_data({"labels": np.repeat(np.arange(DIMENSION), COUNTS[data])})
            self.step = SAMPLERS[name](
                step_size=lambda draw: self.step_size,
                n_steps=1,
                batch_size=batch_size,
                minibatch=["labels"],
                minibatch_order="independent",
            )

    def run(self, step_size: float, seed: int) -> np.ndarray:
        """Return draws of the weights, shape (draws, 10)."""
        self.step_size = float(step_size)
        with self.model:
            idata = pm.sample(
                draws=STEPS, tune=STEPS, chains=1, cores=1, step=self.step, random_seed=seed,
                progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
        return idata.posterior["weights"].values[0]


def component_distance(weights: np.ndarray, data: str) -> float:
    """Return the Kolmogorov–Smirnov distance of the fifth component."""
    shapes = posterior_shapes(data)
    marginal = stats.beta(shapes[COMPONENT], shapes.sum() - shapes[COMPONENT])
    return float(stats.kstest(weights[:, COMPONENT], marginal.cdf).statistic)


def vector_distance(weights: np.ndarray, data: str) -> float:
    """Return the mean Kolmogorov–Smirnov distance of the Rosenblatt transform."""
    shapes = posterior_shapes(data)
    rest = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    after = np.cumsum(shapes[::-1])[::-1]
    distances = [
        stats.kstest(weights[:, j] / rest[:, j], stats.beta(shapes[j], after[j + 1]).cdf).statistic
        for j in range(DIMENSION - 1)
    ]
    return float(np.mean(distances))


def tuned(sampler: CompiledSampler, distance: Any) -> tuple[float, dict[float, float]]:
    """Return the best step size of the grid, and the distance at each."""
    found = {
        float(h): float(np.mean([distance(sampler.run(h, s), sampler.data) for s in GRID_SEEDS]))
        for h in GRIDS[sampler.name]
    }
    return min(found, key=found.__getitem__), found


def exact_draws(data: str, seed: int, n: int | None = None) -> np.ndarray:
    """Return independent draws from the posterior, as many as of a sampler by default."""
    return np.random.default_rng(seed).dirichlet(posterior_shapes(data), n or STEPS)


def box_plots(batch_size: int) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Sample the sparse posterior; return draws of the first seed and distances by sampler."""
    draws = {"Exact": exact_draws("sparse", 0)}
    distances = {"Exact": [component_distance(exact_draws("sparse", s), "sparse") for s in SEEDS]}
    for name in SAMPLERS:
        sampler = CompiledSampler(name, "sparse", batch_size)
        step_size, found = tuned(sampler, component_distance)
        grid = ", ".join(f"{h:g}: {d:.3f}" for h, d in found.items())
        print(f"{name}: distance of the fifth component by step size: {grid}")
        runs = [sampler.run(step_size, seed) for seed in SEEDS]
        draws[name] = runs[0]
        distances[name] = [component_distance(run, "sparse") for run in runs]
    return draws, distances


def by_proportion(data: str) -> dict[str, np.ndarray]:
    """Return distances by sampler, shape (proportions, seeds)."""
    found = {
        "Exact": np.array([[vector_distance(exact_draws(data, s), data) for s in SEEDS]]),
    }
    for name in SAMPLERS:
        rows = []
        for proportion in PROPORTIONS:
            sampler = CompiledSampler(name, data, max(round(proportion * N), 1))
            step_size, _ = tuned(sampler, vector_distance)
            runs = [sampler.run(step_size, seed) for seed in SEEDS]
            rows.append([vector_distance(run, data) for run in runs])
            print(
                f"{data:7}{name:7}{proportion:6g}  h = {step_size:<7g}"
                f"{np.mean(rows[-1]):.3f}  ({min(rows[-1]):.3f} to {max(rows[-1]):.3f})",
                flush=True,
            )
        found[name] = np.array(rows)
    return found


def plot_boxes(draws: dict[str, np.ndarray]) -> plt.Figure:
    """Plot box plots of the decimal logarithm of the fifth component."""
    figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
    values = [np.log10(weights[:, COMPONENT]) for weights in draws.values()]
    ax.boxplot(values, tick_labels=list(draws), widths=0.5, flierprops={"markersize": 2})
    ax.set_ylabel("log10 of the fifth component")
    ax.grid(axis="y", alpha=0.3)
    return figure


def plot_distances(results: dict[str, dict[str, np.ndarray]]) -> plt.Figure:
    """Plot the distance against the proportion of the data in a minibatch."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for ax, (data, found) in zip(axes, results.items(), strict=True):
        ax.axhline(found["Exact"].mean(), color="black", lw=0.8, ls=":", label="exact draws")
        for name, color in (("SCIR", "C0"), ("SGRLD", "C1")):
            ax.plot(PROPORTIONS, found[name], ".", color=color, ms=4, alpha=0.6)
            ax.plot(PROPORTIONS, found[name].mean(axis=1), color=color, label=name)
        ax.set(xscale="log", xlabel="proportion of the data in a minibatch", title=data)
        ax.set_ylim(0, None)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("Kolmogorov–Smirnov distance")
    axes[0].legend()
    return figure


def main() -> None:
    """Run both experiments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=10, help="of the box plots")
    parser.add_argument("--only", choices=["boxes", "distances"])
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser)
    if options.quick:
        shorten()
    matplotlib.use("Agg")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    options.output.mkdir(parents=True, exist_ok=True)

    if options.only != "distances":
        draws, distances = box_plots(options.batch_size)
        for name, values in distances.items():
            print(
                f"{name:7} distance of the fifth component, {len(SEEDS)} seeds: "
                f"mean {np.mean(values):.3f}, {min(values):.3f} to {max(values):.3f}"
            )
        plot_boxes(draws).savefig(options.output / "sparse_simplex_boxes.png", dpi=110)
    if options.only != "boxes":
        results = {data: by_proportion(data) for data in COUNTS}
        plot_distances(results).savefig(options.output / "sparse_simplex_distances.png", dpi=110)
    print(f"Figures: {options.output}")


if __name__ == "__main__":
    main()
