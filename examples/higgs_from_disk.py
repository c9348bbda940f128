"""A Bayesian support vector machine on ten million rows that stay on disk.

The rows come from `higgs_rows`. Minibatches of 100 are taken from a block of 200,000 that is in
memory while the next one loads, and times include the reading of rows. All samplers start at w = 0,
each with its own order of the blocks:

- *SSGNHT, decaying steps*: long steps first. Gradient noise, whose variance grows with the square
  of the number of rows, then raises the temperature to about 1000; the mean of the draws is a
  useful classifier, the draws are not a sample of the posterior.
- *SSGNHT, control variates*: a short run of that kind, one pass over all rows for the gradient at
  its mean c, and then minibatches that estimate only the difference to it,
  ∇U(c) + N/n Σ [∂u_i(w) − ∂u_i(c)]. The posterior is the same, with another model code: see
  `build_model`. The difference is zero for all rows but those whose kink lies between w and c.
  (*gSGNHT, control variates* is the same with a second-order integrator.)
- *SSGNHT, no control variates*: from the mean of a longer first run, with steps so short that
  gradient noise contributes half of the noise that balances the friction.
- the Gibbs sampler with data augmentation (Polson and Scott, 2011), whose first update needs a pass
  over all rows; a sweep processes the same rows in compiled code with BLAS products.

The stochastic samplers use coordinates in which gradient noise is isotropic, estimated from a
sample of rows; the times include this. Gibbs sampling does not depend on the coordinates.

The figures show the test accuracy of the running mean against wall time, with a band of 0.1
percentage points for the last half of a sweep, and the configurational temperature: the mean
squared Mahalanobis distance from the mode divided by the dimension, which is 1 for posterior draws.
Mode and curvature are computed afterwards by Newton's method on all rows.

Run it with ``python examples/higgs_from_disk.py``; it takes some five minutes.
``PYMC_GEODESIC_DATA`` names the data folder.
"""

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from higgs_passes import COST, PRIOR_SCALE, posterior_mode, read_all, run_gibbs, slope
from higgs_rows import StreamedFrom, accuracy, held_out, read_higgs, write_rows
from higgs_traces import (
    Trace,
    distances,
    flatness,
    plot_accuracy,
    plot_temperature,
    temperature_so_far,
    time_to_stay,
)
from script_parts import parse_options
from threadpoolctl import threadpool_limits

import pymc_geodesic as pg
from pymc_geodesic.datasets import RowBlocks
from pymc_geodesic.schedules import PolynomialDecay

BATCH, N_STEPS, BLOCK = 100, 100, 200_000
FIRST_NOISE_VARIANCE, DECAY_FROM = 50.0, 50
"""Velocity variance added by gradient noise in one of the first steps, and the draw from which step
sizes decay like 1 / t."""
FEW_DRAWS, MANY_DRAWS = 120, 1000
"""Draws before a change of coordinates, which is centered at the mean of their second half."""
WIDTH, FEW_PIECES = 0.2, 4
SHORT = ("SSGNHT, decaying steps", "SSGNHT, control variates")
SLOW: dict[str, tuple[Any, bool, tuple[float, float, float], int]] = {
    SHORT[1]: (pg.SSGNHT, True, (1.2, 0.1, 0.12), FEW_DRAWS),
    "gSGNHT, control variates": (pg.gSGNHT, True, (3.0, 0.4, 0.45), FEW_DRAWS),
    "SSGNHT, no control variates": (pg.SSGNHT, False, (0.05, 0.05, 0.1), MANY_DRAWS),
}
"""Step method, whether with control variates, noise variance and friction Ah of a step with the
stationary value of hξ, and number of draws before.

With control variates step sizes decay slowly, which reduces the remaining noise.
"""
SLOW_DECAY_FROM = 300


