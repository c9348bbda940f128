"""Regression with a Laplace prior on the coefficients: the Bayesian lasso, kinks and all.

Twenty correlated features, five of which matter, and a thousand noisy observations. The prior has
a kink at zero, just where the posteriors of the idle coefficients lie, so that the gradient of the
log-posterior jumps there. `SubgradientHMC` takes any subgradient and corrects by Metropolis; it
is compared with NUTS, which differentiates through the kinks as if they were not there and is
exact for the same reason, and with `SSGNHT` on minibatches of a hundred observations.

Run it with ``python examples/sparse_regression.py``; it takes less than a minute.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from beside_nuts import Runs, report, run_beside_nuts
from script_parts import parse_options

import pymc_geodesic as pg

N_ROWS, N_FEATURES, BATCH = 1000, 20, 100
NOISE, PRIOR_SCALE = 5.0, 0.1
SEED = 1


def make_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, responses and the coefficients that made them."""
    rng = np.random.default_rng(SEED)
    correlation = 0.5 ** np.abs(np.subtract.outer(np.arange(N_FEATURES), np.arange(N_FEATURES)))
    features = rng.multivariate_normal(np.zeros(N_FEATURES), correlation, size=N_ROWS)
    coefficients = np.zeros(N_FEATURES)
    coefficients[[0, 4, 8, 12, 16]] = [1.5, -1.0, 0.6, 0.4, -0.3]
    return features, features @ coefficients + NOISE * rng.normal(size=N_ROWS), coefficients


def build_model(features: np.ndarray, responses: np.ndarray) -> pm.Model:
    """Return the model with the data containers ``X`` and ``y``."""
    with pm.Model() as model:
        X, y = pm.Data("X", features), pm.Data("y", responses)
        slopes = pm.Laplace("slopes", 0.0, PRIOR_SCALE, shape=N_FEATURES)
        pm.Normal("observed", X @ slopes, NOISE, observed=y)
    return model


def run(model: pm.Model, draws: int) -> Runs:
    """Sample with each step method; return draws and seconds by name."""
    samplers = {
        "SubgradientHMC": (2, lambda: pg.SubgradientHMC(n_steps=20)),
        "SSGNHT, batch 100": (
            4,
            lambda: pg.SSGNHT(n_steps=100, batch_size=BATCH, minibatch=["X", "y"]),
        ),
    }
    return run_beside_nuts(model, samplers, draws=draws, random_seed=SEED)


def plot(results: Runs, truth: np.ndarray) -> plt.Figure:
    """Draw the intervals of all coefficients, and the density of one that is idle."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 3.6), layout="constrained", width_ratios=[2, 1]
    )
    means = results["NUTS"][0].posterior["slopes"].values.mean(axis=(0, 1))
    idle = int(np.argmin(np.abs(means)))
    for i, (name, (idata, _)) in enumerate(results.items()):
        draws = idata.posterior["slopes"].values.reshape(-1, N_FEATURES)
        low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
        place = np.arange(N_FEATURES) + 0.25 * (i - 1)
        left.errorbar(place, middle, [middle - low, high - middle], fmt=".", label=name, lw=1.2)
        right.hist(draws[:, idle], 80, range=(-0.4, 0.4), density=True, histtype="step", label=name)
    left.plot(np.arange(N_FEATURES), truth, "k_", ms=14, label="truth")
    left.set(xlabel="feature", ylabel="coefficient, 90 % interval", xticks=range(N_FEATURES))
    left.legend(fontsize=8)
    right.set(xlabel=f"coefficient {idle}", ylabel="density", yticks=[])
    right.set_title("a kink at zero", fontsize=9)
    return figure


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000, help="of NUTS, in each of two chains")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, draws=200)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    features, responses, truth = make_data()
    results = run(build_model(features, responses), options.draws)
    report(results, "slopes")
    path = options.output / "sparse_regression.png"
    plot(results, truth).savefig(path, dpi=110)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
