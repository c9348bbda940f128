"""Topics of documents in shards: perplexity, lost workers and network traffic.

``python -m benchmarks.distributed_topics PART --data FOLDER`` prints a table. ``newsgroups`` has
three groups of 20 Newsgroups in shards that are shuffled or have one group each; ``wikipedia`` has
pages in four shards; ``lost`` compares the draws of two and four workers, and with one killed;
``traffic`` counts bytes for increasing numbers of pages. All runs of a table visit the same number
of documents. See `pymc_geodesic.datasets` for the folder.
"""

import argparse
import functools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pymc as pm
from scipy import sparse

import pymc_geodesic as pg
from benchmarks.distributed import Killer, cluster
from pymc_geodesic.datasets import hold_out_words, load_20news_different, load_wikipedia
from pymc_geodesic.distributed import sampling
from pymc_geodesic.topics import perplexity

ALPHA, BETA = 0.1, 0.01
BATCH, N_STEPS = 50, 10
N_AVERAGED = 20
"""Last draws of a chain whose predictions are averaged."""
VISITS_BEFORE_LOSS = 30

OPTIONS = {
    "local": ["theta"],
    "minibatch": ["counts"],
    "n_steps": N_STEPS,
    "step_size": pg.PolynomialDecay(0.1, b=10, gamma=0.6),
}
LENGTHS = {"draws": 50, "tune": 150, "chains": 2}


def in_shards(client, parts: Sequence, few, n_topics: int, **arguments):
    """Sample with documents in shards; return draws and seconds."""
    step = functools.partial(pg.SCIR, batch_size=BATCH, **OPTIONS)
    began = time.perf_counter()
    idata = pg.distributed.sample(
        pg.topics.lda(few, n_topics, ALPHA, BETA), step, client,
        shards=[{"counts": part} for part in parts], conducive=False, random_seed=1,
        progressbar=False, compute_convergence_checks=False, **(LENGTHS | arguments),
    )  # fmt: skip
    return idata, time.perf_counter() - began


def in_one_process(counts, n_topics: int, *, streamed: bool):
    """Sample with all documents in memory, or with a stream of blocks."""
    blocks = [counts[i : i + BATCH] for i in range(0, counts.shape[0], BATCH)]
    rows = {"batches": blocks, "total_size": counts.shape[0]} if streamed else {"batch_size": BATCH}
    began = time.perf_counter()
    with pg.topics.lda(blocks[0] if streamed else counts, n_topics, ALPHA, BETA):
        idata = pm.sample(
            step=pg.SCIR(**rows, **OPTIONS), cores=1, random_seed=1, var_names=["topics"],
            progressbar=False, compute_convergence_checks=False, **LENGTHS,
        )  # fmt: skip
    return idata, time.perf_counter() - began


def line(name: str, idata, seconds: float, tested) -> str:
    """Return a row of the table: perplexities, heterogeneity and traffic."""
    topics = idata.posterior["topics"].values[:, -N_AVERAGED:]
    found = [perplexity(chain, *tested, alpha=ALPHA, random_seed=1) for chain in topics]
    cells = ("", "", "")
    if "shards" in idata.children:
        report = idata["shards"]
        cells = (
            f"{float(report['shift'].max()):.1f}",
            f"{100 * report.attrs['variance_inflation']:.1f} %",
            f"{report.attrs['bytes_per_draw']:,.0f}",
        )
    values = " and ".join(f"{value:.0f}" for value in found)
    return f"| {name} | {values} | {' | '.join(cells)} | {seconds:.0f} |"


HEADER = """| run | perplexity of two chains | largest shift, sd | widening | bytes per draw | s |
|---|---|---:|---:|---:|---:|"""


