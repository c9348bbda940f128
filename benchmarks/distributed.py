"""Sampling with rows in shards: accuracy, lost workers, network traffic, simulated clusters.

``python -m benchmarks.distributed PART [--rows N] [--workers N] [--folder FOLDER]`` prints a
table and stores the data of the figure in benchmarks/results. ``reference``, with all rows in one
process, must run first. The part ``figure`` plots docs/figures/distributed.png. Rows are simulated
like those of HIGGS, with 28 correlated covariates, in files that workers read. Shards are
heterogeneous: each has rows of one label only.
"""

import argparse
import functools
import hashlib
import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.distributed_rows import N_SHARDS, D, all_rows, files_of, laplace, rows_of
from pymc_geodesic.distributed import sampling
from pymc_geodesic.distributed.visits import ProgressBars

BATCH = 100
VISITS_BEFORE_LOSS = 12
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "distributed.png"
RESULTS = Path(__file__).parent / "results" / "distributed.json"
FOLDER = Path(tempfile.gettempdir()) / f"pymc_geodesic-rows-{os.getuid()}"


def logistic(covariates: np.ndarray, labels: np.ndarray) -> pm.Model:
    """Logistic regression on rows."""
    with pm.Model() as model:
        x, y = pm.Data("X", covariates), pm.Data("y", labels)
        intercept = pm.Normal("intercept", 0.0, 5.0)
        beta = pm.Normal("beta", 0.0, 5.0, shape=D)
        pm.Bernoulli("label", logit_p=intercept + x @ beta, observed=y)
    return model


STEP = functools.partial(pg.SGGMC, batch_size=BATCH, minibatch=["X", "y"])


def sampled(client, n, **arguments):
    """Sample with the rows in shards; return draws and seconds."""
    few, parts = rows_of(0, 2), files_of(FOLDER, n)
    began = time.perf_counter()
    idata = pg.distributed.sample(
        logistic(few["X"], few["y"]), STEP, client, shards=parts, random_seed=1,
        progressbar=False, **({"draws": 1600, "tune": 600, "chains": 4} | arguments),
    )  # fmt: skip
    return idata, time.perf_counter() - began


def vectors(idata) -> np.ndarray:
    """Draws of all coefficients, shape (chain, draw, 29)."""
    posterior = idata.posterior
    return np.concatenate([posterior["intercept"].values[..., None], posterior["beta"]], axis=-1)


def errors(idata, reference) -> tuple[np.ndarray, np.ndarray]:
    """Errors of means in posterior standard deviations, and ratios of standard deviations."""
    draws = vectors(idata).reshape(-1, D + 1)
    mean, sd = reference
    return (draws.mean(axis=0) - mean) / sd, draws.std(axis=0) / sd


def reference(n: int, _: int) -> None:
    """Sample by `pymc.sample` with all rows in one process, and compare with Laplace."""
    rows = all_rows(FOLDER, n)
    began = time.perf_counter()
    with logistic(rows["X"], rows["y"]):
        idata = pm.sample(
            step=STEP(), draws=1600, tune=600, chains=4, cores=1, random_seed=2,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    seconds = time.perf_counter() - began
    draws = vectors(idata).reshape(-1, D + 1)
    near = laplace(rows)
    mean, sd = errors(idata, near)
    print("| run | worst mean, sd | sd ratios | s |\n|---|---:|---|---:|")
    print(
        f"| one process, against Laplace | {np.abs(mean).max():.3f} | {sd.min():.3f} to "
        f"{sd.max():.3f} | {seconds:.0f} |"
    )
    found = [draws.mean(axis=0), draws.std(axis=0), *near]
    store(f"reference {n}", [each.tolist() for each in found])


def line(name, idata, known, seconds) -> str:
    mean, sd = errors(idata, known)
    shift = float(idata["shards"]["shift"].max())
    return (
        f"| {name} | {np.abs(mean).max():.3f} | {sd.min():.3f} to {sd.max():.3f} | {shift:.2g} | "
        f"{seconds:.0f} |"
    )


class Killer:
    """Kills the process of a worker after a number of visits, as if a machine failed."""

    def __init__(self, client, visits: int) -> None:  # 0 for none
        processes = client.run(os.getpid)
        self._process, self._left = processes[min(processes)], visits
        self._one_by_one = threading.Lock()

    def progress_bars(self, *arguments, **named) -> ProgressBars:
        """Progress bars, which are updated after every visit."""
        bars = ProgressBars(*arguments, **named)
        shown = bars.advance

        def advance(*visit) -> None:
            shown(*visit)
            with self._one_by_one:
                self._left -= 1
                if self._left == 0:
                    os.kill(self._process, signal.SIGKILL)

        bars.advance = advance
        return bars


def cluster(n_workers: int):
    """Start single-threaded workers in separate processes."""
    from distributed import LocalCluster

    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0")


def store(part: str, found) -> None:
    """Store the results of a part, for the figure and the simulation."""
    known = stored() | {part: found}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(known))


