"""A million rows: default settings compared with plain samplers, NUTS, HMCECS and Laplace.

``python -m benchmarks.many_rows --problems logistic --rows 1000000`` prints a line of JSON for each
problem. All times are processor times of one thread. The results are:

- *ours*: one chain of a step method with default settings and minibatches; effective draws of the
  worst coordinate per second after tuning, and the time to 1,000 of them, including construction,
  compilation and tuning. Errors are those against the Laplace approximation
  corrected by importance sampling, in its standard deviations.
- *plain*: the same without adapted coordinates and control variates, as in the papers.
- *nuts*: PyMC's NUTS with a dense mass matrix, **extrapolated**: leapfrog steps per effective draw
  and in tuning come from a run on fewer rows of the same kind, the time of a gradient is measured
  on all rows.
- *hmcecs*: NumPyro's, on whitened rows, in the environment whose interpreter is given by
  ``--numpyro``; skipped with the reason if there is none.
- *laplace*: mode and Hessian; mean and sd by importance sampling.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.glm_rows import Rows, family_of, importance, laplace, make_rows, model_of
from benchmarks.timed_chain import WANTED, timed_chain

PROBLEMS = ("logistic", "poisson", "student", "hinge", "higgs")
STEPS: dict[str, Any] = {"gSGNHT": pg.gSGNHT, "SGGMC": pg.SGGMC}
BATCH_SIZE, TUNE, DRAWS = 100, 1000, 4000
FEWER_ROWS, FEWER_DRAWS = 2000, 500
IMPORTANCE_PAIRS = 100


def run_ours(
    model: pm.Model, make: Any, *, draws: int, tune: int, **given: Any
) -> tuple[dict[str, Any], np.ndarray]:
    """Construct a step and sample one chain; see `timed_chain`."""
    began = time.process_time()
    with model:
        step = make(batch_size=BATCH_SIZE, minibatch=["X", "y"], **given)
        return timed_chain(step, "b", draws=draws, tune=tune, began=began)


def nuts_extrapolated(problem: str, rows: Rows, model: pm.Model, folder: str | None) -> dict:
    """NUTS with a dense mass matrix on fewer rows, and the time of its gradient on all rows."""
    few = make_rows(problem, FEWER_ROWS, folder=folder)
    with model_of(problem, few):
        idata = pm.sample(
            draws=FEWER_DRAWS,
            tune=1000,
            chains=1,
            cores=1,
            init="adapt_full",  # jitter in the units of the model makes rates overflow
            initvals={"b": np.zeros(rows.X.shape[1])},
            nuts_sampler="pymc",
            random_seed=1,
            progressbar=False,
            discard_tuned_samples=False,
            compute_convergence_checks=False,
        )
    b = idata.posterior["b"].values
    if not b.std(axis=1).all():
        return {"failed": "NUTS did not move"}
    size = min(float(az.ess(b[..., i])) for i in range(b.shape[2]))
    leapfrogs = float(idata.sample_stats["n_steps"].values.sum()) / size
    tuning = float(idata.warmup_sample_stats["n_steps"].values.sum())
    began = time.process_time()
    with model:
        function = model.logp_dlogp_function(ravel_inputs=True)
        function.set_extra_values({})
        output = np.zeros(rows.X.shape[1])
        function(output)
        compiled = time.process_time() - began
        times = []
        for _ in range(3):
            began = time.process_time()
            function(output)
            times.append(time.process_time() - began)
    gradient = float(np.median(times))
    per_second = 1.0 / (leapfrogs * gradient)
    return {
        "rows_of_run": FEWER_ROWS,
        "leapfrogs_per_effective_draw": leapfrogs,
        "leapfrogs_in_tuning": tuning,
        "gradient_s": gradient,
        "compilation_s": compiled,
        "ess_per_s": per_second,
        "time_to_1000_s": compiled + tuning * gradient + WANTED / per_second,
    }


def hmcecs(interpreter: str | None, rows: Rows, mode: np.ndarray, precision: np.ndarray) -> dict:
    """NumPyro's HMCECS on whitened rows, in another environment."""
    if interpreter is None:
        return {"skipped": "no --numpyro interpreter was given"}
    if not Path(interpreter).exists():
        return {"skipped": f"there is no {interpreter}"}
    root = np.linalg.cholesky(np.linalg.inv(precision))
    scale = np.sqrt(len(rows.y))
    script = Path(__file__).parent / "peers" / "hmcecs.py"
    environment = os.environ | {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "PYTHONPATH": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        whitened = rows.X.astype(float) @ (root * scale)
        np.savez(path, X=whitened, y=rows.y, mode=np.linalg.solve(root, mode) / scale)
        run = subprocess.run(
            [interpreter, str(script), str(path), "1000", "200", "500"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        return {"skipped": run.stderr.strip().splitlines()[-1]}
    found = json.loads(run.stdout.splitlines()[-1])
    return {k: found[k] for k in ("ess", "warmup_s", "draws_s", "ess_per_s")}


def measure(problem: str, n_rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return all results of one problem."""
    rows = make_rows(problem, n_rows, dtype=options.dtype, folder=options.data)
    model = model_of(problem, rows)
    result: dict[str, Any] = {"problem": problem, "rows": n_rows, "dtype": options.dtype}
    mode = precision = mean = sd = None
    if family_of(problem).curve is not None:
        began = time.process_time()
        mode, precision = laplace(problem, rows)
        result["laplace"] = {"s": time.process_time() - began}
        sd = np.sqrt(np.diag(np.linalg.inv(precision)))
        off, sd_ratio, efficiency = importance(problem, rows, mode, precision, IMPORTANCE_PAIRS)
        result["laplace"] |= {
            "worst_mean_error": float(np.abs(off).max()),
            "worst_sd_ratio": float(sd_ratio[np.argmax(np.abs(np.log(sd_ratio)))]),
            "efficiency_of_importance": efficiency,
        }
        mean, sd = mode + off * sd, sd_ratio * sd
    for name in options.steps:
        found, values = run_ours(model, STEPS[name], draws=options.draws, tune=options.tune)
        if mean is not None and sd is not None:
            ratio = values.std(axis=0) / sd
            found["worst_mean_error"] = float(np.max(np.abs(values.mean(axis=0) - mean) / sd))
            found["worst_sd_ratio"] = float(ratio[np.argmax(np.abs(np.log(ratio)))])
        result[name] = found
    if options.plain:
        result["plain"], _ = run_ours(
            model,
            pg.SGGMC,
            draws=options.draws,
            tune=options.tune,
            metric=None,
            control_variates=False,
        )
    if not options.no_nuts:
        result["nuts"] = nuts_extrapolated(problem, rows, model, options.data)
    if mode is not None and precision is not None and problem in ("logistic", "higgs"):
        result["hmcecs"] = hmcecs(options.numpyro, rows, mode, precision)
    best = max((result[name] for name in options.steps), key=lambda one: one["ess_per_s"])
    result["ratios"] = {
        f"ess_per_s over {other}": best["ess_per_s"] / result[other]["ess_per_s"]
        for other in ("plain", "nuts", "hmcecs")
        if "ess_per_s" in result.get(other, {})
    }
    if "time_to_1000_s" in result.get("nuts", {}):
        fastest = min(result[name]["time_to_1000_s"] for name in options.steps)
        result["ratios"]["time to 1,000 of NUTS over ours"] = (
            result["nuts"]["time_to_1000_s"] / fastest
        )
    return result


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--tune", type=int, default=TUNE)
    parser.add_argument("--plain", action="store_true", help="also run the plain samplers")
    parser.add_argument("--no-nuts", action="store_true")
    parser.add_argument("--numpyro", help="interpreter of an environment with NumPyro")
    parser.add_argument("--data", help="folder of higgs_small.npz (or PYMC_GEODESIC_DATA)")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for problem in options.problems:
        for n_rows in options.rows:
            print(json.dumps(measure(problem, n_rows, options)), flush=True)


if __name__ == "__main__":
    main()
