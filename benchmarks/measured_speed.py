"""Times of operations of one package version, relative to a fixed loop, as JSON.

`benchmarks.speed_history` runs it in a separate process, with the version to measure first on the
path. It uses public names only, so that older versions can be measured too; operations that a
version does not have are skipped.

Each operation alternates with the fixed loop, and the result is the median over the rounds of the
ratio of their processor times, which depends little on the machine and its load.
"""

from __future__ import annotations

import os

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from statistics import median, quantiles
from time import process_time

import numba
import numpy as np

N_ROWS, N_COLUMNS, BATCH, N_STEPS = 20_000, 28, 100, 10
TURN = 0.02
"""Approximate seconds per round."""

Work = Callable[[], object]


@numba.njit
def fixed_numbers(x: np.ndarray, w: np.ndarray, n: int) -> float:
    """Do arithmetic similar to a gradient: products with rows, exponentials, normal draws."""
    total = 0.0
    state = np.uint64(88172645463325252)
    for step in range(n):
        for row in range(x.shape[0]):
            score = 0.0
            for j in range(x.shape[1]):
                score += x[row, j] * w[j]
            total += 1.0 / (1.0 + np.exp(-score))
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        w[step % w.size] += 1e-12 * np.float64(state >> np.uint64(40))
    return total


class FixedLoop:
    """Half a millisecond each of compiled arithmetic and of Python code."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._x = rng.normal(size=(BATCH, N_COLUMNS))
        self._w = np.zeros(N_COLUMNS)

    def __call__(self) -> None:
        """Run the loop once."""
        fixed_numbers(self._x, self._w, 150)
        table: dict[str, float] = {}
        for i in range(1500):
            name = f"name {i % 7}"
            table[name] = table.get(name, 0.0) + len(name) * 0.5


def classification() -> dict[str, Work]:
    """Build draws of a support vector machine, and its compiled gradient."""
    import pymc as pm

    import pymc_geodesic as pg

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(N_ROWS, N_COLUMNS))
    labels = np.where(rows[:, 0] + rng.normal(size=N_ROWS) > 0, 1.0, -1.0)
    minibatch = {"batch_size": BATCH, "minibatch": ["X", "y"]}
    settings = {
        "SGGMC": {"step_size": 1e-4, "friction": 100.0, "n_steps": N_STEPS, **minibatch},
        "gSGNHT": {"step_size": 1e-4, "friction": 100.0, "n_steps": N_STEPS, **minibatch},
        "SGLD": {"step_size": 1e-6, **minibatch},
        "SSGLD": {"step_size": 1e-6, **minibatch},
        "SSGNHT": {"step_size": 1e-4, "diffusion": 100.0, **minibatch},
        "SubgradientHMC": {"step_size": 1e-4, "n_steps": N_STEPS},
    }
    works: dict[str, Work] = {}
    with pm.Model() as model:
        X, y = pm.Data("X", rows), pm.Data("y", labels)
        w = pm.Normal("w", shape=N_COLUMNS)
        pg.Hinge("label", X @ w, observed=y)
        for name, arguments in settings.items():
            try:
                works[f"draw of {name}"] = draws(getattr(pg, name)(**arguments), model)
            except (AttributeError, TypeError, ValueError) as error:
                print(f"{name} is skipped: {error}", file=sys.stderr)
    return works


def directions() -> dict[str, Work]:
    """Build draws on a sphere and on a simplex."""
    import pymc as pm

    import pymc_geodesic as pg

    rng = np.random.default_rng(1)
    counts = rng.multinomial(1000, np.full(20, 0.05))
    works: dict[str, Work] = {}

    def add(name: str, make: Callable[[], object], model: pm.Model) -> None:
        try:
            works[f"draw of {name}"] = draws(make(), model)
        except (AttributeError, TypeError, ValueError) as error:
            print(f"{name} is skipped: {error}", file=sys.stderr)

    with pm.Model() as model:
        pg.VonMisesFisher("x", mu=np.eye(10)[0], kappa=20.0)
        add("GMC", lambda: pg.GMC(step_size=0.1, n_steps=N_STEPS), model)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(20))
        pm.Multinomial("n", 1000, p, observed=counts)
        add("SCIR", lambda: pg.SCIR(step_size=0.1), model)
        add("SGRLD", lambda: pg.SGRLD(step_size=1e-4), model)
    return works


def draws(step: object, model: object) -> Work:
    """Return a function that draws once with fixed settings, after set-up."""
    step.setup_chain(np.random.default_rng(1), tune=0, draws=10**6)  # type: ignore[attr-defined]
    point = model.initial_point()  # type: ignore[attr-defined]

    def draw() -> None:
        nonlocal point
        point, _ = step.step(point)  # type: ignore[attr-defined]

    for _ in range(3):
        draw()
    return draw


def long_loop() -> dict[str, Work]:
    """Build draws of many inner steps, dominated by the compiled loop."""
    import pymc as pm

    import pymc_geodesic as pg

    rng = np.random.default_rng(2)
    rows = rng.normal(size=(N_ROWS, N_COLUMNS))
    labels = (rows[:, 0] > 0).astype(float)
    works: dict[str, Work] = {}
    with pm.Model() as model:
        X, y = pm.Data("X", rows), pm.Data("y", labels)
        w = pm.Normal("w", shape=N_COLUMNS)
        pm.Bernoulli("label", logit_p=X @ w, observed=y)
        inner = pg.SGGMC(
            step_size=1e-4,
            friction=100.0,
            n_steps=500,
            batch_size=BATCH,
            minibatch=["X", "y"],
        )
        works["500 inner steps, batch 100"] = draws(inner, model)
        whole = pg.GMC(step_size=1e-4, n_steps=N_STEPS)
        works["10 gradients of all rows"] = draws(whole, model)
    return works


def seconds_of(work: Work, times: int) -> float:
    begin = process_time()
    for _ in range(times):
        work()
    return (process_time() - begin) / times


def ratios(work: Work, fixed: Work, rounds: int) -> list[float]:
    """Ratios of the times of two operations, one per round."""
    n_work, n_fixed = (
        max(1, round(TURN / max(seconds_of(each, 3), 1e-7))) for each in (work, fixed)
    )
    found = []
    for _ in range(rounds):
        before = seconds_of(fixed, n_fixed)
        own = seconds_of(work, n_work)
        after = seconds_of(fixed, n_fixed)
        found.append(own / (0.5 * (before + after)))
    return found


def import_ratios(rounds: int) -> list[float]:
    """Ratio of the times to import a step and to import PyMC."""

    def seconds(statement: str) -> float:
        code = f"import time\n{statement}\nprint(time.process_time())"
        command = [sys.executable, "-W", "ignore", "-c", code]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return [
        seconds("from pymc_geodesic import SGGMC") / seconds("import pymc, numba")
        for _ in range(rounds)
    ]


def main() -> None:
    """Print the ratios of this version."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    fixed = FixedLoop()
    fixed()
    found = {"import of a step, over that of PyMC": import_ratios(max(3, rounds // 3))}
    for build in (long_loop, classification, directions):
        for name, work in build().items():
            found[name] = ratios(work, fixed, rounds)
    figures = {}
    for name, values in found.items():
        quarters = quantiles(values, n=4)
        figures[name] = {
            "ratio": round(median(values), 4),
            "lower": round(quarters[0], 4),
            "upper": round(quarters[2], 4),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