def build_model(n_features: int, *, controlled: bool) -> pm.Model:
    """Return the classifier, with one row in place of the data.

    With control variates the term of a row is log ψ minus its tangent at the center, and the sum of
    the tangents of all rows is one potential. The total is the same.
    """
    with pm.Model() as model:
        X = pm.Data("X", np.zeros((1, n_features), "float32"))
        y = pm.Data("y", np.ones(1, "int8"))
        root = pm.Data("root", np.eye(n_features))
        coordinates = pm.Flat("coordinates", shape=n_features)
        weights = pm.Deterministic("weights", root @ coordinates)
        pm.Potential("prior", -0.5 * pt.sum((weights / PRIOR_SCALE) ** 2))
        if not controlled:
            pg.Hinge("label", X @ weights, COST, observed=y)
            return model
        center = pm.Data("center", np.zeros(n_features))
        pm.Potential("tangents", pt.dot(pm.Data("slope", np.zeros(n_features)), weights))

        def rest(value: Any, score: Any, at_center: Any) -> Any:
            tangent = pt.switch(value * at_center < 1.0, value * score, 0.0)
            return COST * (-pt.maximum(0.0, 1.0 - value * score) - tangent)

        pm.CustomDist("label", X @ weights, X @ center, logp=rest, observed=y, dtype="int8")
    return model


def noise_root(blocks: StreamedFrom, w: np.ndarray) -> np.ndarray:
    """Return R such that gradient noise is the same in all directions of R⁻¹w, from a few rows."""
    features, signs = next(iter(blocks))
    X, y = next(features.pieces()).astype(float), next(signs.pieces())
    gradients = np.where(y * (X @ w) < 1.0, y, 0)[:, None] * X
    return np.linalg.cholesky(np.linalg.inv(np.cov(gradients.T)))


def curvature_root(blocks: StreamedFrom, w: np.ndarray) -> np.ndarray:
    """Return R such that the curvature is N in all directions of R⁻¹w, from a few rows.

    With control variates gradient noise is isotropic in these coordinates, too.
    """
    features, signs = next(iter(blocks))
    near, n_rows = np.zeros((0, w.size)), 0
    for X, y, _ in zip(features.pieces(), signs.pieces(), range(FEW_PIECES), strict=False):
        near = np.concatenate([near, X[np.abs(1.0 - y * (X @ w)) < WIDTH]])
        n_rows += len(X)
    curvature = near.T @ near / (2.0 * WIDTH * n_rows)
    return np.linalg.cholesky(np.linalg.inv(curvature))


class Chain:
    """A compiled step method on one of the models.

    Parameters
    ----------
    kind : type
        `SSGNHT` or `gSGNHT`.
    blocks : RowBlocks
    n_features : int
    controlled : bool
        Whether the model has control variates.
    **settings
        Of the step method.
    """

    def __init__(
        self, kind: Any, blocks: RowBlocks, n_features: int, controlled: bool, **settings: Any
    ) -> None:
        self.blocks = StreamedFrom(blocks)
        with build_model(n_features, controlled=controlled) as self.model:
            self.step = kind(
                minibatch=["X", "y"],
                batches=self.blocks,
                batch_size=BATCH,
                n_steps=N_STEPS,
                **settings,
            )
        self.begin(np.zeros(n_features), np.eye(n_features), 0, 0)
        self.draw()  # compiles

    def begin(self, w: np.ndarray, root: np.ndarray, seed: int, first: int, **data: Any) -> None:
        """Start at w, with a block of rows, coordinates and values of other data containers."""
        self.blocks.first, self.root = first, root
        pm.set_data({"root": root, **data}, model=self.model)
        self.point = {"coordinates": np.linalg.solve(root, w)}
        self.step.setup_chain(np.random.default_rng(seed), tune=0, draws=10**9)

    def draw(self) -> tuple[np.ndarray, float]:
        """Return the next weights and the kinetic temperature."""
        self.point, (stats,) = self.step.step(self.point)
        return self.root @ self.point["coordinates"], stats["temperature"]


def step_size_for_noise(variance: float, n_rows: int) -> float:
    """Step size h at which gradient noise N²/n adds h²N²/(2n) = ``variance`` to a velocity."""
    return float(np.sqrt(2.0 * variance * BATCH)) / n_rows


