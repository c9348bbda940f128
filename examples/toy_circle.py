"""Bimodal density on a circle, sampled with very noisy gradients.

The toy experiment of the SGGMC paper (section 5.1, supplement F.1): the density

    π(x) ∝ exp(5 μ1·x) + 2 exp(5 μ2·x),  x on the unit circle,

with gradient noise N(0, 1000 I) of known variance. The noise is minibatch noise: a potential Σᵢ
nᵢ·x over rows nᵢ that sum to zero does not change the density, but one row, scaled by N, adds N nᵢ,
of variance 1000, to the gradient.

The paper gives "μ1 = −μ2 = π/3 (angle from +x direction)", which has two
readings: the angles π/3 and −π/3, or opposite directions, π/3 and −2π/3. Both are run.

At the published settings a draw takes 0.3 units of time, and the sampler changes modes once in a
hundred draws or more: the ten thousand draws of the paper estimate the weights of the modes with an
error of a few percent (several percent for opposite directions). The same dynamics with more inner
steps per draw show that this is Monte Carlo error and not bias.

Run it with ``python examples/toy_circle.py``; it takes some two minutes.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import logsumexp
from script_parts import parse_options

import pymc_geodesic as pg

# Angles of both means, and the multiple of L steps after which draws are nearly independent.
READINGS = {
    "angles π/3 and −π/3": ((np.pi / 3, -np.pi / 3), 100),
    "opposite, π/3 and −2π/3": ((np.pi / 3, -2 * np.pi / 3), 300),
}
KAPPA = 5.0
LOG_WEIGHTS = np.log([1.0, 2.0])
VARIANCE = 1000.0
EDGES = np.linspace(-np.pi, np.pi, 64)  # bins of width 0.1
PUBLISHED = {"step_size": 0.01, "n_steps": 30}
SEED = 5


def log_density(angle: np.ndarray, means: tuple[float, float]) -> np.ndarray:
    """Return log π at angles, up to a constant."""
    cosines = np.cos(np.asarray(angle)[..., None] - np.array(means))
    return logsumexp(KAPPA * cosines + LOG_WEIGHTS, axis=-1)


def bin_probabilities(means: tuple[float, float], edges: np.ndarray = EDGES) -> np.ndarray:
    """Return the probability of each bin by the midpoint rule, exact to rounding on a circle."""
    points = 500
    width = np.diff(edges)[:, None] / points
    density = np.exp(log_density(edges[:-1, None] + width * (np.arange(points) + 0.5), means))
    mass = np.sum(density * width, axis=1)
    return mass / mass.sum()


def total_variation(draws: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the total variation between binned draws, shape (..., 2), and probabilities."""
    angle = np.arctan2(draws[..., 1], draws[..., 0]).ravel()
    share = np.histogram(angle, EDGES)[0] / angle.size
    return 0.5 * float(np.sum(np.abs(share - probabilities)))


def independent_total_variation(n_draws: int, probabilities: np.ndarray) -> tuple[float, float]:
    """Return mean and 97.5 % quantile of the total variation of that many independent draws."""
    rng = np.random.default_rng(SEED)
    share = rng.multinomial(n_draws, probabilities, size=2000) / n_draws
    distance = 0.5 * np.sum(np.abs(share - probabilities), axis=1)
    return float(distance.mean()), float(np.quantile(distance, 0.975))


def corruption(n_rows: int, variance: float, rng: np.random.Generator) -> np.ndarray:
    """Return rows that sum to zero, one of which, times ``n_rows``, has this variance."""
    rows = rng.normal(size=(n_rows, 2))
    rows -= rows.mean(axis=0)
    return rows * np.sqrt(variance) / (n_rows * rows.std(axis=0))


def build_model(means: tuple[float, float], noise: np.ndarray | None = None) -> pm.Model:
    """Return the model, with a gradient-noise term that is zero in the sum over all rows."""
    directions = np.stack([np.cos(means), np.sin(means)], axis=1)
    with pm.Model() as model:
        x = pg.UniformSphere("x", shape=2)
        pm.Potential("mixture", pt.logsumexp(KAPPA * pt.as_tensor(directions) @ x + LOG_WEIGHTS))
        if noise is not None:
            rows = pm.Data("noise", noise)
            pm.Potential("corruption", rows @ x)
    return model


def noisy_step(**settings: Any) -> pg.SGGMC:
    """Return an SGGMC step with one row of noise per minibatch, of known variance."""
    return pg.SGGMC(gradient_noise=VARIANCE, batch_size=1, minibatch=["noise"], **settings)


