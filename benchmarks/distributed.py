"""Chains over shards of rows: posterior, lost workers, bytes, workers, larger clusters simulated.

``python -m benchmarks.distributed PART [--rows N]`` prints a table, and keeps what the figure needs
in benchmarks/results; the part ``figure`` draws docs/figures/distributed.png. Rows are like those
of HIGGS, 28 covariates with correlations and scales of their own; each worker makes those of its
shards by itself. Shards are as unlike as can be: every one has rows of one label only.
"""

import argparse
import functools
import json
import os
import threading
import time
from pathlib import Path

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np
import pymc as pm

import pymc_geodesic as pg

D, N_SHARDS, BATCH = 28, 8, 100
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "distributed.png"
RESULTS = Path(__file__).parent / "results" / "distributed.json"
CHUNK = 200_000


def truth() -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, and the matrix that makes covariates of independent numbers."""
    rng = np.random.default_rng(0)
    mixing = np.eye(D) + 0.5 * rng.normal(size=(D, D)) / np.sqrt(D)
    mixing *= np.exp(rng.uniform(-1.0, 1.0, size=D))[:, None]
    return rng.normal(size=D) / np.sqrt(D) / np.linalg.norm(mixing, axis=1), mixing


def rows_of(shard: int, n: int, *, unlike: bool = True) -> dict[str, np.ndarray]:
    """Rows of a shard, made where they are needed."""
    beta, mixing = truth()
    rng = np.random.default_rng([1, shard])
    covariates, labels, found = [], [], 0
    while found < n:
        z = rng.normal(size=(CHUNK, D))
        z[:, ::4] = np.exp(0.5 * z[:, ::4]) - 1.0  # momenta are skewed
        x = z @ mixing.T
        y = rng.random(CHUNK) < 1.0 / (1.0 + np.exp(-x @ beta))
        kept = y == (shard % 2 == 0) if unlike else slice(None)
        covariates.append(x[kept].astype(np.float32))
        labels.append(y[kept].astype(np.float32))
        found += len(labels[-1])
    return {"X": np.concatenate(covariates)[:n], "y": np.concatenate(labels)[:n]}


def logistic(covariates: np.ndarray, labels: np.ndarray) -> pm.Model:
    """Logistic regression on rows, a few of which are enough."""
    with pm.Model() as model:
        x, y = pm.Data("X", covariates), pm.Data("y", labels)
        intercept = pm.Normal("intercept", 0.0, 5.0)
        beta = pm.Normal("beta", 0.0, 5.0, shape=D)
        pm.Bernoulli("label", logit_p=intercept + x @ beta, observed=y)
    return model


STEP = functools.partial(pg.SGGMC, batch_size=BATCH, minibatch=["X", "y"])


def sampled(client, n, *, unlike=True, shards=N_SHARDS, **arguments):
    """Sample with the rows in shards; return draws and seconds."""
    few = rows_of(0, 2)
    parts = [functools.partial(rows_of, s, n // shards, unlike=unlike) for s in range(shards)]
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


def all_rows(n: int) -> dict[str, np.ndarray]:
    """All rows in one place."""
    parts = [rows_of(s, n // N_SHARDS) for s in range(N_SHARDS)]
    return {name: np.concatenate([part[name] for part in parts]) for name in ("X", "y")}


def laplace(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mode and widths of the posterior of all rows, by Newton's method in double precision."""
    mode, n = np.zeros(D + 1), len(rows["y"])
    for _ in range(20):
        gradient, precision = -mode / 25.0, np.eye(D + 1) / 25.0
        for start in range(0, n, CHUNK):
            x = rows["X"][start : start + CHUNK].astype(float)
            x = np.column_stack([np.ones(len(x)), x])
            p = 1.0 / (1.0 + np.exp(-x @ mode))
            gradient += x.T @ (rows["y"][start : start + CHUNK] - p)
            precision += (x * (p * (1.0 - p))[:, None]).T @ x
        step = np.linalg.solve(precision, gradient)
        mode += step
        if np.abs(step).max() < 1e-10:
            break
    return mode, np.sqrt(np.diag(np.linalg.inv(precision)))


