"""Bayesian support vector machine on ijcnn1: accuracy against time, batch sizes, step sizes.

The comparisons of sections 5.1.2 and 5.1.3 of Hu, Zhu, Zhang, "Fast Sampling Methods for Bayesian
Max-margin Models", which use Realsim and HIGGS, on the 49,990 rows and 22 features of ijcnn1,
standardized and with a column of ones, cost 1, prior N(0, I), all samplers from w = 0:

1. test accuracy of the posterior-mean classifier over time, for stochastic subgradient samplers,
   Gibbs sampling with data augmentation and the stochastic random walk, compared with LinearSVC;
2. its dependence on the batch size;
3. SSGLD with AdaGrad against polynomially decaying steps.

The posterior mean at any time is the mean of the second half of the draws so far. A sampler has
reached an accuracy when its classifier attains it and does not fall below it again. Time is
processor time of one core, which on an idle machine is wall time; it includes tuning but not
compilation.

Run it with ``python examples/bayesian_svm_ijcnn1.py --data FOLDER``; it takes about a minute. The
folder holds ``ijcnn1.npz``; by default the environment variable ``PYMC_GEODESIC_DATA`` names it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from pymc.exceptions import SamplingError
from script_parts import parse_options
from svm_baselines import DataAugmentationGibbs, StochasticRandomWalk

import pymc_geodesic as pg
from pymc_geodesic.datasets.folder import read_arrays, sparse_rows
from pymc_geodesic.schedules import PolynomialDecay

ORIGIN = (
    "ijcnn1 comes from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html; the "
    "file must hold the CSR matrices Xtr and Xte and the labels ytr and yte, -1 and +1."
)
TARGET = 0.918 - 0.002
BATCH_SIZES = (10, 30, 100, 300, 1000, 3000)
N_STEPS = 25
SSGNHT_SETTINGS = {"step_size": 3e-4, "diffusion": 300.0, "n_steps": N_STEPS}
DECAYING_SETTINGS = {
    "step_size": PolynomialDecay(2e-3, 10.0, 0.5),
    "diffusion": 100.0,
    "n_steps": N_STEPS,
}
ADAGRAD_SETTINGS = {"step_size": 1.0, "preconditioner": "adagrad", "n_steps": N_STEPS}
ADAGRAD_STEPS = (0.3, 1.0, 3.0)
POLYNOMIAL_STEPS = (3e-3, 1e-2)
SEED = 7


class Experiment:
    """Data and model.

    Parameters
    ----------
    data : path-like, optional
        Folder that holds ``ijcnn1.npz``.
    """

    def __init__(self, data: str | None = None) -> None:
        arrays = read_arrays("ijcnn1.npz", data_home=data, origin=ORIGIN)
        train, test = (sparse_rows(arrays, name).toarray() for name in ("Xtr", "Xte"))
        mean, sd = train.mean(axis=0), train.std(axis=0)
        self.X, self.X_test = (
            np.column_stack([(part - mean) / sd, np.ones(len(part))]) for part in (train, test)
        )
        self.y, self.y_test = arrays["ytr"].astype(float), arrays["yte"].astype(float)
        self.model = pg.svm.linear_svm(self.X, self.y)

    def accuracy(self, weights: np.ndarray) -> np.ndarray:
        """Return the test accuracy of classifiers, shape (classifier, feature)."""
        scores = self.X_test @ np.atleast_2d(weights).T
        return np.mean((scores > 0) == (self.y_test > 0)[:, None], axis=0)

    def step(self, make: Callable[..., Any], **settings: Any) -> Callable[[], np.ndarray]:
        """Return a function that makes one draw with a step method, from w = 0, compiled."""
        step = make(model=self.model, minibatch=["X", "y"], **settings)
        point, tune = {"weights": np.zeros(self.X.shape[1])}, 500
        state = {"point": dict(point), "draw": 0}
        step.setup_chain(np.random.default_rng(SEED), tune, 10**6)
        step.step(dict(point))  # compiles
        step.setup_chain(np.random.default_rng(SEED), tune, 10**6)

        def draw() -> np.ndarray:
            if state["draw"] == tune:
                step.stop_tuning()
            state["point"], _ = step.step(state["point"])
            state["draw"] += 1
            return state["point"]["weights"]

        return draw


def run(draw: Callable[[], np.ndarray], seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw for some time, or until the sampler raises an error; return times and weights."""
    times, weights = [], []
    began = now = time.process_time()
    while now - began < seconds:
        try:
            weights.append(np.array(draw()))
        except SamplingError as error:
            print(f"stopped: {error}", flush=True)
            break
        now = time.process_time()
        times.append(now - began)
    return np.array(times), np.stack(weights)


