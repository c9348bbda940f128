"""A Bayesian support vector machine on ten million rows that stay on disk.

The rows are those of the HIGGS data in the data folder, repeated and jittered by a hundredth of
each feature's standard deviation until there are ten million, in random order (1.2 GB in single
precision; written once to a temporary folder and deleted at the end unless ``--keep``). Thermostats
with stochastic subgradients take minibatches of 100 rows from a block of 500,000 that is in memory
while the next one loads. Beside them runs the Gibbs sampler with data augmentation (Polson and
Scott, 2011), which has to see all rows once before it moves at all; its sweep goes over the same
blocks in compiled code with BLAS products.

It shows the test accuracy of the mean of the draws so far, without their first fifth, over the wall
time, and the time of a sweep. SSGNHT runs at a step so long that gradient noise, whose variance
grows with the square of the number of rows, keeps it some hundred times too hot: the mean, which
classifies, is there within a second, while the draws spread far wider than the posterior, as the
temperature says. gSGNHT is tuned to temperature 1 and needs longer than a sweep.

Run it with ``python examples/higgs_from_disk.py``; it takes some two minutes.
``PYMC_GEODESIC_DATA`` names the data folder.
"""

import argparse
import json
import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from svm_baselines import auxiliary_precisions

import pymc_geodesic as pg
from pymc_geodesic.datasets import RowBlocks, row_blocks
from pymc_geodesic.datasets.folder import read_arrays

ORIGIN = (
    "HIGGS is in the UCI repository (https://archive.ics.uci.edu/dataset/280/higgs); the file must "
    "hold X_sas (rows, 28) and y_sas for training and X_h2o_test and y_h2o_test for testing."
)
JITTER = 0.01
COST, PRIOR_SCALE = 1.0, 1.0
BATCH, N_STEPS, BLOCK = 100, 100, 500_000
SEED, N_TUNE = 1, 1000
SAMPLERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SSGNHT, long steps": (pg.SSGNHT, {"step_size": 2e-5, "diffusion": 5e3}),
    "gSGNHT, tuned": (pg.gSGNHT, {}),
}


def read_higgs(data: str | None) -> tuple[np.ndarray, ...]:
    """Return standardised features, with a column of ones, and signs, for training and testing."""
    arrays = read_arrays("higgs_small.npz", data_home=data, origin=ORIGIN)
    train, test = arrays["X_sas"].astype("float64"), arrays["X_h2o_test"].astype("float64")
    mean, scale = train.mean(axis=0), train.std(axis=0)
    designs = [np.column_stack([(X - mean) / scale, np.ones(len(X))]) for X in (train, test)]
    signs = [np.where(arrays[name] > 0, 1, -1) for name in ("y_sas", "y_h2o_test")]
    return designs[0], signs[0], designs[1], signs[1]


def write_rows(folder: Path, X: np.ndarray, y: np.ndarray, n_rows: int) -> RowBlocks:
    """Write the repeated rows in random order; return their blocks."""
    rng = np.random.default_rng(SEED)
    names = [folder / "X.bin", folder / "y.bin"]
    with names[0].open("wb") as features, names[1].open("wb") as labels:
        for start in range(0, n_rows, BLOCK):
            chosen = rng.integers(len(X), size=min(BLOCK, n_rows - start))
            rows = X[chosen].astype("float32")
            noise = rng.standard_normal((len(rows), X.shape[1] - 1), dtype="float32")
            rows[:, :-1] += np.float32(JITTER) * noise
            rows.tofile(features)
            y[chosen].astype("int8").tofile(labels)
    return row_blocks(
        np.memmap(names[0], "float32", mode="r", shape=(n_rows, X.shape[1])),
        np.memmap(names[1], "int8", mode="r", shape=(n_rows,)),
        block_size=BLOCK,
    )


def build_model(n_features: int) -> pm.Model:
    """Return the classifier; one row stands in for the data."""
    with pm.Model() as model:
        X = pm.Data("X", np.zeros((1, n_features), "float32"))
        y = pm.Data("y", np.ones(1, "int8"))
        w = pm.Normal("weights", 0.0, PRIOR_SCALE, shape=n_features)
        pg.Hinge("label", X @ w, COST, observed=y)
    return model


def gibbs_sweep(rng: np.random.Generator, blocks: RowBlocks, w: np.ndarray) -> np.ndarray:
    """Draw w after one sweep of the Gibbs sampler over all rows, read block by block."""
    precision, linear = np.eye(w.size) / PRIOR_SCALE**2, np.zeros(w.size)
    for features, labels in blocks:
        X, y = np.asarray(features, dtype=float), np.asarray(labels, dtype=float)
        auxiliary_precisions(rng, X, y, w, COST, 1.0, precision, linear)
    root = np.linalg.cholesky(precision)
    mean = np.linalg.solve(root.T, np.linalg.solve(root, linear))
    return mean + np.linalg.solve(root.T, rng.standard_normal(w.size))


