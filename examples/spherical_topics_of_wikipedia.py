"""Spherical topics of Wikipedia: the large experiment of the SGGMC paper.

Section 5.3 and appendix F.3 of Liu, Zhu, Song (2016): K = 50 topics over 3,000 words of moderate
document frequency, minibatches of 100 documents, sigma = kappa0 = 6e3, kappa = 2e4, alpha = 10. The
data here are the 145,471 pages with at least 20 words of the list, a thousand of them held out, as
sparse unit vectors of tf-idf features. SGGMC and gSGNHT are compared with mean-field variational
inference, with all documents and stochastic, spherical k-means and the corpus mean; SGGMC also
starts from the topics and proportions of stochastic variational inference. Each method has its own
wall time; the figure shows the log-perplexity of the held-out pages against processor time.

    python examples/spherical_topics_of_wikipedia.py --data FOLDER           # eighteen minutes
    python examples/spherical_topics_of_wikipedia.py --data FOLDER --quick   # three, fewer pages

See `pymc_geodesic.datasets.load_wikipedia` for the folder. The last line of output is a JSON
object with all results.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize
from spherical_runs import (
    SEED,
    Curve,
    format_summary,
    run,
    run_variational,
    starting_point,
    variational_point,
)

import pymc_geodesic as pg
from pymc_geodesic.datasets import CompletionCorpus, load_wikipedia
from pymc_geodesic.mixtures import spherical_kmeans
from pymc_geodesic.topics import log_perplexity

N_WORDS = 3000
LARGEST_DOCUMENT_SHARE = 0.0599
"""Maximum document frequency, from the paper; the minimum follows from `N_WORDS`."""

SETTINGS: dict[str, Any] = {
    "n_topics": 50, "alpha": 10.0, "kappa": 2e4, "sigma": 6e3, "kappa0": 6e3,
}  # fmt: skip
BATCH_SIZE = 100
SAMPLERS = {"SGGMC": pg.SGGMC, "gSGNHT": pg.gSGNHT}
VARIATIONAL: dict[str, dict[str, Any]] = {
    "VI": {"local_steps": 5},
    "stochastic VI": {"batch_size": BATCH_SIZE},
}


CONTINUED = "SGGMC after stochastic VI"


class Pages(NamedTuple):
    """Unit vectors of pages, and the words."""

    train: sparse.csr_matrix
    held_out: sparse.csr_matrix
    vocabulary: np.ndarray


class Length(NamedTuple):
    """Length of the runs: pages (None for all), seconds by method, tuning draws, k-means passes."""

    n_pages: int | None
    seconds: dict[str, float]
    tune: int
    kmeans_passes: int


FULL = Length(
    None,
    {"SGGMC": 200.0, "gSGNHT": 200.0, "VI": 130.0, "stochastic VI": 60.0, CONTINUED: 300.0},
    600,
    20,
)
QUICK = Length(
    10_000,
    {"SGGMC": 25.0, "gSGNHT": 25.0, "VI": 15.0, "stochastic VI": 15.0, CONTINUED: 25.0},
    200,
    10,
)


def read_pages(corpus: CompletionCorpus, n_pages: int | None) -> Pages:
    """Return tf-idf vectors of words of moderate document frequency in the training pages."""
    counts = corpus.train[:n_pages]
    n_pages = counts.shape[0]
    frequency = counts.getnnz(axis=0)
    rare_enough = np.flatnonzero(frequency <= LARGEST_DOCUMENT_SHARE * n_pages)
    by_frequency = rare_enough[np.argsort(-frequency[rare_enough], kind="stable")]
    words = np.sort(by_frequency[:N_WORDS])
    weights = np.log(n_pages / (1.0 + frequency[words]))
    parts = []
    for rows in (counts, sparse.csr_matrix(corpus.observed + corpus.held_out)):
        rows = sparse.csr_matrix(rows[:, words])
        rows = rows[np.diff(rows.indptr) > 0]
        parts.append(normalize(sparse.csr_matrix(rows.multiply(weights))))
    return Pages(*parts, corpus.vocabulary[words])


def score(topics: np.ndarray, pages: Pages) -> float:
    """Log-perplexity of the held-out pages."""
    given = {name: SETTINGS[name] for name in ("alpha", "kappa")}
    return log_perplexity(topics, pages.held_out, **given, random_seed=SEED)


def baselines(pages: Pages, kmeans_passes: int) -> dict[str, dict[str, float]]:
    """Return perplexities of the corpus mean and of the centers of spherical k-means."""
    n_topics = SETTINGS["n_topics"]
    mean = np.asarray(pages.train.sum(axis=0)).ravel()
    mean /= np.linalg.norm(mean)
    began = time.perf_counter()
    with warnings.catch_warnings():  # few passes, for speed
        warnings.simplefilter("ignore", pg.topics.ConvergenceWarning)
        centers, _ = spherical_kmeans(
            pages.train, n_topics, n_restarts=1, max_passes=kmeans_passes, random_seed=SEED
        )
    seconds = time.perf_counter() - began
    return {
        "corpus mean": {"perplexity": score(np.tile(mean, (n_topics, 1)), pages), "seconds": 0.0},
        "spherical k-means": {"perplexity": score(centers, pages), "seconds": seconds},
    }


def run_sampler(
    step: type[pg.SGGMC], fit: Any, pages: Pages, clock: dict[str, float], **options: Any
) -> Curve:
    """Run a sampler from the corpus mean, or from a given fit."""
    tuning = {"tune": options.pop("tune"), "returns": options.pop("returns", False)}
    model = pg.topics.spherical_admixture(pages.train, **SETTINGS)
    made = step(
        [model["beta"]], local=[model["theta"]], minibatch=["V"], batch_size=BATCH_SIZE,
        model=model, **options,
    )  # fmt: skip
    if fit is None:
        point = starting_point(model, pages.train, np.random.default_rng(SEED))
    else:
        point = variational_point(model, fit)
    return run(made, point, model, pages.held_out, **tuning, **clock)


def run_methods(names: Sequence[str], pages: Pages, length: Length) -> Iterator[tuple[str, Curve]]:
    """Run methods in sequence; a continuation requires the method before it."""
    fit = None
    for name in names:
        clock = {"seconds": length.seconds[name], "every": length.seconds[name] / 6}
        if name in VARIATIONAL:
            given = pages.train, pages.held_out, SETTINGS
            curve, fit = run_variational(*given, **clock, **VARIATIONAL[name])
        elif name == CONTINUED:
            colder = {"tune": length.tune // 3, "tune_temperature": 1.1, "returns": True}
            curve = run_sampler(SAMPLERS["SGGMC"], fit, pages, clock, **colder)
        else:
            curve = run_sampler(SAMPLERS[name], None, pages, clock, tune=length.tune)
        yield name, curve


def plot(curves: dict[str, Curve], levels: dict[str, dict[str, float]], path: Path) -> None:
    """Plot perplexity against processor time."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, seen in curves.items():
        before = curves["stochastic VI"]["processor_seconds"][-1] if name == CONTINUED else 0.0
        seconds = before + np.array(seen["processor_seconds"])
        axes.plot(seconds, seen["perplexity"], marker=".", label=name)
    first = min(seen["processor_seconds"][0] for seen in curves.values())
    for name, level in levels.items():
        axes.axhline(level["perplexity"], color="gray", linewidth=0.8)
        axes.text(first, level["perplexity"], f" {name}", va="bottom", color="gray")
    axes.set(xlabel="processor time (s)", ylabel="held-out log-perplexity", xscale="log")
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def peak_memory() -> float:
    """Largest resident memory of this process so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> None:
    """Run every method and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None, help="folder of the data set")
    parser.add_argument("--quick", action="store_true", help="10,000 pages, shorter runs")
    parser.add_argument(
        "--only", nargs="*", help="methods to run; results are added to earlier ones"
    )
    parser.add_argument("--seconds", type=float, help="wall time of each method")
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parser.parse_args()
    matplotlib.use("Agg")

    length = QUICK if arguments.quick else FULL
    if arguments.seconds is not None:
        length = length._replace(seconds=dict.fromkeys(length.seconds, arguments.seconds))
    pages = read_pages(load_wikipedia(arguments.data), length.n_pages)
    print(
        f"{pages.train.shape[0]} pages and {pages.held_out.shape[0]} held out, "
        f"{pages.train.shape[1]} words, {pages.train.nnz / pages.train.shape[0]:.0f} of them in a "
        "page",
        flush=True,
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "spherical_topics_of_wikipedia.json"
    curves: dict[str, Curve] = {}
    if arguments.only and results.exists():
        curves = json.loads(results.read_text())["curves"]
    names = arguments.only or list(length.seconds)
    if CONTINUED in names and "stochastic VI" not in names:
        parser.error(f"{CONTINUED!r} needs 'stochastic VI' before it")
    for name, curve in run_methods(names, pages, length):
        curves[name] = curve
        print(f"{name:24s} {format_summary(curve)}, {peak_memory():.2f} GiB", flush=True)
    levels = baselines(pages, length.kmeans_passes)
    for name, level in levels.items():
        print(f"{name:24s} log-perplexity {level['perplexity']:.0f} in {level['seconds']:.0f} s")
    plot(curves, levels, arguments.output / "spherical_topics_of_wikipedia.png")
    figures = {"curves": curves, "baselines": levels, "peak_memory_gib": peak_memory()}
    results.write_text(json.dumps(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