def curve(
    experiment: Experiment, times: np.ndarray, weights: np.ndarray, points: int = 80
) -> tuple[np.ndarray, np.ndarray]:
    """Return the accuracy of the mean of the second half of the draws as a function of time."""
    total = np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights, axis=0)])
    last = np.unique(np.geomspace(1, len(times), points).round().astype(int))
    first = last // 2
    means = (total[last] - total[first]) / (last - first)[:, None]
    return times[last - 1], experiment.accuracy(means)


def time_to_stay(seconds: np.ndarray, accuracy: np.ndarray, target: float = TARGET) -> float:
    """Return the first time from which the accuracy stays at the target; infinite if none."""
    below = np.flatnonzero(accuracy < target)
    if below.size == 0:
        return float(seconds[0])
    return float(seconds[below[-1] + 1]) if below[-1] + 1 < len(seconds) else np.inf


def make_samplers(experiment: Experiment) -> dict[str, Callable[[], Callable[[], np.ndarray]]]:
    """Samplers by name, each compiled when it is called."""
    X, y = experiment.X, experiment.y

    def step(make: Callable[..., Any], **settings: Any) -> Callable[[], Callable]:
        return lambda: experiment.step(make, batch_size=100, **settings)

    def gibbs() -> Callable[[], np.ndarray]:
        sampler = DataAugmentationGibbs(X, y, random_seed=SEED)
        sampler.sweep()
        sampler.weights = np.zeros(X.shape[1])
        return sampler.sweep

    def random_walk() -> Callable[[], np.ndarray]:
        sampler = StochasticRandomWalk(X, y, scale=0.1, batch_size=1000, random_seed=SEED)
        sampler.step(1)
        sampler.weights[:] = 0.0
        return sampler.step

    return {
        "SSGNHT, h = 0.0003": step(pg.SSGNHT, **SSGNHT_SETTINGS),
        "SSGNHT, decaying h": step(pg.SSGNHT, **DECAYING_SETTINGS),
        "SSGNHT, tuned": step(pg.SSGNHT, n_steps=N_STEPS),
        "gSGNHT, tuned": step(pg.gSGNHT, n_steps=N_STEPS),
        "SSGLD, AdaGrad": step(pg.SSGLD, **ADAGRAD_SETTINGS),
        "SSGLD, tuned": step(pg.SSGLD, n_steps=N_STEPS),
        "Gibbs, data augmentation": gibbs,
        "stochastic random walk": random_walk,
    }


def point_estimates(experiment: Experiment) -> dict[str, tuple[float, float]]:
    """Return seconds and accuracy of LinearSVC after at most twenty passes, by its loss."""
    from sklearn.svm import LinearSVC

    results = {}
    for loss in ("squared_hinge", "hinge"):
        estimate = LinearSVC(loss=loss, fit_intercept=False, dual=loss == "hinge", max_iter=20)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the hinge loss takes more passes to converge
            estimate.fit(experiment.X, experiment.y)
        seconds = time.process_time() - began
        results[f"LinearSVC, {loss.replace('_', ' ')}"] = (
            seconds,
            float(estimate.score(experiment.X_test, experiment.y_test)),
        )
    return results


