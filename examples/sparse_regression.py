"""Bayesian lasso: regression with a Laplace prior on the coefficients, by subgradient samplers.

Twenty correlated features, five of them with nonzero coefficients, and a thousand noisy
observations. The prior has a kink at zero, where the posteriors of the zero coefficients are
concentrated, so that the gradient of the log-posterior is discontinuous there. `SubgradientHMC`
uses a subgradient with a Metropolis correction. It is compared with NUTS, which uses the gradient
almost everywhere and is also exact by its accept step, and with `SSGNHT` on minibatches of a
hundred observations.

Run it with ``python examples/sparse_regression.py``; it takes less than a minute.
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

N_ROWS, N_FEATURES, BATCH = 1000, 20, 100
NOISE, PRIOR_SCALE = 5.0, 0.1
SEED = 1


def make_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, responses and the true coefficients."""
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
    return run_with_nuts(model, samplers, draws=draws, random_seed=SEED)


def plot(results: Runs, truth: np.ndarray) -> plt.Figure:
    """Plot intervals of all coefficients, and the density of one whose true value is zero."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 3.6), layout="constrained", width_ratios=[2, 1]
    )
    means = results["NUTS"][0].posterior["slopes"].values.mean(axis=(0, 1))
    null = int(np.argmin(np.abs(means)))
    for i, (name, (idata, _)) in enumerate(results.items()):
        draws = idata.posterior["slopes"].values.reshape(-1, N_FEATURES)
        low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
        position = np.arange(N_FEATURES) + 0.25 * (i - 1)
        left.errorbar(position, middle, [middle - low, high - middle], fmt=".", label=name, lw=1.2)
        right.hist(draws[:, null], 80, range=(-0.4, 0.4), density=True, histtype="step", label=name)
    left.plot(np.arange(N_FEATURES), truth, "k_", ms=14, label="truth")
    left.set(xlabel="feature", ylabel="coefficient, 90 % interval", xticks=range(N_FEATURES))
    left.legend(fontsize=8)
    right.set(xlabel=f"coefficient {null}", ylabel="density", yticks=[])
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