def newsgroups(data: str | None) -> None:
    """Compare shards that are shuffled, and of one group each, with one process."""
    from distributed import Client

    corpus, n_topics = load_20news_different(data, features="counts"), 20
    tested = hold_out_words(corpus.test, random_seed=1)
    order = np.random.default_rng(1).permutation(corpus.train.shape[0])
    counts = corpus.train[order]
    titles = corpus.train_titles[order]
    mixed = [counts[i::3] for i in range(3)]
    alone = [counts[np.flatnonzero(titles == title)] for title in np.unique(titles)]
    print(f"{counts.shape[0]} texts, {n_topics} topics\n\n{HEADER}", flush=True)
    for streamed, name in ((False, "one process, in memory"), (True, "one process, streamed")):
        print(line(name, *in_one_process(counts, n_topics, streamed=streamed), tested), flush=True)
    with cluster(2) as workers, Client(workers) as client:
        for parts, name, visit in (
            (mixed, "three shards, shuffled", 1),
            (alone, "three shards, a group each", 1),
            (alone, "three shards, a group each, visits of 50", 50),
        ):
            run = in_shards(client, parts, counts[:2], n_topics, visit=visit)
            print(line(name, *run, tested), flush=True)


def files_of(counts, n_shards: int, folder: Path) -> list[Path]:
    """Write the matrices of the shards."""
    paths = [folder / f"counts{i}.npz" for i in range(n_shards)]
    for i, path in enumerate(paths):
        sparse.save_npz(path, counts[i::n_shards])
    return paths


def wikipedia(data: str | None) -> None:
    """Compare 20,000 pages on two workers with one process."""
    from distributed import Client

    corpus, n_topics = load_wikipedia(data), 50
    counts, tested = corpus.train[:20_000], (corpus.observed, corpus.held_out)
    print(f"{counts.shape[0]} pages, {n_topics} topics\n\n{HEADER}", flush=True)
    run = in_one_process(counts, n_topics, streamed=True)
    print(line("one process, streamed", *run, tested), flush=True)
    with cluster(2) as workers, Client(workers) as client, tempfile.TemporaryDirectory() as folder:
        run = in_shards(client, files_of(counts, 4, Path(folder)), counts[:2], n_topics)
        print(line("four shards, 2 workers", *run, tested), flush=True)


def lost(data: str | None) -> None:
    """Compare the draws of 2 workers, of 4 workers, and of 2 workers one of which is killed."""
    from distributed import Client

    counts, draws = load_wikipedia(data).train[:5000], []
    with tempfile.TemporaryDirectory() as folder:
        paths = files_of(counts, 4, Path(folder))
        for n_workers, after in ((2, 0), (4, 0), (2, VISITS_BEFORE_LOSS)):
            with (
                cluster(n_workers) as workers,
                Client(workers) as client,
                mock.patch.object(sampling, "ProgressBars", Killer(client, after).progress_bars),
            ):
                idata, seconds = in_shards(client, paths, counts[:2], 20, draws=20, tune=20)
            reloads = int(idata["shards"]["reloads"].sum())
            print(
                f"{n_workers} workers, {reloads} shards loaded again: {seconds:.0f} s", flush=True
            )
            draws.append(idata.posterior["topics"].values)
    same = all(np.array_equal(draws[0], others) for others in draws[1:])
    print(f"All draws bit-identical: {same}.")


def traffic(data: str | None) -> None:
    """Count the bytes per draw that are sent, for increasing numbers of pages."""
    from distributed import Client

    every = load_wikipedia(data).train
    print("| pages | bytes per draw |\n|---:|---:|")
    fewer = {"draws": 10, "tune": 10, "chains": 1}
    with cluster(2) as workers, Client(workers) as client, tempfile.TemporaryDirectory() as folder:
        for n in (1_000, 10_000, 100_000):
            paths = files_of(every[:n], 4, Path(folder))
            idata, _ = in_shards(client, paths, every[:2], 50, **fewer)
            print(f"| {n:,} | {idata['shards'].attrs['bytes_per_draw']:,.0f} |", flush=True)


PARTS = {each.__name__: each for each in (newsgroups, wikipedia, lost, traffic)}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", default=None, help="folder of the data sets")
    given = parser.parse_args()
    PARTS[given.part](given.data)


if __name__ == "__main__":
    main()
