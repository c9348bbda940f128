"""Equality of the draws of a seed between processes, with cold and with warm compilation caches.

``python -m benchmarks.reproducibility`` samples a logistic regression three times with the same
seed, each time in a new process: with empty compilation caches (*cold*), and twice with those that
the first process has written (*warm*). It does so for PyMC's own NUTS and for two samplers of this
package, and prints whether the draws are equal bit by bit, the first draw that differs, and the
largest relative difference there and over all draws.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_geodesic as pg

SAMPLERS = ("NUTS of PyMC", "GMC", "SGGMC")
RUNS = ("cold", "warm", "warm, again")


def sample(name: str, draws: int = 500) -> np.ndarray:
    """Draws of the coefficients of a logistic regression, shape (draws, 5)."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2_000, 5))
    y = (rng.random(2_000) < 1.0 / (1.0 + np.exp(-x @ np.linspace(-1.0, 1.0, 5)))).astype(int)
    with pm.Model():
        beta = pm.Normal("beta", 0.0, 1.0, shape=5)
        scale = pm.HalfNormal("scale", 1.0)
        pm.Bernoulli("y", logit_p=scale * (x @ beta), observed=y)
        step = {
            "NUTS of PyMC": lambda: pm.NUTS(),
            "GMC": lambda: pg.GMC(),
            "SGGMC": lambda: pg.SGGMC(batch_size=100),
        }[name]()
        idata = pm.sample(
            draws, tune=500, step=step, chains=1, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    return idata.posterior["beta"].values[0]


def sample_in_process(name: str, caches: Path) -> np.ndarray:
    """Sample in a new process with compilation caches in this folder."""
    flags = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={caches / 'pytensor'}"]
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(caches / "numba"),
        "PYTENSOR_FLAGS": ",".join(flag for flag in flags if flag),
    }
    output = caches / "draws.npy"
    subprocess.run(
        [sys.executable, "-m", "benchmarks.reproducibility", name, str(output)],
        check=True, env=environment, capture_output=True,
    )  # fmt: skip
    return np.load(output)


def compare(first: np.ndarray, second: np.ndarray) -> str:
    """Cells of the table: equality, first draw that differs, and differences."""
    difference = np.abs(first / second - 1.0).max(axis=1)
    different = np.flatnonzero((first != second).any(axis=1))
    if not different.size:
        return "yes | – | – | –"
    at = different[0]
    return f"no | {at} | {difference[at]:.0e} | {difference.max():.0e}"


def main() -> None:
    """Print the table, or make the run of the command line."""
    if len(sys.argv) > 1:
        np.save(sys.argv[2], sample(sys.argv[1]))
        return
    print("| | compared with the first warm run | equal | first draw that differs | by | at most |")
    print("|---|---|---|---:|---:|---:|")
    for name in SAMPLERS:
        with tempfile.TemporaryDirectory() as folder:
            runs = {run: sample_in_process(name, Path(folder)) for run in RUNS}
        for run in ("cold", "warm, again"):
            print(f"| {name} | {run} | {compare(runs[run], runs['warm'])} |", flush=True)


if __name__ == "__main__":
    main()