def compare(experiment: Experiment, seconds: float) -> tuple[dict[str, Any], list[str]]:
    """Part 1: curves of accuracy, and the lines of a table."""
    curves, reached, lines = {}, {}, []
    for name, make in make_samplers(experiment).items():
        times, weights = run(make(), seconds)
        curves[name] = curve(experiment, times, weights)
        reached[name] = time_to_stay(*curves[name])
        lines.append((name, len(times), times[-1] / len(times), curves[name][1][-1]))
    gibbs = reached["Gibbs, data augmentation"]
    table = [
        f"| sampler | draws in {seconds:g} s | µs per draw | time to {TARGET:.3f} "
        "| Gibbs ÷ it | at the end |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, draws, per_draw, last in lines:
        table.append(
            f"| {name} | {draws:,} | {1e6 * per_draw:,.0f} | {1e3 * reached[name]:,.1f} ms "
            f"| {gibbs / reached[name]:.2f} | {last:.4f} |"
        )
    return curves, table


def batch_sizes(experiment: Experiment, seconds: float) -> dict[str, dict[str, Any]]:
    """Part 2: curves of accuracy by sampler and batch size."""
    return {
        name: {
            str(size): curve(
                experiment, *run(experiment.step(make, batch_size=size, **settings), seconds)
            )
            for size in BATCH_SIZES
        }
        for name, make, settings in (
            ("SSGNHT, decaying h", pg.SSGNHT, DECAYING_SETTINGS),
            ("SSGLD, AdaGrad", pg.SSGLD, ADAGRAD_SETTINGS),
        )
    }


def step_sizes(experiment: Experiment, seconds: float) -> dict[str, Any]:
    """Part 3: curves of SSGLD with AdaGrad and with polynomially decaying steps."""
    settings = {
        f"AdaGrad, h = {h:g}": {"step_size": h, "preconditioner": "adagrad"} for h in ADAGRAD_STEPS
    } | {
        f"h = {h:g} (1 + t)^-{gamma:g}": {"step_size": PolynomialDecay(h, 1.0, gamma)}
        for h in POLYNOMIAL_STEPS
        for gamma in (0.2, 0.33)
    }
    return {
        name: curve(
            experiment,
            *run(experiment.step(pg.SSGLD, batch_size=100, n_steps=N_STEPS, **each), seconds),
        )
        for name, each in settings.items()
    }


def plot_curves(ax: Any, curves: dict[str, Any], title: str = "") -> None:
    """Draw accuracy over time."""
    for name, (seconds, accuracy) in curves.items():
        dashed = "Gibbs" in name or "random walk" in name or "(1 + t)" in name
        ax.plot(seconds, accuracy, label=name, linestyle="--" if dashed else "-", linewidth=1.5)
    ax.axhline(TARGET, color="gray", linewidth=0.6, linestyle=":")
    ax.set(xscale="log", xlabel="time (seconds)", ylabel="test accuracy", title=title)
    ax.set_ylim(0.9, 0.932)


def main() -> None:
    """Run the experiments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder that holds ijcnn1.npz")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each sampler")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, seconds=0.3)
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    options.output.mkdir(parents=True, exist_ok=True)
    experiment = Experiment(options.data)

    estimates = point_estimates(experiment)
    curves, table = compare(experiment, options.seconds)
    for name, (seconds, accuracy) in estimates.items():
        print(f"{name}: accuracy {accuracy:.4f} in {1e3 * seconds:.0f} ms")
    print("\n".join(table), flush=True)
    figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    plot_curves(ax, curves)
    for index, (name, (seconds, accuracy)) in enumerate(estimates.items()):
        ax.plot(seconds, accuracy, "k*" if index else "kx", label=name)
    ax.legend(fontsize=8)
    figure.savefig(options.output / "bayesian_svm_ijcnn1.png", dpi=100)

    by_size = batch_sizes(experiment, options.seconds / 2)
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    print(
        "\n| batch size | "
        + " | ".join(f"{n}: time to {TARGET:.3f}, at the end" for n in by_size)
        + " |"
    )
    print("|---:|" + "---:|" * len(by_size))
    for size in map(str, BATCH_SIZES):
        cells = [
            f"{1e3 * time_to_stay(*each[size]):,.1f} ms, {each[size][1][-1]:.4f}"
            for each in by_size.values()
        ]
        print(f"| {size} | " + " | ".join(cells) + " |")
    for panel, (name, each) in zip(panels, by_size.items(), strict=True):
        plot_curves(panel, each, name)
        panel.legend(title="batch size", fontsize=8)
    figure.savefig(options.output / "bayesian_svm_batch_sizes.png", dpi=100)

    by_step = step_sizes(experiment, options.seconds / 2)
    figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    plot_curves(ax, by_step)
    ax.legend(fontsize=8)
    figure.savefig(options.output / "bayesian_svm_step_sizes.png", dpi=100)
    print(f"\n| SSGLD | time to {TARGET:.3f} | at the end |\n|---|---:|---:|")
    for name, each in by_step.items():
        print(f"| {name} | {1e3 * time_to_stay(*each):,.1f} ms | {each[1][-1]:.4f} |")


if __name__ == "__main__":
    main()