def stored() -> dict:
    """Read the stored results."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def compared(name: str, n: int, n_workers: int, **arguments):
    """Sample on ``n_workers`` workers; compare with one process and with Laplace."""
    from distributed import Client

    known = np.array(stored()[f"reference {n}"])
    with cluster(n_workers) as local, Client(local) as client:
        idata, seconds = sampled(client, n, compute_convergence_checks=False, **arguments)
    for what, (mean, sd) in (("one process", known[:2]), ("Laplace", known[2:])):
        print(line(f"{name}, against {what}", idata, (mean, sd), seconds), flush=True)
    found = [list(map(float, part)) for part in errors(idata, known[:2])]
    store("posterior", stored().get("posterior", {}) | {name.partition(",")[0]: found})
    return idata


def posterior(n: int, n_workers: int) -> None:
    """Compare the posterior on some workers with that of one process."""
    print(f"\n{n:,} rows in {N_SHARDS} shards of one label each\n")
    print("| run | worst mean, sd | sd ratios | shift of a shard, sd | s |")
    print("|---|---:|---|---:|---:|", flush=True)
    draws = vectors(compared(f"conducive, {n_workers} workers", n, n_workers))
    known = stored().get(f"draws {n}", {}) | {
        str(n_workers): hashlib.sha256(draws.tobytes()).hexdigest()
    }
    store(f"draws {n}", known)
    same = len(set(known.values())) == 1
    print(f"Draws on {', '.join(known)} workers bit-identical: {same}")


def dsgld(n: int, n_workers: int) -> None:
    """Compare posteriors without conducive gradients with that of one process."""
    compared(f"DSGLD, {n_workers} workers", n, n_workers, conducive=False)


def lost(n: int, n_workers: int) -> None:
    """Kill a worker during a run, and compare the draws with those of an undisturbed run."""
    from distributed import Client

    fewer = {"draws": 600, "tune": 200, "chains": 2, "compute_convergence_checks": False}
    runs = []
    for after in (0, VISITS_BEFORE_LOSS):
        with (
            cluster(n_workers) as workers,
            Client(workers) as client,
            mock.patch.object(sampling, "ProgressBars", Killer(client, after).progress_bars),
        ):
            runs.append(sampled(client, n, **fewer))
    (whole, seconds), (disturbed, longer) = runs
    print(f"\n{n:,} rows: with a worker killed {longer / seconds:.1f} times as long.")
    reloads = int(disturbed["shards"]["reloads"].sum())
    same = np.array_equal(vectors(whole), vectors(disturbed))
    print(f"Shards loaded again: {reloads}; all draws bit-identical: {same}.")


def traffic(n: int, n_workers: int) -> None:
    """Count the bytes per draw that are sent, for increasing numbers of rows."""
    from distributed import Client

    print("\n| rows | bytes per draw |\n|---:|---:|")
    found = {}
    with cluster(n_workers) as local, Client(local) as client:
        for rows in sorted({10_000, 100_000, n}):
            idata, _ = sampled(
                client, rows, draws=400, tune=200, chains=2, compute_convergence_checks=False
            )
            found[rows] = float(idata["shards"].attrs["bytes_per_draw"])
            print(f"| {rows:,} | {found[rows]:,.0f} |", flush=True)
    store("bytes", found)


class Network:
    """Costs of a simulated network.

    Parameters
    ----------
    seconds_per_row : float
        Time of a worker for the gradient of a row.
    seconds_per_draw : float
        Time of a worker for a draw.
    bytes_per_visit : float
        Size of state and draws, in both directions.
    """

    latency, bandwidth, handling = 1e-3, 1e8, 5e-3
    """Seconds of a message, bytes per second of the client, seconds of Python for a visit."""

    def __init__(self, seconds_per_row, seconds_per_draw, bytes_per_visit):
        self.per_row, self.per_draw, self.per_visit = (
            seconds_per_row, seconds_per_draw, bytes_per_visit,
        )  # fmt: skip

    def run(self, n_rows, n_workers, n_chains, draws, visit) -> tuple[float, float]:
        """Simulate a run event by event: seconds of all passes, and of all draws.

        Every worker has one shard. Chains wait for shards, and share the client, which handles
        messages sequentially.
        """
        hessian = 30 * 20_000
        passes = 8 * (n_rows / n_workers) + 10 * hessian
        set_up = self.per_row * passes + 20 * (2 * self.latency + n_workers * self.handling)
        rng = np.random.default_rng(0)
        shard_free, client_free = np.zeros(n_workers), 0.0
        ready = np.zeros(n_chains)
        left = np.full(n_chains, -(-draws // visit))
        while left.any():
            chain = int(np.argmin(np.where(left > 0, ready, np.inf)))
            shard = rng.integers(n_workers)
            sent = max(ready[chain], client_free) + self.handling + self.per_visit / self.bandwidth
            client_free = sent
            begun = max(sent + self.latency, shard_free[shard])
            shard_free[shard] = begun + visit * self.per_draw
            ready[chain] = shard_free[shard] + self.latency
            left[chain] -= 1
        return set_up, float(ready.max())


def simulate(n: int, _: int) -> None:
    """Extrapolate to larger clusters by a simulated network with measured times."""
    from pymc_geodesic.distributed.shard_actor import Job, ShardActor

    few = rows_of(0, 2)
    model = logistic(few["X"], few["y"])
    import cloudpickle

    from pymc_geodesic.distributed.shards import step_spec

    job = cloudpickle.dumps(Job(model, step_spec(STEP, model), expands=True))
    part = rows_of(0, n // N_SHARDS, unlike=False)
    shard = ShardActor(job, functools.partial(dict, **part), 1.0)
    shard.configure(None, None, 400, 1000)
    point = model.initial_point()
    x = np.zeros(D + 1)
    shard.expand(x, None, curvature=False)
    began = time.process_time()
    for _ in range(3):
        shard.expand(x, None, curvature=False)
    per_row = (time.process_time() - began) / 3 / shard.n_rows
    state, _ = shard.visit(shard.start_chain(point, 1), 400, 2, shard=0, ends_tuning=True)
    state, _ = shard.visit(state, 10, 3, shard=0, ends_tuning=False)
    began = time.process_time()
    following, draws = shard.visit(state, 200, 4, shard=0, ends_tuning=False)
    per_draw = (time.process_time() - began) / 200
    arrays = [*draws.values.values(), *draws.stats.values()]
    per_visit = len(state) + len(following) + 50 * sum(a.nbytes for a in arrays) / 200
    network = Network(per_row, per_draw, per_visit)
    print(f"\nMeasured: {1e9 * per_row:.0f} ns per row of a gradient, {1e3 * per_draw:.2f} ms ")
    print(f"per draw, {per_visit:,.0f} bytes per visit of 50 draws.\n")
    print("| SIMULATED: rows | workers | chains | passes, s | draws/s |")
    print("|---:|---:|---:|---:|---:|")
    for rows, n_workers, n_chains in (
        (10**7, 1, 4), (10**7, 8, 4), (10**8, 8, 8), (10**9, 64, 4), (10**9, 64, 16),
        (10**9, 64, 64),
    ):  # fmt: skip
        set_up, seconds = network.run(rows, n_workers, n_chains, 2000, 50)
        rate = 2000 * n_chains / seconds
        print(f"| {rows:.0e} | {n_workers} | {n_chains} | {set_up:.0f} | {rate:,.0f} |")


def figure(*_: int) -> None:
    """Plot the stored results."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = stored()
    colors = {"conducive": "#1b6ca8", "DSGLD": "#c8553d"}
    labels = {"conducive": "conducive gradients", "DSGLD": "without (DSGLD)"}
    drawn, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for name, (mean, ratio) in found["posterior"].items():
        axes[0].plot(np.sort(np.abs(mean)), "o-", ms=3, color=colors[name], label=labels[name])
        axes[1].plot(np.sort(ratio), "o-", ms=3, color=colors[name], label=labels[name])
    for axis, title in zip(axes, ("error of the mean, sd", "sd over reference"), strict=False):
        axis.set(yscale="log", xlabel="coefficient, in order", title=title)
    axes[0].axhline(0.1, color="gray", lw=0.8, ls=":")
    axes[1].axhline(1.0, color="gray", lw=0.8, ls=":")
    axes[0].legend(frameon=False)
    rows = [int(n) for n in found["bytes"]]
    axes[2].plot(rows, list(found["bytes"].values()), "o-", color=colors["conducive"])
    axes[2].set(xscale="log", ylim=(0, None), xlabel="rows", title="bytes sent per draw")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    drawn.savefig(FIGURE, dpi=150)


PARTS = {
    each.__name__: each for each in (reference, posterior, dsgld, lost, traffic, simulate, figure)
}


def main() -> None:
    """Run one part."""
    global FOLDER
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the rows")
    given = parser.parse_args()
    FOLDER = given.folder
    PARTS[given.part](given.rows, given.workers)


if __name__ == "__main__":
    main()
