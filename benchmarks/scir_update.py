"""Time of one SCIR update of topics, compared with as many gamma variates of NumPy.

Prints, for blocks of 50 topics and 7,702 words, nanoseconds per element and the median ratio within
a round. The update is everything but the gradient: probabilities, counts, Poisson and gamma
variates.
"""

import argparse
import time
from collections.abc import Callable

from benchmarks.timing import measure_alternately, ratio, use_one_core

use_one_core()

import numpy as np
from numba import cfunc

from pymc_geodesic.kernels.counts import SIMPLEX, CountsAt, Prior
from pymc_geodesic.kernels.scir import scir
from pymc_geodesic.runtime.gradient_functions import SIGNATURE, Callback
from pymc_geodesic.runtime.streams import new_stream

TOPICS, WORDS = 50, 7702
EMPTY = np.empty(0)


@cfunc(SIGNATURE)
def no_likelihood(position, minibatch, context, output):
    for i in range(TOPICS * WORDS):
        output[i] = 0.0
    return 0.0


def cases(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Gamma shapes: sparse topics, all small, and all large."""
    size = TOPICS * WORDS
    some = np.where(rng.random(size) < 0.05, rng.gamma(0.3, 300.0, size), 0.0)
    return {
        "sparse topics": 0.01 + some,
        "all shapes 0.01": np.full(size, 0.01),
        "all shapes 0.5": np.full(size, 0.5),
        "all shapes 100": np.full(size, 100.0),
    }


def processor_time(work: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        start = time.process_time()
        work()
        return (time.process_time() - start) / (TOPICS * WORDS)

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    size = TOPICS * WORDS
    blocks = np.array([[SIMPLEX, 0, TOPICS, WORDS]], dtype=np.int64)
    callback = Callback(no_likelihood.address, np.zeros(1, dtype=np.int64))
    one_step, ones = np.zeros(1, dtype=np.int64), np.ones(size)
    nowhere, found = CountsAt(EMPTY, EMPTY, EMPTY), CountsAt(*np.empty((3, size)))
    stream = new_stream(rng)
    print("| gamma shapes | step | NumPy gamma, ns | SCIR update, ns | ratio |")
    print("|---|---|---|---|---|")
    for name, shapes in cases(rng).items():
        state = np.log(np.maximum(rng.gamma(shapes), 1e-300))
        for step_size in (0.01, 0.5):

            def update(shapes=shapes, state=state, step_size=step_size) -> None:
                scir.call(
                    callback, one_step, blocks, state, Prior(shapes, ones), step_size, ones,
                    EMPTY, nowhere, stream, found,
                )  # fmt: skip

            def gammas(shapes=shapes) -> np.ndarray:
                return rng.standard_gamma(shapes)

            times = measure_alternately(
                {"numpy": processor_time(gammas), "scir": processor_time(update)}, arguments.rounds
            )
            print(
                f"| {name} | {step_size} | {1e9 * np.median(times['numpy']):.1f} "
                f"| {1e9 * np.median(times['scir']):.1f} "
                f"| {ratio(times['scir'], times['numpy']):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
