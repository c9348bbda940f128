"""Time of an SCIR update with 50 documents, compared with a Gibbs sweep of tomotopy.

Prints milliseconds of processor time per minibatch and its parts, and microseconds per document,
with those of a collapsed Gibbs sweep of tomotopy with one thread. 50 topics, 7,702 words; documents
of Wikipedia if they are in the data folder, otherwise simulated from a Zipf distribution.
"""

import argparse
import time
from collections.abc import Callable

from benchmarks.timing import measure_alternately, use_one_core

use_one_core()

import numpy as np
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.datasets import load_wikipedia
from pymc_geodesic.kernels.topic_updates import add_counts, scir_words
from pymc_geodesic.runtime.streams import new_stream

TOPICS, WORDS, BATCH = 50, 7702, 50
ALPHA, BETA = 0.1, 0.01


def documents(data: str | None, n: int) -> sparse.csr_matrix:
    """Load or simulate counts of words of documents."""
    try:
        return load_wikipedia(data).train[:n]
    except FileNotFoundError:
        rng = np.random.default_rng(1)
        lengths = rng.geometric(1 / 145, size=n)
        share = 1.0 / np.arange(10, WORDS + 10)
        words = rng.choice(WORDS, size=lengths.sum(), p=share / share.sum())
        rows = np.repeat(np.arange(n), lengths)
        return sparse.csr_matrix((np.ones(len(words)), (rows, words)), shape=(n, WORDS))


def tomotopy_sweep(counts: sparse.csr_matrix) -> Callable[[], float] | None:
    """Time of one sweep per document, after some sweeps to warm up."""
    try:
        import tomotopy
    except ImportError:
        return None
    model = tomotopy.LDAModel(k=TOPICS, alpha=ALPHA, eta=BETA, seed=1)
    model.optim_interval = 0
    for row in range(counts.shape[0]):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        words = np.repeat(counts.indices[part], counts.data[part].astype(int))
        model.add_doc([str(word) for word in words])
    model.train(20, workers=1)

    def run() -> float:
        began = time.process_time()
        model.train(5, workers=1)
        return (time.process_time() - began) / (5 * counts.shape[0])

    return run


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None, help="folder of the data set")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    counts = documents(arguments.data, arguments.documents)
    blocks = [counts[i : i + BATCH] for i in range(0, counts.shape[0] - BATCH + 1, BATCH)]
    model = pg.topics.lda(blocks[0], TOPICS, ALPHA, BETA)
    sweeps = {"1 + 1": (1, 1), "5 + 5": (5, 5)}
    runs: dict[str, Callable[[], float]] = {}
    n_steps = 20
    for label, (discarded, kept) in sweeps.items():
        step = pg.SCIR(
            local=["theta"], minibatch=["counts"], batches=blocks, total_size=50_000,
            step_size=pg.PolynomialDecay(0.3, 10, 0.6), n_steps=n_steps, local_tune=discarded,
            local_draws=kept, model=model,
        )  # fmt: skip
        step.setup_chain(np.random.default_rng(1), 0, 10**6)
        state = {"point": model.initial_point(random_seed=1)}
        for _ in range(3):
            state["point"], _ = step.step(state["point"])

        def whole(step=step, state=state) -> float:
            began = time.process_time()
            state["point"], _ = step.step(state["point"])
            return (time.process_time() - began) / n_steps

        def gibbs(step=step) -> float:
            log_state = np.ascontiguousarray(step.sampler.position.reshape(TOPICS, WORDS).T)
            log_totals = np.log(np.exp(log_state).sum(axis=0))
            arguments = step.estimator.next_minibatches(n_steps)
            began = time.process_time()
            for argument in arguments:
                step.estimator.assign(log_state, log_totals, argument, step.sampler.stream)
            return (time.process_time() - began) / n_steps

        runs[f"minibatch, sweeps {label}"] = whole
        runs[f"Gibbs sampling in it, sweeps {label}"] = gibbs
    log_state = np.ascontiguousarray(step.sampler.position.reshape(TOPICS, WORDS).T)
    argument = step.estimator.next_minibatches(1)[0]
    found = step.estimator.assign(
        log_state, np.log(np.exp(log_state).sum(axis=0)), argument, step.sampler.stream
    )
    prior, shape = np.full_like(log_state, BETA), np.empty_like(log_state)
    stream = new_stream(np.random.default_rng(1))

    def move() -> float:
        began = time.process_time()
        add_counts(prior, found.slots, found.parts, found.scale, shape)
        scir_words(log_state, shape, 0.01, stream)
        return time.process_time() - began

    runs["update of topics in it"] = move
    sweep = tomotopy_sweep(counts)
    if sweep is not None:
        runs["tomotopy, one sweep"] = lambda: BATCH * sweep()
    times = measure_alternately(runs, arguments.rounds)
    words = counts.sum() / counts.shape[0]
    print(f"{words:.0f} words per document")
    print("| | ms per 50 documents | µs per document |")
    print("|---|---:|---:|")
    for name, seconds in times.items():
        middle = float(np.median(seconds))
        print(f"| {name} | {1e3 * middle:.2f} | {1e6 * middle / BATCH:.1f} |")


if __name__ == "__main__":
    main()