def one_process(rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and standard deviations by `pymc.sample` with all rows in one process, and seconds."""
    began = time.perf_counter()
    with logistic(rows["X"], rows["y"]):
        idata = pm.sample(
            step=STEP(), draws=1600, tune=600, chains=4, cores=1, random_seed=2,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    draws = vectors(idata).reshape(-1, D + 1)
    return draws.mean(axis=0), draws.std(axis=0), time.perf_counter() - began


def line(name, idata, reference, seconds) -> str:
    mean, sd = errors(idata, reference)
    shift = float(idata["shards"]["shift"].max())
    return (
        f"| {name} | {np.abs(mean).max():.3f} | {sd.min():.3f} to {sd.max():.3f} | {shift:.2g} | "
        f"{seconds:.0f} |"
    )


class Killer:
    """Ends the process of a worker after some seconds, as a machine that fails."""

    def __init__(self, client, seconds: float) -> None:
        self._client = client
        self._timer = threading.Timer(seconds, self._kill)

    def _kill(self) -> None:
        address = sorted(self._client.nthreads())[0]
        processes = self._client.run(os.getpid)
        os.kill(processes[address], 9)

    def __enter__(self):
        self._timer.start()

    def __exit__(self, *_):
        self._timer.cancel()


def cluster(n_workers: int):
    """Workers of one thread each, every one a process."""
    from distributed import LocalCluster

    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None)


def keep(part: str, found) -> None:
    """Keep what a part has found, for the figure and the simulation."""
    known = kept() | {part: found}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(known))


def kept() -> dict:
    """Read what parts have found."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def posterior(n: int) -> None:
    """Compare posteriors with and without conducive gradients with that of one process."""
    from distributed import Client

    rows = all_rows(n)
    mean, sd, seconds = one_process(rows)
    exact = laplace(rows)
    del rows
    away, ratios = np.abs((mean - exact[0]) / exact[1]).max(), sd / exact[1]
    print(f"\n{n:,} rows in {N_SHARDS} shards of one label each\n")
    print("| run | worst mean, sd | sd ratios | shift of a shard, sd | s |")
    print("|---|---:|---|---:|---:|")
    print(
        f"| one process, against Laplace | {away:.3f} | {ratios.min():.3f} to {ratios.max():.3f} "
        f"| | {seconds:.0f} |",
        flush=True,
    )
    found = {}
    for name, conducive in (("conducive", True), ("DSGLD", False)):
        with cluster(2) as workers, Client(workers) as client:
            idata, seconds = sampled(
                client, n, conducive=conducive, compute_convergence_checks=False
            )
        found[name] = [list(map(float, part)) for part in errors(idata, (mean, sd))]
        print(line(f"{name}, against one process", idata, (mean, sd), seconds))
        print(line(f"{name}, against Laplace", idata, exact, seconds), flush=True)
    keep("posterior", found)


def lost(n: int) -> None:
    """Kill a worker in the middle, and compare the draws with those of a run without."""
    from distributed import Client

    fewer = {"draws": 600, "tune": 200, "chains": 2, "compute_convergence_checks": False}
    runs = []
    for killed in (False, True):
        with cluster(2) as workers, Client(workers) as client:
            after = 0.6 * runs[0][1] if killed else 1e6
            with Killer(client, after):
                runs.append(sampled(client, n, **fewer))
    (whole, seconds), (disturbed, longer) = runs
    print(f"\n{n:,} rows: {seconds:.0f} s undisturbed, {longer:.0f} s with a worker killed.")
    reloads = int(disturbed["shards"]["reloads"].sum())
    same = np.array_equal(vectors(whole), vectors(disturbed))
    print(f"Shards loaded again: {reloads}; all draws the same, bit for bit: {same}.")


def workers(n: int) -> None:
    """Time the same run on 1, 2 and 4 workers."""
    from distributed import Client

    print(f"\n{n:,} rows, {os.cpu_count()} cores\n")
    print("| workers | set-up and first visits, s | draws/s behind tuning |\n|---:|---:|---:|")
    rates = {}
    for n_workers in (1, 2, 4):
        with cluster(n_workers) as local, Client(local) as client:
            quiet = {"tune": 400, "compute_convergence_checks": False}
            _, short = sampled(client, n, draws=80, **quiet)
            _, long = sampled(client, n, draws=1680, **quiet)
        rates[n_workers] = 4 * 1600 / (long - short)
        print(f"| {n_workers} | {short:.0f} | {rates[n_workers]:.0f} |", flush=True)
    keep("workers", rates)


def travelling(n: int) -> None:
    """Count the bytes that travel for each draw, for more and more rows."""
    from distributed import Client

    print("\n| rows | bytes per draw |\n|---:|---:|")
    found = {}
    with cluster(2) as local, Client(local) as client:
        for rows in (10_000, 100_000, n):
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


def simulate(n: int) -> None:
    """Extrapolate to larger clusters by a simulated network, with times measured here."""
    from pymc_geodesic.distributed.resident import Job, ResidentShard

    few = rows_of(0, 2)
    model = logistic(few["X"], few["y"])
    import cloudpickle

    from pymc_geodesic.distributed.recipe import recipe_for

    job = cloudpickle.dumps(Job(model, recipe_for(STEP, model), expands=True))
    part = rows_of(0, n // N_SHARDS, unlike=False)
    shard = ResidentShard(job, functools.partial(dict, **part), 1.0)
    shard.settle(None, None, 400, 1000)
    point = model.initial_point()
    x = np.zeros(D + 1)
    shard.expand(x, None, curvature=False)
    began = time.process_time()
    for _ in range(3):
        shard.expand(x, None, curvature=False)
    per_row = (time.process_time() - began) / 3 / shard.n_rows
    state, _ = shard.visit(shard.begin(point, 1), 400, 2, ends_tuning=True)
    state, _ = shard.visit(state, 10, 3, ends_tuning=False)
    began = time.process_time()
    following, draws = shard.visit(state, 200, 4, ends_tuning=False)
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


def figure(_: int) -> None:
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


PARTS = {each.__name__: each for each in (posterior, lost, workers, travelling, simulate, figure)}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    PARTS[given.part](given.rows)


if __name__ == "__main__":
    main()
