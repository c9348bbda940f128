"""Chains over shards of rows: posterior, workers, lost ones, bytes, larger clusters simulated.

``python -m benchmarks.distributed PART [--rows N] [--workers N] [--folder FOLDER]`` prints a
table, and keeps what the figure needs in benchmarks/results; ``reference``, all rows in one
process, comes first. The part ``figure`` draws docs/figures/distributed.png. Rows are like those
of HIGGS, 28 covariates with correlations and scales of their own, in files that workers read.
Shards are as unlike as can be: every one has rows of one label only.
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
    """Logistic regression on rows, a few of which are enough."""
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
    keep(f"reference {n}", [each.tolist() for each in found])


def line(name, idata, known, seconds) -> str:
    mean, sd = errors(idata, known)
    shift = float(idata["shards"]["shift"].max())
    return (
        f"| {name} | {np.abs(mean).max():.3f} | {sd.min():.3f} to {sd.max():.3f} | {shift:.2g} | "
        f"{seconds:.0f} |"
    )


class Killer:
    """Ends the process of a worker behind so many visits, as a machine that fails."""

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
    """Workers of one thread each, every one a process."""
    from distributed import LocalCluster

    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0")


def keep(part: str, found) -> None:
    """Keep what a part has found, for the figure and the simulation."""
    known = kept() | {part: found}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(known))


def kept() -> dict:
    """Read what parts have found."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def compared(name: str, n: int, n_workers: int, **arguments):
    """Sample on so many workers, and compare with one process and with Laplace."""
    from distributed import Client

    known = np.array(kept()[f"reference {n}"])
    with cluster(n_workers) as local, Client(local) as client:
        idata, seconds = sampled(client, n, compute_convergence_checks=False, **arguments)
    for what, (mean, sd) in (("one process", known[:2]), ("Laplace", known[2:])):
        print(line(f"{name}, against {what}", idata, (mean, sd), seconds), flush=True)
    found = [list(map(float, part)) for part in errors(idata, known[:2])]
    keep("posterior", kept().get("posterior", {}) | {name.partition(",")[0]: found})
    return idata


def posterior(n: int, n_workers: int) -> None:
    """Compare the posterior on some workers with that of one process."""
    print(f"\n{n:,} rows in {N_SHARDS} shards of one label each\n")
    print("| run | worst mean, sd | sd ratios | shift of a shard, sd | s |")
    print("|---|---:|---|---:|---:|", flush=True)
    draws = vectors(compared(f"conducive, {n_workers} workers", n, n_workers))
    known = kept().get(f"draws {n}", {}) | {
        str(n_workers): hashlib.sha256(draws.tobytes()).hexdigest()
    }
    keep(f"draws {n}", known)
    same = len(set(known.values())) == 1
    print(f"Draws on {', '.join(known)} workers the same, bit for bit: {same}")


def dsgld(n: int, n_workers: int) -> None:
    """Compare posteriors without conducive gradients with that of one process."""
    compared(f"DSGLD, {n_workers} workers", n, n_workers, conducive=False)


def lost(n: int, n_workers: int) -> None:
    """Kill a worker in the middle, and compare the draws with those of a run without."""
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
    print(f"Shards loaded again: {reloads}; all draws the same, bit for bit: {same}.")


def travelling(n: int, n_workers: int) -> None:
    """Count the bytes that travel for each draw, for more and more rows."""
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
    keep("bytes", found)


class Network:
    """Costs of a network that is only thought of.

    Parameters
    ----------
    seconds_per_row : float
        Time of a worker for gradient of a row.
    seconds_per_draw : float
        Time of a worker for a draw.
    bytes_per_visit : float
        State and draws, there and back.
    """

    latency, bandwidth, handling = 1e-3, 1e8, 5e-3
    """Seconds of a message, bytes per second of the client, seconds of Python for a visit."""

    def __init__(self, seconds_per_row, seconds_per_draw, bytes_per_visit):
        self.per_row, self.per_draw, self.per_visit = (
            seconds_per_row, seconds_per_draw, bytes_per_visit,
        )  # fmt: skip

    def run(self, n_rows, n_workers, n_chains, draws, visit) -> tuple[float, float]:
        """Simulate a run event by event: seconds of all passes, and of all draws.

        Every worker has one shard. Chains wait for shards, and share the client, which handles one
        message after the other.
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
    """Extrapolate to larger clusters by a simulated network, with times measured here."""
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
    """Draw what the parts have kept."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = kept()
    colours = {"conducive": "#1b6ca8", "DSGLD": "#c8553d"}
    labels = {"conducive": "conducive gradients", "DSGLD": "without (DSGLD)"}
    drawn, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for name, (mean, ratio) in found["posterior"].items():
        axes[0].plot(np.sort(np.abs(mean)), "o-", ms=3, color=colours[name], label=labels[name])
        axes[1].plot(np.sort(ratio), "o-", ms=3, color=colours[name], label=labels[name])
    for axis, title in zip(axes, ("error of the mean, sd", "sd over reference"), strict=False):
        axis.set(yscale="log", xlabel="coefficient, in order", title=title)
    axes[0].axhline(0.1, color="grey", lw=0.8, ls=":")
    axes[1].axhline(1.0, color="grey", lw=0.8, ls=":")
    axes[0].legend(frameon=False)
    rows = [int(n) for n in found["bytes"]]
    axes[2].plot(rows, list(found["bytes"].values()), "o-", color=colours["conducive"])
    axes[2].set(xscale="log", ylim=(0, None), xlabel="rows", title="bytes that travel per draw")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    drawn.savefig(FIGURE, dpi=150)


PARTS = {
    each.__name__: each
    for each in (reference, posterior, dsgld, lost, travelling, simulate, figure)
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
