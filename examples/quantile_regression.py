"""Quantile regression with an asymmetric Laplace likelihood and subgradient samplers.

The density of ``pm.AsymmetricLaplace`` has a kink at every observation, so that the log-posterior
of the lines for the 10, 50 and 90 % quantiles is piecewise linear with thousands of kinks. It is a
pseudo-likelihood: its maximum is the quantile regression of Koenker and Bassett, while the width of
the posterior depends on the scale of the likelihood, here 1.

`SubgradientHMC` on all thousand observations and `SSGLD` on minibatches of two hundred are
compared with NUTS.

Run it with ``python examples/quantile_regression.py``; it takes less than a minute.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from nuts_comparison import Runs, report, run_with_nuts
from script_parts import parse_options

import pymc_geodesic as pg

N_ROWS, BATCH = 1000, 200
QUANTILES = np.array([0.1, 0.5, 0.9])
SEED = 2


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Return x in (−1, 1) and skewed y with a standard deviation that increases with x."""
    rng = np.random.default_rng(SEED)
    x = rng.uniform(-1.0, 1.0, size=N_ROWS)
    return x, 1.0 + 2.0 * x + (1.5 + x) * (rng.gamma(2.0, size=N_ROWS) - 2.0)


def build_model(x: np.ndarray, y: np.ndarray) -> pm.Model:
    """Return the model with the data containers ``X`` and ``y``; y has a column per quantile."""
    with pm.Model(coords={"quantile": QUANTILES, "term": ["intercept", "slope"]}) as model:
        X = pm.Data("X", np.column_stack([np.ones_like(x), x]))
        responses = pm.Data("y", np.repeat(y[:, None], len(QUANTILES), axis=1))
        lines = pm.Normal("lines", 0.0, 10.0, dims=("term", "quantile"))
        pm.AsymmetricLaplace("observed", mu=X @ lines, b=1.0, q=QUANTILES, observed=responses)
    return model


def run(model: pm.Model, draws: int) -> Runs:
    """Sample with each step method; return draws and seconds by name."""
    samplers = {
        "SubgradientHMC": (1, lambda: pg.SubgradientHMC(n_steps=30)),
        "SSGLD, batch 200": (
            5,
            lambda: pg.SSGLD(n_steps=50, batch_size=BATCH, minibatch=["X", "y"]),
        ),
    }
    return run_with_nuts(model, samplers, draws=draws, random_seed=SEED)


def plot(results: Runs, x: np.ndarray, y: np.ndarray) -> plt.Figure:
    """Plot the data with the lines, and the posterior of a slope for each sampler."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(x, y, ".", color="0.75", ms=2)
    grid = np.linspace(-1.0, 1.0, 50)
    terms = np.stack([np.ones_like(grid), grid])
    lines = results["SubgradientHMC"][0].posterior["lines"].values.reshape(-1, 2, len(QUANTILES))
    for i, q in enumerate(QUANTILES):
        low, middle, high = np.quantile(lines[:, :, i] @ terms, [0.05, 0.5, 0.95], axis=0)
        left.fill_between(grid, low, high, alpha=0.5, color=f"C{i}")
        left.plot(grid, middle, color=f"C{i}", label=f"{q:.0%} quantile")
    left.set(xlabel="x", ylabel="y")
    left.legend(fontsize=8)
    for name, (idata, _) in results.items():
        slope = idata.posterior["lines"].sel(term="slope", quantile=0.9).values.ravel()
        right.hist(slope, 60, density=True, histtype="step", label=name)
    right.set(xlabel="slope of the 90 % quantile", yticks=[])
    right.legend(fontsize=8)
    return figure


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2000, help="of NUTS, in each of two chains")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, draws=200)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    x, y = make_data()
    results = run(build_model(x, y), options.draws)
    report(results, "lines")
    path = options.output / "quantile_regression.png"
    plot(results, x, y).savefig(path, dpi=110)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
