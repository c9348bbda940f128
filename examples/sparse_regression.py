"""Regression with a Laplace prior on the coefficients: the Bayesian lasso, kinks and all.

Twenty correlated features, five of which matter, and a thousand noisy observations. The prior has
a kink at zero, just where the posteriors of the idle coefficients lie, so that the gradient of the
log-posterior jumps there. `SubgradientHMC` takes any subgradient and corrects by Metropolis; it
is compared with NUTS, which differentiates through the kinks as if they were not there and is
exact for the same reason, and with `SSGNHT` on minibatches of a hundred observations.

Run it with ``python examples/sparse_regression.py``; it takes less than a minute.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

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


def run(model: pm.Model, draws: int) -> dict[str, tuple[Any, float]]:
    """Sample with each step method; return draws and seconds by name."""
    makers = {
        "NUTS": (1, lambda: None),
        "SubgradientHMC": (2, lambda: pg.SubgradientHMC(n_steps=20)),
        "SSGNHT, batch 100": (
            4,
            lambda: pg.SSGNHT(n_steps=100, batch_size=BATCH, minibatch=["X", "y"]),
        ),
    }
    results = {}
    for name, (longer, make_step) in makers.items():
        with model:
            begin = time.perf_counter()
            idata = pm.sample(
                draws=longer * draws,
                tune=1000,
                chains=2,
                cores=2,
                step=make_step(),
                random_seed=SEED,
                progressbar=False,
                compute_convergence_checks=False,
            )
        results[name] = idata, time.perf_counter() - begin
    return results


def report(results: dict[str, tuple[Any, float]]) -> None:
    """Print how far each sampler is from NUTS."""
    reference = results["NUTS"][0].posterior["slopes"]
    mean, deviation = reference.mean(("chain", "draw")), reference.std(("chain", "draw"))
    print(f"{'':20}{'mean off by':>13}{'spread':>16}{'ESS':>8}{'R-hat':>8}{'seconds':>9}")
    for name, (idata, seconds) in results.items():
        slopes = idata.posterior["slopes"]
        off = float(np.abs((slopes.mean(("chain", "draw")) - mean) / deviation).max())
        ratio = slopes.std(("chain", "draw")) / deviation
        ess, rhat = az.ess(idata)["slopes"], az.rhat(idata)["slopes"]
        print(
            f"{name:20}{off:13.3f}{float(ratio.min()):9.3f}–{float(ratio.max()):.3f}"
            f"{float(ess.min()):8.0f}{float(rhat.max()):8.3f}{seconds:9.1f}"
        )
    print("Largest error of a mean in posterior standard deviations, and spreads as multiples of")
    print("those of NUTS, whose draws have errors of their own; seconds include compilation.")


def plot(results: dict[str, tuple[Any, float]], truth: np.ndarray) -> plt.Figure:
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
    options = parser.parse_args()
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    features, responses, truth = make_data()
    results = run(build_model(features, responses), options.draws)
    report(results)
    path = options.output / "sparse_regression.png"
    plot(results, truth).savefig(path, dpi=110)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
