"""Command-line interface: ``warm`` fills the compilation caches, ``status PATH`` describes a run.

The first run of a model compiles for some 10 s of processor time, or a minute with local variables,
and later runs read most of that from disk. ``python -m pymc_geodesic warm`` compiles ahead of time,
for example when a container image is built: the kernels of all step methods, and some common
families of models.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

SETTINGS: dict[str, Any] = {
    "draws": 2,
    "tune": 60,
    "chains": 1,
    "cores": 1,
    "random_seed": 1,
    "progressbar": False,
    "compute_convergence_checks": False,
}


def regression() -> None:
    """Sample coefficients with a normal prior, rows in minibatches, by each of the step methods."""
    import pymc as pm

    import pymc_geodesic as pg

    rng = np.random.default_rng(1)
    x_rows = rng.normal(size=(500, 3))
    methods: list[Callable[[], Any]] = [
        lambda: pg.SGGMC(batch_size=10, minibatch=["x", "y"]),
        lambda: pg.gSGNHT(batch_size=10, minibatch=["x", "y"]),
        lambda: pg.SSGNHT(batch_size=10, minibatch=["x", "y"]),
        pg.GMC,
    ]
    for method in methods:
        with pm.Model():
            x = pm.Data("x", x_rows)
            y = pm.Data("y", x_rows.sum(axis=1))
            w = pm.Normal("w", shape=3)
            pm.Normal("seen", x @ w, 1.0, observed=y)
            pm.sample(step=method(), **SETTINGS)


def sphere() -> None:
    """Sample a unit vector, rows in minibatches."""
    import pymc as pm

    import pymc_geodesic as pg

    points, _ = pg.datasets.make_vmf_mixture(np.array([[0.6, 0.0, 0.8]]), 20.0, 500, random_seed=1)
    with pm.Model():
        x = pm.Data("x", points)
        mu = pg.UniformSphere("mu", shape=3)
        pg.VonMisesFisher("seen", mu=mu, kappa=20.0, observed=x)
        pm.sample(step=pg.SGGMC(batch_size=50, minibatch=["x"]), **SETTINGS)


def support_vectors() -> None:
    """Sample a linear classifier with a hinge loss."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_geodesic as pg

    x_rows = np.random.default_rng(1).normal(size=(500, 3))
    with pm.Model():
        x, y = pm.Data("x", x_rows), pm.Data("y", np.sign(x_rows[:, 0]))
        w = pm.Normal("w", shape=3)
        pm.Potential("hinge", -pt.maximum(0, 1 - y * (x @ w)))
        pm.sample(step=pg.SGGMC(batch_size=50, minibatch=["x", "y"]), **SETTINGS)


def topics() -> None:
    """Sample spherical topics with local proportions."""
    import pymc as pm

    import pymc_geodesic as pg

    rows = pg.datasets.make_vmf_mixture(np.eye(8)[:2], 20.0, 60, random_seed=1)[0]
    with pg.topics.spherical_admixture(rows, 2, alpha=1.0, kappa=20.0, sigma=5.0, kappa0=5.0):
        step = pg.SGGMC(
            minibatch=["V"], local=["theta"], batch_size=20, local_tune=2, local_draws=2
        )
        pm.sample(step=step, **SETTINGS)


FAMILIES: dict[str, Callable[[], None]] = {
    "regression": regression,
    "sphere": sphere,
    "support_vectors": support_vectors,
    "topics": topics,
}


def run_in_subprocess(name: str) -> tuple[str, int, float]:
    """Run one family in a subprocess; return its name, exit status and seconds."""
    begin = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "pymc_geodesic", "warm", "--only", name]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    status = subprocess.run(command, env=environment, check=False).returncode
    return name, status, time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m pymc_geodesic", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    warm = commands.add_parser("warm", help="fill the compilation caches")
    warm.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    warm.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    warm.add_argument("--only", choices=list(FAMILIES), help=argparse.SUPPRESS)
    status_parser = commands.add_parser("status", help="print the draws of each chain of a run")
    status_parser.add_argument("path", help="folder that CheckpointTrace writes to")
    options = parser.parse_args(arguments)
    if options.command == "status":
        from pymc_geodesic.runs import reading

        try:
            print(reading.status(options.path))
        except (FileNotFoundError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    if options.only is not None:
        logging.disable(logging.WARNING)  # the draws are discarded
        FAMILIES[options.only]()
        return 0
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(
            f"unknown family {', '.join(sorted(unknown))}; choose from {', '.join(FAMILIES)}"
        )
    failed = 0
    with ThreadPoolExecutor(max(options.jobs, 1)) as workers:
        for name, status, seconds in workers.map(run_in_subprocess, options.families or FAMILIES):
            failed += status != 0
            print(f"{name}: {'failed' if status else 'compiled'} in {seconds:.0f} s", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
