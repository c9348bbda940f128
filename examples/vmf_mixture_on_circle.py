"""Bimodal posterior on a torus, sampled by stochastic gradients with known noise.

The synthetic experiment of the SGGMC paper (section 5.2, supplement D and F.2): 100 points from
½ vMF(v1, 20) + ½ vMF(μ, 20) on the circle, where μ is the middle of v1 and v2 and both have the
prior vMF(e1, 20). Which component is v1 and which is μ is not identified, so that the posterior has
two modes; for this data set their weights are 0.41 and 0.59, by quadrature.

Minibatches have 10 rows, and the gradient noise is estimated by the empirical Fisher information.
Gradient noise limits the step size: 25,000 draws at the published settings change modes only a few
times, too few to estimate the weights. More inner steps per draw solve this, and so do, at a lower
cost, minibatches of 50 rows. Tuning chooses longer steps; the draws within a mode are then a few
percent too narrow, since the noise of v1 and v2 is correlated while the subtracted variance is
diagonal.

Run it with ``python examples/vmf_mixture_on_circle.py``; it takes some two minutes.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from script_parts import parse_options

import pymc_geodesic as pg
from pymc_geodesic.datasets import make_shared_mean_mixture

KAPPA = 20.0
EDGES = np.linspace(-1.5, 1.5, 121)
POINTS_PER_BIN = 5
DATA_SEED, SEED = 23, 4


class Truth(NamedTuple):
    """The posterior by quadrature.

    Attributes
    ----------
    joint : ndarray, shape (bins, bins)
        Probability of bins of (angle of v1, angle of v2).
    weight : float
        Probability of the mode where v1 has the smaller angle, that of the generating values.
    """

    joint: NDArray[np.float64]
    weight: float


def log_posterior(points: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the log-posterior at angles of v1 and v2 less than π apart, up to a constant."""
    angle = np.arctan2(points[:, 1], points[:, 0])
    first, second = np.broadcast_arrays(first, second)
    total = KAPPA * (np.cos(first) + np.cos(second))
    for each in angle:
        total = total + np.logaddexp(
            KAPPA * np.cos(each - first), KAPPA * np.cos(each - 0.5 * (first + second))
        )
    return total


def quadrature(points: np.ndarray) -> Truth:
    """Integrate the posterior over bins by the midpoint rule."""
    n_bins = len(EDGES) - 1
    step = (EDGES[-1] - EDGES[0]) / (n_bins * POINTS_PER_BIN)
    grid = EDGES[0] + step * (np.arange(n_bins * POINTS_PER_BIN) + 0.5)
    log_density = log_posterior(points, grid[:, None], grid)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    joint = density.reshape(n_bins, POINTS_PER_BIN, n_bins, POINTS_PER_BIN).sum(axis=(1, 3))
    return Truth(joint, float(np.triu(density, 1).sum() + 0.5 * np.trace(density)))


def mixture_logp(x: Any, v1: Any, v2: Any) -> Any:
    """Log-density of ½ vMF(v1, κ) + ½ vMF(μ, κ), μ being the middle of v1 and v2."""
    middle = (v1 + v2) / pt.sqrt(pt.sum((v1 + v2) ** 2, axis=-1, keepdims=True))
    components = [pm.logp(pg.VonMisesFisher.dist(mu, KAPPA), x) for mu in (v1, middle)]
    return pt.logaddexp(*components) - np.log(2.0)


def build_model(points: np.ndarray) -> pm.Model:
    """Return the model with the data container ``x``."""
    with pm.Model() as model:
        x = pm.Data("x", points)
        v1 = pg.VonMisesFisher("v1", [1.0, 0.0], KAPPA)
        v2 = pg.VonMisesFisher("v2", [1.0, 0.0], KAPPA)
        pm.CustomDist("y", v1, v2, logp=mixture_logp, signature="(d),(d)->(d)", observed=x)
    return model


def minibatches(batch_size: int) -> dict[str, Any]:
    """Return arguments for minibatches of rows drawn anew each time.

    A hundred rows shuffled once have too few distinct minibatches: the variance of the gradient
    over these would differ from the Fisher information.
    """
    return {"batch_size": batch_size, "minibatch": ["x"], "minibatch_order": "random"}


def published(n_steps: int = 10) -> pg.SGGMC:
    """Return the step of supplement F.2."""
    return pg.SGGMC(
        learning_rate=5e-4,
        momentum_decay=0.1,
        n_steps=n_steps,
        gradient_noise="fisher",
        **minibatches(10),
    )


def recommended() -> pg.SGGMC:
    """Return a step with five times as many rows, and a step size to match."""
    return pg.SGGMC(
        learning_rate=3e-3,
        momentum_decay=0.125,
        n_steps=100,
        gradient_noise="fisher",
        **minibatches(50),
    )