def first_chain(blocks: RowBlocks, d: int) -> Chain:
    """Return a chain with long, decaying steps."""
    h = step_size_for_noise(FIRST_NOISE_VARIANCE, blocks.total_size)
    decay = PolynomialDecay(h, b=DECAY_FROM, gamma=1.0)
    return Chain(pg.SSGNHT, blocks, d, False, step_size=decay, diffusion=0.1 / h)


def slow_chain(
    kind: Any,
    blocks: RowBlocks,
    d: int,
    controlled: bool,
    variance: float,
    friction: float,
    end: float,
) -> Chain:
    """Return a chain with a given noise variance and friction Ah per step.

    The variance is that of the first step without control variates. The thermostat adapts within
    about 1 / end steps.
    """
    h = step_size_for_noise(variance, blocks.total_size)
    settings = {
        "step_size": PolynomialDecay(h, b=SLOW_DECAY_FROM, gamma=0.5) if controlled else h,
        "diffusion" if kind is pg.SSGNHT else "friction": friction / h,
        "thermostat_inertia": 3.0 * (h / end) ** 2,
    }
    return Chain(kind, blocks, d, controlled, **settings)


def run(
    first: Chain, then: Chain | None, few: int, data: RowBlocks, seed: int, seconds: float
) -> Trace:
    """Run one chain, or after a few draws another one from their mean."""
    times, weights, temperatures = [], [], []
    d, block = first.root.shape[0], 7 * seed
    read_all(data)
    begin = time.perf_counter()
    first.begin(np.zeros(d), noise_root(first.blocks, np.zeros(d)), seed, block)
    chain, stage = first, 0
    while not times or times[-1] < seconds:
        if then is not None and len(times) == few:
            center = np.mean(weights[few // 2 :], axis=0)
            block += 1 + few * N_STEPS * BATCH // BLOCK
            if "center" in then.model.named_vars:
                root, tangent = curvature_root(first.blocks, center), slope(data, center)
                start = (
                    center + root @ root.T @ (tangent - center / PRIOR_SCALE**2) / data.total_size
                )
                then.begin(start, root, seed, block, center=center, slope=tangent)
            else:
                then.begin(center, noise_root(first.blocks, center), seed, block)
            chain, stage = then, few
        w, temperature = chain.draw()
        weights.append(w)
        temperatures.append(temperature)
        times.append(time.perf_counter() - begin)
    return Trace(np.array(times), np.array(weights), np.array(temperatures), stage)


def point_estimates(blocks: RowBlocks) -> dict[str, np.ndarray]:
    """Weights of scikit-learn's linear classifiers from the first two blocks."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.svm import LinearSVC

    parts = [block for block, _ in zip(blocks, range(2), strict=False)]
    X, y = (np.concatenate([np.asarray(part[k]) for part in parts]) for k in (0, 1))
    classifiers = {
        "SGDClassifier, hinge": SGDClassifier(
            fit_intercept=False, alpha=1e-7, learning_rate="constant", eta0=1e-4, average=True,
            max_iter=10, tol=None, random_state=1,
        ),
        "LinearSVC, squared hinge": LinearSVC(fit_intercept=False, dual=False),
    }  # fmt: skip
    return {name: each.fit(X, y).coef_[0] for name, each in classifiers.items()}


def largest_memory() -> float:
    """Peak memory of this process in GiB, where the system reports it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    lines = status.read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 2**20


def main() -> None:
    """Run the comparison and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None, help="data folder")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--test-rows", type=int, default=500_000)
    parser.add_argument("--seeds", type=int, default=5, help="runs over one Gibbs sweep")
    parser.add_argument("--long-seeds", type=int, default=3, help="longer runs")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each longer run")
    parser.add_argument("--sweeps", type=int, default=12, help="of the Gibbs sampler")
    parser.add_argument("--folder", type=Path, help="folder that keeps the rows for later runs")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(
        parser, rows=400_000, test_rows=20_000, seeds=1, long_seeds=1, seconds=2.0, sweeps=3
    )
    matplotlib.use("Agg")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    threadpool_limits(1)  # products with this few columns gain nothing by a second thread
    X, y, X_test, y_test = read_higgs(options.data)
    d = X.shape[1]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        blocks = write_rows(folder, X, y, options.rows, BLOCK)
        first = first_chain(blocks, d)
        others = {SHORT[0]: (None, 0)} | {
            name: (slow_chain(kind, blocks, d, controlled, *rates), few)
            for name, (kind, controlled, rates, few) in SLOW.items()
        }
        gibbs = run_gibbs(blocks, options.sweeps, d)
        sweep = gibbs.shortest()
        short = {
            name: [run(first, *others[name], blocks, k, 1.5 * sweep) for k in range(options.seeds)]
            for name in SHORT
        }
        long = {
            name: [run(first, *each, blocks, k, options.seconds) for k in range(options.long_seeds)]
            for name, each in others.items()
        }
        memory = largest_memory()
        estimates = point_estimates(blocks)
        mode, curvature = posterior_mode(blocks, d)

    sets = held_out(X_test, y_test, options.test_rows)
    summary: dict[str, Any] = {
        "rows": options.rows,
        "memory_GiB": memory,
        "seconds of sweeps": np.diff(gibbs.seconds, prepend=0.0).tolist(),
    }
    for part, label in ((0.5, "second half of the draws"), (0.0, "all draws")):
        for name, traces in short.items():
            ranges = [flatness(trace, part, sweep, sets) for trace in traces]
            summary[f"{name}, mean of {label}: range over the last half of a sweep"] = {
                key: [round(each[key], 3) for each in ranges] for key in sets
            }
    classifiers = {"mode": mode, **estimates, "Gibbs, second half": gibbs.means(0.5)[-1]}
    for name, traces in short.items():
        for seed, trace in enumerate(traces):
            stop = np.searchsorted(trace.seconds, sweep, side="right")
            classifiers[f"{name}, seed {seed}, after a sweep"] = trace.means(0.5)[stop - 1]
    for name, traces in long.items():
        classifiers[f"{name}, {options.seconds:g} s"] = traces[0].means(0.5)[-1]
    summary["accuracy"] = {
        name: [round(float(accuracy(w, *rows)[0]), 3) for rows in sets.values()]
        for name, w in classifiers.items()
    }
    noise = np.random.default_rng(3).standard_normal((200, d))
    draws = mode + np.linalg.solve(np.linalg.cholesky(curvature).T, noise.T).T
    summary["sd of the accuracy of draws of the posterior"] = [
        round(float(accuracy(draws, *rows).std()), 4) for rows in sets.values()
    ]
    times = np.geomspace(0.02, options.seconds, 200)
    curves = {}
    for name, traces in {**long, "Gibbs, data augmentation": [gibbs]}.items():
        at = gibbs.seconds if traces[0] is gibbs else times
        curves[name] = at, temperature_so_far(traces, at, mode, curvature)
        last = [
            distances(trace.weights[len(trace.seconds) // 2 :], mode, curvature) for trace in traces
        ]
        summary[name] = {
            "steps per second": N_STEPS * len(traces[0].seconds) / traces[0].seconds[-1],
            "kinetic temperature of the second half": float(
                np.mean([np.mean(each.temperature[len(each.seconds) // 2 :]) for each in traces])
            ),
            "configurational temperature of the second half": [float(np.mean(x)) for x in last],
            "seconds to the last stage": float(traces[0].seconds[traces[0].first]),
            "seconds until the configurational temperature is within 10 %, first and permanently": [
                float(min(at[np.abs(curves[name][1] - 1.0) <= 0.1], default=np.inf)),
                time_to_stay(*curves[name]),
            ],
        }
    options.output.mkdir(exist_ok=True, parents=True)
    plot_accuracy(short, gibbs, sets, mode).savefig(options.output / "higgs_from_disk.png", dpi=120)
    plot_temperature(curves, sweep).savefig(options.output / "higgs_temperature.png", dpi=120)
    text = json.dumps(summary, indent=1)
    (options.output / "higgs_from_disk.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
