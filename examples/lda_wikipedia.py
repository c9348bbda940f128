"""Online latent Dirichlet allocation on Wikipedia: SCIR, SGRLD and four other programs.

Section 4.1 of Baker, Fearnhead, Fox, Nemeth (2018): K = 50 topics over 7,702 words, 50 new
documents per iteration, perplexity of the held-out words of 1,000 other documents. The step sizes
of SCIR and SGRLD come from a grid search on the first 10,000 documents.

Documents that fit in memory can be visited repeatedly: "SCIR, revisited" has all documents in the
model, whose proportions persist, and minibatches of 1,000, so that two sweeps over a document
suffice. Its step sizes come from a grid search of twenty passes.

They are compared with online variational Bayes of scikit-learn and gensim and the collapsed Gibbs
sampler of tomotopy, where these are installed. All may use two cores, and all topics are evaluated
by the same `perplexity`.

    python examples/lda_wikipedia.py --data FOLDER                       # everything
    python examples/lda_wikipedia.py --data FOLDER --only SCIR --seeds 2 # adds to earlier results
    python examples/lda_wikipedia.py --data FOLDER --only grid

See `pymc_geodesic.datasets.load_wikipedia` for the folder.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import matplotlib
import numpy as np
import pymc as pm
from scipy import sparse
from script_parts import parse_options

import pymc_geodesic as pg
from pymc_geodesic.datasets import CompletionCorpus, load_wikipedia
from pymc_geodesic.topics import completion_probabilities

N_TOPICS = 50
BATCH_SIZE = 50
ALPHA, BETA = 0.1, 0.01
N_STEPS = 10
"""Minibatches of a draw."""
SNAPSHOTS = 10
"""Draws whose predictions are averaged."""

REVISITED = "SCIR, revisited"
REVISITED_BATCH = 1000

GRID = {
    "SCIR": {"h0": (0.01, 0.03, 0.1, 0.3), "b": (10.0, 100.0), "gamma": (0.6,)},
    "SGRLD": {"h0": (0.003, 0.01, 0.03, 0.1), "b": (10.0, 100.0), "gamma": (0.6,)},
    REVISITED: {"h0": (1.0,), "b": (10.0, 30.0), "gamma": (0.5, 0.7, 1.0)},
}
CRITERION = {"SCIR": "perplexity", "SGRLD": "perplexity", REVISITED: "averaged"}
"""Criterion of the grid search: the last draw, as in the paper, or the mean over the last draws."""
GRID_DOCUMENTS = 10_000
GRID_PASSES = 20

Snapshot = tuple[float, int, np.ndarray, np.ndarray | float]
"""Seconds so far, documents so far, topics, concentration of the proportions."""


def get_topics(point: dict) -> np.ndarray:
    """Topics on the simplex, from a point of PyMC."""
    value = point["topics_simplex__"]
    logarithm = np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
    topics = np.exp(logarithm - logarithm.max(axis=-1, keepdims=True))
    return topics / topics.sum(axis=-1, keepdims=True)


def stream_documents(
    method: type, schedule: pg.PolynomialDecay, train: sparse.csr_matrix, total: int, seed: int
) -> Iterator[Snapshot]:
    """Run a stochastic gradient sampler over a stream of documents, each visited once."""
    blocks = [train[i : i + BATCH_SIZE] for i in range(0, train.shape[0], BATCH_SIZE)]
    model = pg.topics.lda(blocks[0], N_TOPICS, ALPHA, BETA)
    step = method(
        local=["theta"],
        minibatch=["counts"],
        batches=blocks,
        total_size=total,
        step_size=schedule,
        n_steps=N_STEPS,
        local_draws=5,
        local_tune=5,
        model=model,
    )
    return run_step(step, model, len(blocks) // N_STEPS, N_STEPS * BATCH_SIZE, seed)


def revisit_documents(
    schedule: pg.PolynomialDecay, train: sparse.csr_matrix, seed: int, passes: int
) -> Iterator[Snapshot]:
    """Run SCIR over documents in memory, with persistent proportions."""
    model = pg.topics.lda(train, N_TOPICS, ALPHA, BETA)
    step = pg.SCIR(
        local=["theta"],
        minibatch=["counts"],
        batch_size=REVISITED_BATCH,
        step_size=schedule,
        n_steps=N_STEPS,
        local_draws=1,
        local_tune=1,
        model=model,
    )
    documents = N_STEPS * REVISITED_BATCH
    return run_step(step, model, passes * train.shape[0] // documents, documents, seed)


def run_step(
    step: pg.SCIR | pg.SGRLD, model: pm.Model, n_draws: int, documents: int, seed: int
) -> Iterator[Snapshot]:
    """Yield the topics of every draw, and the number of documents per draw."""
    point = model.initial_point(random_seed=seed)
    step.setup_chain(np.random.default_rng(seed), 0, n_draws)
    step.step(point)  # compiles
    step.setup_chain(np.random.default_rng(seed), 0, n_draws)
    seconds = 0.0
    for draw in range(n_draws):
        began = time.perf_counter()
        point, _ = step.step(point)
        seconds += time.perf_counter() - began
        yield seconds, (draw + 1) * documents, get_topics(point), ALPHA


def scikit_learn(
    train: sparse.csr_matrix, total: int, seed: int, passes: int
) -> Iterator[Snapshot]:
    """Online variational Bayes, batches of 500."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        N_TOPICS,
        doc_topic_prior=ALPHA,
        topic_word_prior=BETA,
        learning_method="online",
        learning_offset=10.0,
        total_samples=total,
        n_jobs=2,
        random_state=seed,
    )
    seconds, size = 0.0, 500
    for seen in range(0, passes * train.shape[0], size):
        first = seen % train.shape[0]
        began = time.perf_counter()
        model.partial_fit(train[first : first + size])
        seconds += time.perf_counter() - began
        topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
        yield seconds, seen + size, topics, ALPHA


