"""Control variates of first, second and automatically chosen order.

    python -m benchmarks.control_variates [--rows 100000] [--draws 2000]

One chain each, 600 tuning draws, twelve coefficients with scales of 0.1 to 10. Errors are those of
the worst coefficient against `GMC` on all rows with twice as many draws; noise is that of the worst
direction, in posterior standard deviations.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats

import pymc_geodesic as pg

N_TUNE, WIDTH = 600, 12
BATCH_SIZES, ORDERS = (10, 100), (1, 2, "auto")


def regression(kind: str, n_rows: int) -> pm.Model:
    """Regression; with errors of four degrees of freedom its covariates have three."""
    rng = np.random.default_rng(1)
    scale = 10.0 ** rng.uniform(-1, 1, WIDTH)
    heavy = kind == "Student-t"
    x = rng.standard_t(3, size=(n_rows, WIDTH)) if heavy else rng.normal(size=(n_rows, WIDTH))
    x = x @ (np.eye(WIDTH) + 0.3 * rng.normal(size=(WIDTH, WIDTH))) * scale
    mean = x @ (0.15 * rng.normal(size=WIDTH) / scale)
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, 1.0 / scale, shape=WIDTH)
        if kind == "logistic":
            y = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-mean))).astype(int)
            pm.Bernoulli("y", logit_p=rows @ b, observed=pm.Data("t", y))
        elif kind == "Poisson":
            y = rng.poisson(np.exp(np.clip(mean, -4.0, 3.0)))
            pm.Poisson("y", pt.exp(rows @ b), observed=pm.Data("t", y))
        else:
            y = mean + rng.standard_t(4, size=n_rows)
            sigma = pm.HalfNormal("sigma")
            pm.StudentT("y", nu=4, mu=rows @ b, sigma=sigma, observed=pm.Data("t", y))
    return model


def sampled(model: pm.Model, step: Any, n_draws: int) -> tuple[np.ndarray, float]:
    """Draws after tuning, and the seconds that they took."""
    step.setup_chain(np.random.default_rng(1), N_TUNE, n_draws)
    point = model.initial_point(random_seed=1)
    for _ in range(N_TUNE):
        point, _ = step.step(point)
    step.stop_tuning()
    draws = []
    start = time.perf_counter()
    for _ in range(n_draws):
        point, _ = step.step(point)
        draws.append(np.concatenate([np.ravel(point[v.name]) for v in model.value_vars]))
    return np.array(draws), time.perf_counter() - start


def effective(draws: np.ndarray) -> float:
    """Effective sample size of the worst coordinate."""
    return min(
        float(array_stats.ess(draws[np.newaxis, :, j], chain_axis=0, draw_axis=1))
        for j in range(draws.shape[1])
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--draws", type=int, default=2000)
    arguments = parser.parse_args()
    print("| model | rows | order | noise | steps | ESS/draw | ESS/s | mean, sd | sd ratio |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for kind in ("logistic", "Poisson", "Student-t"):
        model = regression(kind, arguments.rows)
        with model:
            exact, _ = sampled(model, pg.GMC(), 2 * arguments.draws)
        for batch_size in BATCH_SIZES:
            for order in ORDERS:
                with model:
                    step = pg.SGGMC(
                        minibatch=["x", "t"], batch_size=batch_size, control_variates=order
                    )
                draws, seconds = sampled(model, step, arguments.draws)
                parameters, size = step.adaptation.parameters, effective(draws)
                chosen = f"auto: {step.adaptation.gradient.order}" if order == "auto" else order
                shift = np.abs(draws.mean(axis=0) - exact.mean(axis=0)) / exact.std(axis=0)
                ratios = draws.std(axis=0) / exact.std(axis=0)
                worst = ratios[np.argmax(np.abs(np.log(ratios)))]
                print(
                    f"| {kind} | {batch_size} | {chosen} | {parameters.noise.max():.2g} "
                    f"| {parameters.n_steps} | {size / len(draws):.2f} | {size / seconds:,.0f} "
                    f"| {shift.max():.2f} | {worst:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
