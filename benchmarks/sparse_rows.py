"""Time of one inner step with a sparse design matrix, compared with a hand-written kernel.

    python -m benchmarks.sparse_rows [--rounds 11]

A linear classifier with 20 classes and the hinge loss of Crammer and Singer on random texts of 130
words, minibatches of 100 texts, gSGNHT. The position has width × 20 coordinates, whose velocities
are updated with noise at every step: the time of this part is proportional to the width for any
sampler of this kind. The gradient of the rows should take the same time at every width.

The hand-written kernel (`sgnht_by_hand`) has an analytic gradient, which it adds to the velocities
without an intermediate array, and reads the same rows.
"""

from benchmarks.timing import measure_alternately, ratio, use_one_core

use_one_core()

import argparse
import logging
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numba import njit
from scipy import sparse

import pymc_geodesic as pg
from benchmarks.models import kernel_of
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.streams import fill_normal, new_stream

WIDTHS = (500, 2_000, 8_000, 61_188)
N_ROWS, WORDS, CLASSES, BATCH, N_STEPS = 11_269, 130, 20, 100, 10
STEP_SIZE, FRICTION = 1e-3, 20.0

logging.getLogger("pymc").setLevel(logging.ERROR)


def texts(width: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows with the same number of words at every width, frequent words first, and labels."""
    rng = np.random.default_rng(1)
    weights = 1.0 / (np.arange(width) + 10.0)
    columns = rng.choice(width, size=(N_ROWS, WORDS), p=weights / weights.sum())
    starts = np.arange(N_ROWS + 1) * WORDS
    values = np.full(N_ROWS * WORDS, WORDS**-0.5)
    rows = sparse.csr_array((values, columns.ravel(), starts), shape=(N_ROWS, width))
    rows.sum_duplicates()
    return rows, rng.integers(CLASSES, size=N_ROWS)


def classifier(rows: sparse.csr_array, labels: np.ndarray) -> pm.Model:
    """Crammer and Singer's loss as a potential of the rows."""
    with pm.Model() as model:
        X, y = pg.SparseData("X", rows), pm.Data("y", labels)
        w = pm.Normal("w", shape=(rows.shape[1], CLASSES))
        scores = X @ w
        is_label = pt.eq(y[:, None], np.arange(CLASSES))
        own = pt.sum(pt.switch(is_label, scores, 0.0), axis=1)
        rival = pt.max(pt.switch(is_label, -np.inf, scores), axis=1)
        pm.Potential("hinge", -pt.maximum(0.0, 1.0 + rival - own))
    return model


@njit(fastmath=True, error_model="numpy", nogil=True)
def scatter_hinge(values, columns, rows, labels, start, batch, scale, w, out):
    """Add scale times the gradient of the rows to ``out``."""
    classes = w.shape[1]
    scores = np.empty(classes)
    for i in range(start, start + batch):
        scores[:] = 0.0
        for k in range(rows[i, 0], rows[i, 1]):
            value, column = values[k], np.uintp(columns[k])
            for c in range(classes):
                scores[c] += value * w[column, c]
        label = labels[i]
        rival = 1 if label == 0 else 0
        for c in range(classes):
            if c != label and scores[c] > scores[rival]:
                rival = c
        if 1.0 + scores[rival] - scores[label] > 0.0:
            for k in range(rows[i, 0], rows[i, 1]):
                value, column = scale * values[k], np.uintp(columns[k])
                out[column, label] += value
                out[column, rival] -= value


@njit(fastmath=True, error_model="numpy", nogil=True)
def sgnht_by_hand(
    rng, vectors, stream, noise, data, starts, n_rows, batch, w, v, xi, step, friction
):
    """SGNHT in two passes over the position per step; ``vectors`` chooses the normal variates."""
    values, columns, rows, labels = data
    flat_w, flat_v = w.reshape(w.size), v.reshape(w.size)
    inertia = (1.0 + 20.0 / w.size) / friction**2
    for i in range(w.size):
        flat_w[i] += 0.5 * step * flat_v[i]
    for start in starts:
        decay = np.exp(-xi[0] * step)
        factor = 0.5 * step * (1.0 + decay)
        scale = np.sqrt(2.0 * friction * step) * (0.5 + 0.5 * decay)
        for first in range(0, w.size, noise.size):
            last = min(first + noise.size, w.size)
            if vectors:
                fill_normal(stream, noise[: last - first])
            else:
                for i in range(last - first):
                    noise[i] = rng.standard_normal()
            for i in range(first, last):
                flat_v[i] = decay * flat_v[i] - factor * flat_w[i] + scale * noise[i - first]
        scatter_hinge(values, columns, rows, labels, start, batch, factor * n_rows / batch, w, v)
        energy = 0.0
        for i in range(w.size):
            energy += flat_v[i] * flat_v[i]
            flat_w[i] += step * flat_v[i]
        xi[0] += step * (energy / w.size - 1.0) / inertia
    for i in range(w.size):
        flat_w[i] -= 0.5 * step * flat_v[i]


@njit(error_model="numpy", nogil=True)
def gradients(field, context, arguments, position, gradient):
    """Evaluate the compiled gradient only."""
    for argument in arguments:
        evaluate(field, position, argument, context, gradient)


def timed_runs(width: int, total: int) -> dict[str, Callable[[], float]]:
    """Return functions that measure microseconds per inner step."""
    rows, labels = texts(width)
    model = classifier(rows, labels)
    with model:
        step = pg.gSGNHT(
            step_size=STEP_SIZE,
            friction=FRICTION,
            n_steps=N_STEPS,
            batch_size=BATCH,
            minibatch=["X", "y"],
            minibatch_order="shuffled",
        )
    step.setup_chain(np.random.default_rng(1), tune=0, draws=1)
    step.step(model.initial_point())
    source, field = step.estimator.source, step.estimator.logp_grad
    whole = source.whole
    data = (whole["X_values"], whole["X_columns"], source.arrays["X_rows"], source.arrays["y"])
    w = step.sampler.position.copy().reshape(width, CLASSES)
    gradient = np.empty(w.size)

    # Times are comparable only if the gradients are equal.
    start = source.next_starts(1)[0]
    evaluate(field.address, step.sampler.position, start, field.context, gradient)
    by_hand = -w
    scatter_hinge(*data, start, BATCH, N_ROWS / BATCH, w, by_hand)
    np.testing.assert_allclose(gradient, by_hand.ravel(), rtol=1e-8, atol=1e-8)

    friction = np.full(1, FRICTION)
    rng = np.random.default_rng(1)
    stream, noise = new_stream(rng), np.empty(512)

    def timed(run: Callable[[], None]) -> Callable[[], float]:
        def measure() -> float:
            begin = process_time()
            for _ in range(total // N_STEPS):
                run()
            return (process_time() - begin) / total * 1e6

        return measure

    def hand(vectors: bool) -> Callable[[], None]:
        position, velocity, xi = w.copy(), rng.normal(size=w.shape), friction.copy()
        return lambda: sgnht_by_hand(
            rng,
            vectors,
            stream,
            noise,
            data,
            source.next_starts(N_STEPS),
            N_ROWS,
            BATCH,
            position,
            velocity,
            xi,
            STEP_SIZE,
            FRICTION,
        )

    run = kernel_of(step)

    def ours() -> None:
        run(step.estimator.next_minibatches(N_STEPS))

    def gradient_alone() -> None:
        arguments = step.estimator.next_minibatches(N_STEPS)
        gradients(field.address, field.context, arguments, step.sampler.position, gradient)

    added = np.zeros((width, CLASSES))

    def rows_alone() -> None:
        for start in source.next_starts(N_STEPS):
            scatter_hinge(*data, start, BATCH, 1.0, w, added)

    return {
        "ours": timed(ours),
        "our gradient": timed(gradient_alone),
        "hand": timed(hand(False)),
        "hand, our normal variates": timed(hand(True)),
        "rows by hand": timed(rows_alone),
    }


def main() -> list[str]:
    """Measure and return the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    arguments = parser.parse_args()
    names = ("ours", "our gradient", "rows by hand", "hand", "hand, our normal variates")
    lines = [
        "| width | "
        + " | ".join(f"{name}, µs" for name in names)
        + " | ours / hand | ours / hand, "
        "our normal variates |",
        "|---|" + "---:|" * (len(names) + 2),
    ]
    for width in arguments.widths:
        total = max(20, min(2_000, 20_000_000 // (width * CLASSES)) // N_STEPS * N_STEPS)
        times = measure_alternately(timed_runs(width, total), arguments.rounds)
        cells = [f"{median(times[name]):,.0f}" for name in names]
        cells += [f"{ratio(times['ours'], times[name]):.2f}" for name in names[3:]]
        lines.append(f"| {width:,} | " + " | ".join(cells) + " |")
    print("\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    main()
