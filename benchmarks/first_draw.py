"""Time from the start of a process to its first draw, beside NUTS on the same model.

    python -m benchmarks.first_draw [--rounds 3]

Cold is with empty compilation caches, as after installation; warm is every later process. The
model is the Bayesian SVM with 10,000 rows, where NUTS needs little time for the draw itself, and
for SGGMC also with a million rows, which are shuffled first.
"""

import argparse
import os
import subprocess
import sys
import tempfile
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


def main() -> list[str]:
    """Measure and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of the warm processes")
    rounds = parser.parse_args().rounds
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
    return lines


if __name__ == "__main__":
    main()