def make_samplers(longer: int) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Return by name the number of discarded draws and a function that makes the step."""
    return {
        "SGGMC, published": (15_000, published),
        f"SGGMC, published, {longer} L": (1000, lambda: published(10 * longer)),
        "SGGMC, batch 50": (1000, recommended),
        "SGGMC, batch 50, tuned": (
            1000,
            lambda: pg.SGGMC(n_steps=50, gradient_noise="fisher", **minibatches(50)),
        ),
        "gSGNHT, batch 50, tuned": (1000, lambda: pg.gSGNHT(n_steps=50, **minibatches(50))),
        "GMC, published": (15_000, lambda: pg.GMC(step_size=1e-3, n_steps=20)),
        "GMC, tuned": (1000, lambda: pg.GMC(n_steps=20)),
    }


def run(
    points: np.ndarray, *, draws: int = 25_000, tune: int | None = None, longer: int = 20
) -> dict[str, tuple[Any, float]]:
    """Run two chains of every sampler; return draws and seconds by name."""
    model = build_model(points)
    results = {}
    for name, (discarded, make_step) in make_samplers(longer).items():
        with model:
            step = make_step()
            start = time.perf_counter()
            idata = pm.sample(
                draws=draws,
                tune=discarded if tune is None else tune,
                chains=2,
                cores=2,
                step=step,
                progressbar=False,
                compute_convergence_checks=False,
                random_seed=SEED,
            )
        results[name] = idata, time.perf_counter() - start
    return results


def angles(idata: Any) -> np.ndarray:
    """Return the angles of v1 and v2, shape (2, chain, draw)."""
    vectors = [idata.posterior[name].values for name in ("v1", "v2")]
    return np.stack([np.arctan2(vector[..., 1], vector[..., 0]) for vector in vectors])


def histogram(pairs: np.ndarray) -> np.ndarray:
    """Return the proportion of draws in each bin of both angles."""
    return np.histogram2d(pairs[0].ravel(), pairs[1].ravel(), [EDGES, EDGES])[0] / pairs[0].size


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    """Return half the sum of absolute differences."""
    return 0.5 * float(np.sum(np.abs(one - other)))


def report(truth: Truth, results: dict[str, tuple[Any, float]]) -> dict[str, float]:
    """Print a table; return the weight of the generating mode by name."""
    weights = {}
    print(
        f"{'':26}{'weights of the modes':>21}{'TV v1':>7}{'TV v2':>7}{'ESS':>6}{'R-hat':>7}"
        f"{'temp.':>7}{'seconds':>8}"
    )
    print(f"{'quadrature':26}{truth.weight:14.3f}{1 - truth.weight:7.3f}")
    for name, (idata, seconds) in results.items():
        pairs = angles(idata)
        in_mode = (pairs[0] < pairs[1]).astype(float)
        weights[name] = float(in_mode.mean())
        joint = histogram(pairs)
        distances = [total_variation(joint.sum(axis), truth.joint.sum(axis)) for axis in (1, 0)]
        stats = idata.sample_stats
        temperature = (
            f"{stats['temperature'].mean().item():7.3f}" if "temperature" in stats else f"{'':7}"
        )
        print(
            f"{name:26}{weights[name]:14.3f}{1 - weights[name]:7.3f}"
            f"{distances[0]:7.3f}{distances[1]:7.3f}{float(az.ess(in_mode)):6.0f}"
            f"{float(az.rhat(in_mode)):7.3f}{temperature}{seconds:8.1f}"
        )
    print("ESS and R-hat are those of the indicator of a mode.")
    return weights


def plot(truth: Truth, results: dict[str, tuple[Any, float]]) -> plt.Figure:
    """Plot both marginals and the joint density, exact and by SGGMC."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.3), layout="constrained")
    names = list(results)
    width = np.diff(EDGES)
    middle = 0.5 * (EDGES[1:] + EDGES[:-1])
    for i, ax in enumerate(axes[:2]):
        ax.plot(middle, truth.joint.sum(1 - i) / width, "k", label="quadrature")
        for name in (names[0], names[2], names[-1]):
            share = histogram(angles(results[name][0])).sum(1 - i)
            ax.stairs(share / width, EDGES, label=name, lw=1)
        ax.set(xlabel=f"angle of v{i + 1}", xlim=[(-0.6, 0.6), (-1.2, 1.2)][i], ylim=(0, None))
    axes[0].set_ylabel("density")
    axes[0].set_ylim(0, 1.45 * axes[0].get_ylim()[1])
    axes[0].legend(fontsize=7, loc="upper left")
    joint = histogram(angles(results[names[2]][0]))
    top = truth.joint.max()
    for ax, share, title in zip(
        axes[2:], (truth.joint, joint), ("quadrature", names[2]), strict=True
    ):
        ax.pcolormesh(EDGES, EDGES, share.T, cmap="Blues", vmax=top, rasterized=True)
        ax.set(xlabel="angle of v1", ylabel="angle of v2", title=title)
        ax.set(xlim=(-0.6, 0.6), ylim=(-1.2, 1.2))
        ax.title.set_fontsize(9)
    return figure


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=25_000, help="of each of two chains")
    parser.add_argument("--tune", type=int, help="discarded draws, if not those of each sampler")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, draws=1500, tune=300)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    points = make_shared_mean_mixture(random_seed=DATA_SEED)
    truth = quadrature(points)
    results = run(points, draws=options.draws, tune=options.tune)
    report(truth, results)
    path = options.output / "vmf_mixture_on_circle.png"
    plot(truth, results).savefig(path, dpi=110)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
