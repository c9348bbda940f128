"""Diagonal and low-rank metrics on a normal distribution of a thousand coordinates.

    python -m benchmarks.many_coordinates

Scales are 0.1 to 10, and in their units five directions have standard deviations from 10 to 100.
One chain of 1,000 draws after 1,000 of tuning; the effective sample size is that of the worst of
the five, the condition number that of the covariance in the coordinates of the metric.
"""

from __future__ import annotations

import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats

import pymc_geodesic as pg
from pymc_geodesic.gradients.metric import LowRank

N_TUNE, N_DRAWS = 1000, 1000
SIZE, VARIANCES = 1000, np.geomspace(1e2, 1e4, 5)


def main() -> None:
    """Print a table."""
    rng = np.random.default_rng(0)
    directions, _ = np.linalg.qr(rng.normal(size=(SIZE, len(VARIANCES))))
    scales = 10.0 ** rng.uniform(-1, 1, SIZE)
    spiked = np.eye(SIZE) + (directions * (VARIANCES - 1.0)) @ directions.T
    covariance = scales[:, np.newaxis] * spiked * scales
    with pm.Model() as model:
        x = pm.Flat("x", shape=SIZE, initval=np.zeros(SIZE))
        z = x / scales
        along = pt.as_tensor(directions.T) @ z
        pm.Potential("p", -0.5 * (pt.sum(z**2) + pt.sum((1.0 / VARIANCES - 1.0) * along**2)))
    print("| step | metric | condition | ESS | grad/draw | sd ratios | s |")
    print("|---|---|---:|---:|---:|---|---:|")
    for kind in (pg.GMC, pg.SGGMC):
        for metric in ("diag", "auto"):
            step = kind(model=model, metric=metric)
            step.setup_chain(np.random.default_rng(1), N_TUNE, N_DRAWS)
            point = model.initial_point(random_seed=1)
            start, draws, n_grad = time.perf_counter(), [], 0
            for draw in range(N_TUNE + N_DRAWS):
                if draw == N_TUNE:
                    step.stop_tuning()
                point, stats = step.step(point)
                if draw >= N_TUNE:
                    draws.append(point["x"].copy())
                    n_grad += stats[0]["n_grad"]
            seconds = time.perf_counter() - start
            factor = step.adaptation.gradient.metric.factor
            matrix = factor.dense() if isinstance(factor, LowRank) else np.diag(factor)
            inverse = np.linalg.inv(matrix)
            values = np.linalg.eigvalsh(inverse @ covariance @ inverse.T)
            strong = np.array(draws) / scales @ directions
            size = min(
                float(array_stats.ess(strong[np.newaxis, :, j], chain_axis=0, draw_axis=1))
                for j in range(len(VARIANCES))
            )
            ratios = strong.std(axis=0) / np.sqrt(VARIANCES)
            print(
                f"| {kind.__name__} | {metric} | {values.max() / values.min():,.0f} | {size:.0f} "
                f"| {n_grad / N_DRAWS:.1f} | {ratios.min():.2f} to {ratios.max():.2f} "
                f"| {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