def gensim(train: sparse.csr_matrix, total: int, seed: int, passes: int) -> Iterator[Snapshot]:
    """Online variational Bayes, batches of 500, two processes."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaMulticore

    names = {i: str(i) for i in range(train.shape[1])}
    model = LdaMulticore(
        num_topics=N_TOPICS,
        id2word=names,
        alpha=ALPHA,
        eta=BETA,
        workers=2,
        chunksize=500,
        random_state=seed,
    )
    seconds, size = 0.0, 2500
    for seen in range(0, passes * train.shape[0], size):
        first = seen % train.shape[0]
        documents = list(Sparse2Corpus(train[first : first + size], documents_columns=False))
        began = time.perf_counter()
        model.update(documents)
        seconds += time.perf_counter() - began
        yield seconds, seen + size, model.get_topics().astype(float), ALPHA


def tomotopy(train: sparse.csr_matrix, total: int, seed: int) -> Iterator[Snapshot]:
    """Collapsed Gibbs sampling of all documents, two threads; a sweep counts every document."""
    import tomotopy

    model = tomotopy.LDAModel(k=N_TOPICS, alpha=ALPHA, eta=BETA, seed=seed)
    for row in range(train.shape[0]):
        part = slice(train.indptr[row], train.indptr[row + 1])
        words = np.repeat(train.indices[part], train.data[part].astype(int))
        model.add_doc([str(word) for word in words])
    seconds = 0.0
    for sweeps in range(5, 205, 5):
        began = time.perf_counter()
        model.train(5, workers=2)
        seconds += time.perf_counter() - began
        known = np.array([int(word) for word in model.used_vocabs])
        topics = np.full((N_TOPICS, train.shape[1]), 1e-12)
        for topic in range(N_TOPICS):
            topics[topic, known] = model.get_topic_word_dist(topic)
        yield seconds, sweeps * train.shape[0], topics, np.asarray(model.alpha, dtype=float)


def perplexity_of(probabilities: np.ndarray, held_out: sparse.csr_array) -> float:
    """Return the perplexity of held-out words by their probabilities."""
    counts = sparse.csr_array(held_out).data
    return float(np.exp(-np.sum(counts * np.log(probabilities)) / np.sum(counts)))


def watch(
    snapshots: Iterator[Snapshot], corpus: CompletionCorpus, *, every: int, seconds: float
) -> dict[str, list[float]]:
    """Perplexity at intervals of documents, of the last draw and averaged over the latest draws."""
    seen: dict[str, list[float]] = {
        key: [] for key in ("seconds", "documents", "perplexity", "averaged")
    }
    latest: list[np.ndarray] = []
    for elapsed, documents, topics, alpha in snapshots:
        if documents // every == (seen["documents"] or [0])[-1] // every:
            continue
        probabilities = completion_probabilities(
            topics, corpus.observed, corpus.held_out, alpha=alpha, random_seed=1
        )
        latest = [*latest[1 - SNAPSHOTS :], probabilities]
        seen["seconds"].append(elapsed)
        seen["documents"].append(documents)
        seen["perplexity"].append(perplexity_of(probabilities, corpus.held_out))
        seen["averaged"].append(perplexity_of(np.mean(latest, axis=0), corpus.held_out))
        if elapsed > seconds:
            break
    return seen


def best_schedule(name: str, trials: list[dict]) -> pg.PolynomialDecay:
    """Schedule with the lowest perplexity."""
    best = min(trials, key=lambda trial: trial[CRITERION[name]])
    return pg.PolynomialDecay(best["h0"], best["b"], best["gamma"])


def search(
    name: str,
    run: Callable[[pg.PolynomialDecay], Iterator[Snapshot]],
    corpus: CompletionCorpus,
    every: int,
    known: list[dict],
) -> Iterator[dict]:
    """Run every schedule without a result; record the perplexity at the end of the run."""
    for values in product(*GRID[name].values()):
        setting = dict(zip(GRID[name], values, strict=True))
        if any(setting.items() <= trial.items() for trial in known):
            continue
        seen = watch(run(pg.PolynomialDecay(**setting)), corpus, every=every, seconds=np.inf)
        last = {key: seen[key][-1] for key in ("perplexity", "averaged")}
        print(f"{name} {setting}: {last}", flush=True)
        yield setting | last


def plot(curves: dict[str, list[dict]], path: Path) -> None:
    """Plot perplexity against documents and against wall time."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(11, 4.5), layout="constrained")
    for index, (name, runs) in enumerate(curves.items()):
        for number, seen in enumerate(runs):
            label = name if number == 0 else None
            color = f"C{index}"
            for axis, key in ((left, "documents"), (right, "seconds")):
                axis.plot(seen[key], seen["perplexity"], color=color, label=label, linewidth=1.0)
                if name in GRID:
                    axis.plot(seen[key], seen["averaged"], color=color, linestyle="--")
    left.plot([], [], color="gray", linestyle="--", label=f"mean of {SNAPSHOTS} draws")
    left.set(
        xlabel="documents", ylabel="perplexity of held-out words", xscale="log", ylim=(None, 3000)
    )
    right.set(xlabel="wall time (s)", xscale="log")
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run the selected samplers and programs, and plot all results so far."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None, help="folder of the data set")
    parser.add_argument("--documents", type=int, default=50_000, help="training documents")
    parser.add_argument("--passes", type=int, default=1, help="passes of variational Bayes")
    parser.add_argument("--visits", type=int, default=30, help="visits to revisited documents")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--seconds", type=float, default=np.inf, help="wall time of each run")
    parser.add_argument("--every", type=int, default=2500, help="documents between perplexities")
    parser.add_argument("--only", nargs="*", help="grid, SCIR, SGRLD, scikit-learn, …")
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parse_options(parser, documents=1000, seeds=[1], every=250)
    matplotlib.use("Agg")

    corpus = load_wikipedia(arguments.data)
    train = corpus.train[: arguments.documents]
    total = train.shape[0]
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "lda_wikipedia.json"
    results = json.loads(path.read_text()) if path.exists() else {"grid": {}, "curves": {}}
    wanted = arguments.only or ["grid", *GRID, "scikit-learn", "gensim", "tomotopy"]

    def sampler(name: str, train: sparse.csr_matrix, passes: int) -> Callable[..., Iterator]:
        if name == REVISITED:
            return lambda schedule, seed=0: revisit_documents(schedule, train, seed, passes)
        method = getattr(pg, name)
        return lambda schedule, seed=0: stream_documents(method, schedule, train, total, seed)

    if "grid" in wanted:
        for name in [name for name in GRID if name in wanted] or list(GRID):
            first = train if name == REVISITED else train[:GRID_DOCUMENTS]
            trials = results["grid"].setdefault(name, [])
            run = sampler(name, first, GRID_PASSES)
            every = first.shape[0] // (2 if name == REVISITED else 5)
            for trial in search(name, run, corpus, every, trials):
                trials.append(trial)
                path.write_text(json.dumps(results))
        if arguments.only:
            return
    for name in GRID:
        if name in wanted and not results["grid"].get(name):
            parser.error(f"no step size for {name} yet: run with --only grid {name!r}")
    runs: dict[str, Callable[[int], Iterator[Snapshot]]] = {
        "scikit-learn": lambda seed: scikit_learn(train, total, seed, arguments.passes),
        "gensim": lambda seed: gensim(train, total, seed, arguments.passes),
        "tomotopy": lambda seed: tomotopy(train, total, seed),
    }
    for name in GRID:
        if results["grid"].get(name):
            runs[name] = partial(
                sampler(name, train, arguments.visits), best_schedule(name, results["grid"][name])
            )
    if not find_spec("gensim"):
        runs.pop("gensim")
    if not find_spec("tomotopy"):
        runs.pop("tomotopy")
    for name in [name for name in runs if name in wanted]:
        for seed in arguments.seeds if name in GRID else arguments.seeds[:1]:
            every = arguments.every * (10 if name == REVISITED else 1)
            seen = watch(runs[name](seed), corpus, every=every, seconds=arguments.seconds)
            kept = [run for run in results["curves"].get(name, []) if run["seed"] != seed]
            results["curves"][name] = [*kept, {"seed": seed, **seen}]
            path.write_text(json.dumps(results))
            print(
                f"{name:12s} seed {seed}: {seen['documents'][-1]} documents in "
                f"{seen['seconds'][-1]:.1f} s, perplexity {seen['perplexity'][-1]:.0f}, "
                f"averaged {seen['averaged'][-1]:.0f}",
                flush=True,
            )
    plot(results["curves"], arguments.output / "lda_wikipedia.png")


if __name__ == "__main__":
    main()
