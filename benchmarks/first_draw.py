"""Time from the start of a process to its first draw, compared with NUTS.

    python -m benchmarks.first_draw [--rounds 3]

*Cold* runs have empty compilation caches, as after installation; *warm* runs are later processes.
The model is the Bayesian SVM with 10,000 rows, where NUTS needs little time for the draw itself,
and for SGGMC also with a million rows, which are shuffled first.

A second table has the processor time of process trees up to the first draws, with empty caches and
two chains in two processes: the quick start of the README, a support vector machine, and the topic
model of ``make demo``, with and without reading its documents from installed packages.

    python -m benchmarks.first_draw --only-cold [--cases vmf svm topics]
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from statistics import median

CHILD = """
import logging, sys, time
import numpy as np
import pymc as pm
import pytensor.tensor as pt

sampler, n_rows = sys.argv[1], int(sys.argv[2])
before = time.process_time()
rng = np.random.default_rng(1)
X_rows = rng.normal(size=(n_rows, 28))
y_rows = np.sign(X_rows @ rng.normal(size=28))
spent_on_data = time.process_time() - before

logging.getLogger("pymc").setLevel(logging.ERROR)

def report(trace, draw):
    if draw.draw_idx == 0:
        print(time.process_time() - spent_on_data, flush=True)

settings = {"draws": 2, "tune": 0, "chains": 1, "cores": 1, "progressbar": False,
            "compute_convergence_checks": False, "random_seed": 1, "callback": report}
with pm.Model():
    X = pm.Data("X", X_rows)
    y = pm.Data("y", y_rows)
    w = pm.Normal("w", 0, 1, shape=28)
    pm.Potential("hinge", -pt.maximum(0, 1 - y * (X @ w)))
    if sampler == "NUTS":
        pm.sample(nuts_sampler="pymc", **settings)
    else:
        from pymc_geodesic import SGGMC
        step = SGGMC(batch_size=100, minibatch=["X", "y"])
        pm.sample(step=step, **settings)
"""

COLD = """
import sys
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pymc_geodesic as pg

settings = {"draws": 1, "tune": 1, "chains": 2, "cores": 2, "progressbar": False,
            "compute_convergence_checks": False, "random_seed": 1}
case = sys.argv[1]
if case in ("documents", "topics"):
    corpus = pg.datasets.docstring_corpus()
    n = corpus.train.shape[1]
if case == "topics":
    with pg.topics.spherical_admixture(
        corpus.train, 6, alpha=1.0, kappa=1.0 * n, sigma=n / 3, kappa0=n / 3
    ):
        step = pg.SGGMC(
            minibatch=["V"], local=["theta"], batch_size=50, local_tune=5, local_draws=5
        )
        pm.sample(step=step, var_names=["beta"], **settings)
if case == "vmf":
    rows, _ = pg.datasets.make_vmf_mixture([[0.6, 0.0, 0.8]], 20.0, 5_000, random_seed=1)
    with pm.Model():
        x = pm.Data("x", rows)
        mu = pg.UniformSphere("mu", shape=3)
        pg.VonMisesFisher("y", mu=mu, kappa=20.0, observed=x)
        pm.sample(step=pg.SGGMC(batch_size=100, minibatch=["x"]), **settings)
if case == "svm":
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(10_000, 28))
    with pm.Model():
        X, y = pm.Data("X", rows), pm.Data("y", np.sign(rows @ rng.normal(size=28)))
        w = pm.Normal("w", 0, 1, shape=28)
        pm.Potential("hinge", -pt.maximum(0, 1 - y * (X @ w)))
        pm.sample(step=pg.SGGMC(batch_size=100, minibatch=["X", "y"]), **settings)
"""
COLD_CASES = ("vmf", "svm", "topics", "documents")

CASES = [("SGGMC", 10_000), ("NUTS", 10_000), ("SGGMC", 1_000_000)]


def seconds_to_first_draw(sampler: str, n_rows: int, caches: str) -> float:
    settings = {
        "PYTENSOR_FLAGS": f"base_compiledir={caches}/pytensor",
        "NUMBA_CACHE_DIR": f"{caches}/numba",
        "OPENBLAS_NUM_THREADS": "1",
    }
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, sampler, str(n_rows)],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(child.stdout)


def processor_seconds(case: str) -> float:
    """User and system time of a process and its children, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "HOME": folder,
            "XDG_CACHE_HOME": f"{folder}/cache",
            "NUMBA_CACHE_DIR": f"{folder}/numba",
            "PYTENSOR_FLAGS": f"base_compiledir={folder}/pytensor",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", COLD, case],
            env=os.environ | settings,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold_table(cases: Sequence[str]) -> list[str]:
    """Return the table of processor times; print each row when it is measured."""
    lines = ["| caches empty, two chains | processor time, s |", "|---|---:|"]
    print("\n".join(lines), flush=True)
    for case in cases:
        lines.append(f"| {case} | {processor_seconds(case):.1f} |")
        print(lines[-1], flush=True)
    return lines


def main() -> list[str]:
    """Measure and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of the warm processes")
    parser.add_argument("--only-cold", action="store_true", help="the second table alone")
    parser.add_argument("--cases", nargs="+", choices=COLD_CASES, default=COLD_CASES)
    options = parser.parse_args()
    if options.only_cold:
        return cold_table(options.cases)
    rounds = options.rounds
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = {}, {}
        for case in CASES:
            cold[case] = seconds_to_first_draw(*case, f"{folder}/{case}")
        for case in CASES * rounds:
            warm.setdefault(case, []).append(seconds_to_first_draw(*case, f"{folder}/{case}"))
    lines = [
        "| sampler, rows | cold, s | warm, s | warm ÷ NUTS |",
        "|---|---:|---:|---:|",
    ]
    base = median(warm["NUTS", 10_000])
    for sampler, n_rows in CASES:
        seconds = median(warm[sampler, n_rows])
        comparison = f"{seconds / base:.2f}" if n_rows == 10_000 else ""
        first = cold[sampler, n_rows]
        lines.append(f"| {sampler}, {n_rows:,} | {first:.1f} | {seconds:.2f} | {comparison} |")
    print("\n".join(lines), flush=True)
    return [*lines, "", *cold_table(options.cases)]


if __name__ == "__main__":
    main()