def make_samplers(thinning: int) -> dict[str, tuple[bool, Callable[[], Any]]]:
    """Return, by name, whether the gradient is noisy and how to make the step."""
    steps = PUBLISHED["n_steps"]
    longer = {**PUBLISHED, "n_steps": steps * thinning}
    return {
        "SGGMC, published": (True, lambda: noisy_step(momentum_decay=0.1, **PUBLISHED)),
        f"SGGMC, published, {thinning} L": (True, lambda: noisy_step(momentum_decay=0.1, **longer)),
        f"SGGMC, tuned, {thinning // 2} L": (
            True,
            lambda: noisy_step(n_steps=steps * (thinning // 2)),
        ),
        "GMC, published": (False, lambda: pg.GMC(**PUBLISHED)),
        "GMC, tuned": (False, lambda: pg.GMC(n_steps=steps)),
    }


def run(
    means: tuple[float, float], *, draws: int, tune: int, thinning: int, chains: int = 2
) -> dict[str, Any]:
    """Run every sampler; return draws by name, ``draws`` over all chains."""
    noise = corruption(10_000, VARIANCE, np.random.default_rng(SEED))
    models = {True: build_model(means, noise), False: build_model(means)}
    results = {}
    for name, (noisy, make_step) in make_samplers(thinning).items():
        with models[noisy]:
            results[name] = pm.sample(
                draws=draws // chains,
                tune=tune,
                chains=chains,
                cores=chains,
                step=make_step(),
                progressbar=False,
                compute_convergence_checks=False,
                random_seed=SEED,
            )
    return results


def report(means: tuple[float, float], results: dict[str, Any]) -> dict[str, float]:
    """Print a table; return the total variation by name."""
    probabilities = bin_probabilities(means)
    distances = {}
    print(f"{'':28}{'draws':>7}{'TV':>8}{'ESS':>7}{'R-hat':>7}{'temp.':>7}{'clips':>6}")
    for name, idata in results.items():
        draws = idata.posterior["x"]
        distances[name] = total_variation(draws.values, probabilities)
        ess, rhat = az.ess(draws).min().item(), az.rhat(draws).max().item()
        stats = idata.sample_stats
        temperature = (
            f"{stats['temperature'].mean().item():7.3f}" if "temperature" in stats else f"{'':7}"
        )
        clips = f"{stats['noise_clips'].sum().item():6d}" if "noise_clips" in stats else ""
        n_draws = draws.sizes["chain"] * draws.sizes["draw"]
        print(
            f"{name:28}{n_draws:7d}{distances[name]:8.4f}{ess:7.0f}{rhat:7.3f}{temperature}{clips}"
        )
    mean, bound = independent_total_variation(n_draws, probabilities)
    print(f"{'independent draws, mean':28}{n_draws:7d}{mean:8.4f}   (97.5 % below {bound:.4f})")
    return distances


def plot(means: tuple[float, float], results: dict[str, Any], title: str) -> plt.Figure:
    """Plot draws around the circle, and histograms of the angle with the density."""
    figure = plt.figure(figsize=(9, 3.6), layout="constrained")
    round_axes = figure.add_subplot(1, 2, 1, projection="polar")
    axes = figure.add_subplot(1, 2, 2)
    probabilities = bin_probabilities(means)
    width, middle = np.diff(EDGES), 0.5 * (EDGES[1:] + EDGES[:-1])

    names = [name for name in results if name.startswith("SGGMC")]
    points = results[names[1]].posterior["x"].values.reshape(-1, 2)
    angle = np.arctan2(points[:, 1], points[:, 0])
    share = np.histogram(angle, EDGES)[0] / angle.size
    round_axes.bar(middle, share / width, width, bottom=1.0, alpha=0.5, label="SGGMC, all draws")
    some = angle[:: len(angle) // 100][:100]
    round_axes.plot(some, np.ones_like(some), "o", ms=3, alpha=0.6, label="SGGMC, 100 draws")
    round_axes.set(yticks=[1.0], yticklabels=[], title=title)
    round_axes.legend(loc="lower left", bbox_to_anchor=(-0.3, -0.15), fontsize=8)

    axes.plot(middle, probabilities / width, "k", label="density")
    for name in (names[0], names[1], "GMC, tuned"):
        points = results[name].posterior["x"].values
        share = np.histogram(np.arctan2(points[..., 1], points[..., 0]), EDGES)[0]
        distance = total_variation(points, probabilities)
        axes.stairs(share / share.sum() / width, EDGES, label=f"{name}: TV {distance:.3f}", lw=1)
    axes.set(xlabel="angle (radians)", ylabel="density", xlim=(-np.pi, np.pi), ylim=(0, 0.95))
    axes.legend(fontsize=8, loc="upper right")
    return figure


def main() -> None:
    """Run the experiment in both readings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000, help="over all chains")
    parser.add_argument("--tune", type=int, default=500, help="discarded first draws of a chain")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, draws=1000, tune=100)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    for number, (reading, (means, thinning)) in enumerate(READINGS.items(), start=1):
        print(f"\n{reading}: total variation in bins of 0.1")
        results = run(means, draws=options.draws, tune=options.tune, thinning=thinning)
        report(means, results)
        path = options.output / f"toy_circle_{number}.png"
        plot(means, results, reading).savefig(path, dpi=110)
        print(f"Figure: {path}")


if __name__ == "__main__":
    main()