def time_gibbs(blocks: RowBlocks, sweeps: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and draws of some sweeps from w = 0; nothing is compiled within the time."""
    rng = np.random.default_rng(SEED)
    few = row_blocks(np.ones((8, d), "float32"), np.ones(8, "int8"), block_size=8)
    gibbs_sweep(rng, few, np.zeros(d))  # compiles
    w, draws, seconds = np.zeros(d), [], []
    begin = time.perf_counter()
    for _ in range(sweeps):
        w = gibbs_sweep(rng, blocks, w)
        draws.append(w)
        seconds.append(time.perf_counter() - begin)
    return np.array(seconds), np.array(draws)


def time_sampler(
    kind: Any, blocks: RowBlocks, seconds: float, d: int, settings: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Seconds, draws and sample stats from w = 0; nothing is compiled within the time."""
    with build_model(d) as model:
        step = kind(
            minibatch=["X", "y"], batches=blocks, batch_size=BATCH, n_steps=N_STEPS, **settings
        )
        start = model.initial_point()
    start = {name: np.zeros_like(value) for name, value in start.items()}
    step.setup_chain(np.random.default_rng(SEED), tune=0, draws=1)
    step.step(start)
    step.setup_chain(np.random.default_rng(SEED), tune=N_TUNE, draws=10**9)
    point, draws, times, stats = start, [], [], []
    begin = time.perf_counter()
    while not times or times[-1] < seconds:
        if len(times) == N_TUNE:
            step.stop_tuning()
        point, (stat,) = step.step(point)
        draws.append(point["weights"])
        stats.append((stat["step_size"], stat["temperature"]))
        times.append(time.perf_counter() - begin)
    step_size, temperature = np.array(stats).T
    return {
        "seconds": np.array(times),
        "draws": np.array(draws),
        "step_size": step_size,
        "temperature": temperature,
    }


def running_mean(draws: np.ndarray) -> np.ndarray:
    """Mean of the draws so far without their first fifth, after each draw."""
    total = np.concatenate([np.zeros((1, draws.shape[1])), np.cumsum(draws, axis=0)])
    stop = np.arange(1, len(draws) + 1)
    start = stop // 5
    return (total[stop] - total[start]) / (stop - start)[:, None]


def accuracy(weights: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Percentage of test rows with the right sign, for each vector of weights."""
    return np.array([100.0 * np.mean((X @ w) * y > 0.0) for w in weights])


def largest_memory() -> float:
    """Largest size of this process in GiB, where the system says."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    lines = status.read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 2**20


def main() -> None:
    """Run the comparison and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None, help="data folder")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each sampler")
    parser.add_argument("--sweeps", type=int, default=3, help="of the Gibbs sampler")
    parser.add_argument("--folder", type=Path, default=None, help="where the rows are written")
    parser.add_argument("--keep", action="store_true", help="leave the rows on disk")
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parser.parse_args()
    matplotlib.use("Agg")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    X, y, X_test, y_test = read_higgs(arguments.data)
    d = X.shape[1]
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        begin = time.perf_counter()
        blocks = write_rows(folder, X, y, arguments.rows)
        print(f"{arguments.rows:,} rows written in {time.perf_counter() - begin:.0f} s")
        results = {
            name: time_sampler(kind, blocks, arguments.seconds, d, settings)
            for name, (kind, settings) in SAMPLERS.items()
        }
        memory = largest_memory()
        sweep_seconds, sweep_draws = time_gibbs(blocks, arguments.sweeps, d)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder)

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    summary: dict[str, Any] = {"rows": arguments.rows, "memory_GiB": memory}
    for name, result in results.items():
        seconds = result["seconds"]
        shown = np.unique(np.geomspace(1, len(seconds), 300).astype(int) - 1)
        percent = accuracy(running_mean(result["draws"])[shown], X_test, y_test)
        axes.plot(seconds[shown], percent, label=name)
        for limit in (seconds[-1], sweep_seconds[0]):
            half = (seconds[shown] > 0.5 * limit) & (seconds[shown] <= limit)
            if half.any():
                summary[f"{name}: range of accuracy over {limit / 2:.1f} to {limit:.1f} s"] = float(
                    np.ptp(percent[half])
                )
        summary[f"{name}: accuracy"] = float(percent[-1])
        summary[f"{name}: steps per second"] = N_STEPS * len(seconds) / seconds[-1]
        summary[f"{name}: temperature"] = float(result["temperature"][-len(seconds) // 2 :].mean())
        summary[f"{name}: step size"] = float(result["step_size"][-1])
    sweeps = accuracy(running_mean(sweep_draws), X_test, y_test)
    axes.plot(sweep_seconds, sweeps, "o--", label="Gibbs sampler, one sweep per point")
    axes.axvline(sweep_seconds[0], color="0.7", linewidth=1)
    axes.set(
        xscale="log",
        xlabel="wall time from the first draw, reading included (s)",
        ylabel="test accuracy of the running mean (%)",
        title=f"HIGGS, {arguments.rows:,} rows on disk",
    )
    axes.legend()
    summary["Gibbs: seconds of the first sweep"] = float(sweep_seconds[0])
    summary["Gibbs: accuracy after the sweeps"] = sweeps.tolist()
    arguments.output.mkdir(exist_ok=True, parents=True)
    figure.savefig(arguments.output / "higgs_from_disk.png", dpi=150)
    (arguments.output / "higgs_from_disk.json").write_text(json.dumps(summary, indent=1))
    for key, value in summary.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
