"""Topics of the NumPy and SciPy docstrings, by stochastic gradient geodesic Monte Carlo.

Run it with ``make demo`` or ``python examples/spherical_topics_of_docstrings.py``. It fits a
spherical admixture model to some two thousand docstrings, each a unit vector of tf-idf features:
first with minibatches, which find good topics within seconds, then with all documents, starting
from the better of two chains. It compares held-out log-perplexities with baselines, prints the
topics with their convergence diagnostics, and writes plots to ``demo_output/``.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import xarray as xr
from script_parts import parse_options

import pymc_geodesic as pg
from pymc_geodesic.datasets import Corpus, docstring_corpus

ALPHA = 1.0
# Concentrations per word of the vocabulary. The SGGMC paper uses 6, 2 and 2 for its newsgroups;
# smaller concentrations give fewer modes, so that two chains agree.
KAPPA_PER_WORD, SIGMA_PER_WORD = 1.0, 1.0 / 3.0
SEED = 20


@dataclass
class Run:
    """Draws of some chains and the seconds since the first draw at which each arrived."""

    name: str
    idata: xr.DataTree
    seconds: dict[int, list[float]]


def sample(
    model: pm.Model, name: str, step: dict[str, Any], options: argparse.Namespace, **settings: Any
) -> Run:
    """Sample the topics by SGGMC and record the time of each draw."""
    seconds: dict[int, list[float]] = {}
    begin = time.perf_counter()

    def watch(trace: object, draw: Any) -> None:
        seconds.setdefault(draw.chain, []).append(time.perf_counter())

    print(f"\n{name}")
    with model:
        idata = pm.sample(
            step=pg.SGGMC(minibatch=["V"], local=["theta"], **step),
            chains=options.chains,
            cores=min(options.chains, os.cpu_count() or 1),
            var_names=["beta"],
            discard_tuned_samples=False,
            compute_convergence_checks=False,
            random_seed=SEED,
            callback=watch,
            **settings,
        )
    first = min(times[0] for times in seconds.values())
    last = max(times[-1] for times in seconds.values())
    print(f"compiled in {first - begin:.0f} s, sampled in {last - first:.0f} s")
    since = {chain: [now - first for now in times] for chain, times in sorted(seconds.items())}
    return Run(name, idata, since)


def perplexity(beta: np.ndarray, documents: Any, settings: dict[str, float]) -> float:
    """Return the log-perplexity with the same random proportions for every set of topics."""
    return pg.topics.log_perplexity(beta, documents, random_seed=SEED, **settings)


def baselines(corpus: Corpus, n_topics: int, settings: dict[str, float]) -> dict[str, float]:
    """Return log-perplexities of two baselines: the corpus mean, and spherical k-means."""
    mean = np.asarray(corpus.train.sum(axis=0)).ravel()
    mean /= np.linalg.norm(mean)
    centers, _ = pg.mixtures.spherical_kmeans(corpus.train, n_topics, random_seed=SEED)
    return {
        "every topic is the corpus mean": perplexity(mean[None], corpus.test, settings),
        "spherical k-means centers": perplexity(centers, corpus.test, settings),
    }


def perplexity_over_time(
    run: Run, corpus: Corpus, settings: dict[str, float], n_points: int = 20
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return seconds and log-perplexities of single draws of each chain, tuning included."""
    curves = {}
    for chain, seconds in run.seconds.items():
        beta = np.concatenate(
            [run.idata[group]["beta"].values[chain] for group in ("warmup_posterior", "posterior")]
        )
        chosen = np.unique(np.geomspace(1, len(beta), n_points).astype(int)) - 1
        values = np.array([perplexity(beta[i], corpus.test, settings) for i in chosen])
        curves[f"{run.name}, chain {chain}"] = np.asarray(seconds)[chosen], values
    return curves


def print_topics(idata: xr.DataTree, vocabulary: np.ndarray) -> None:
    """Print the first words of each topic with R-hat and effective sample size of their weights."""
    aligned = pg.topics.align_topics(idata)
    words = pg.topics.top_words(aligned, vocabulary, n=8)
    column = {word: index for index, word in enumerate(vocabulary)}
    print(f"\n{'topic':>5}  {'R-hat':>6}  {'ESS':>5}  words with the largest weight")
    for topic, best in enumerate(words.values):
        weights = aligned["posterior"]["beta"][:, :, topic, [column[word] for word in best]]
        rhat, ess = az.rhat(weights).median().item(), az.ess(weights).median().item()
        print(f"{topic:5d}  {rhat:6.3f}  {ess:5.0f}  {' '.join(best)}")
    print("R-hat and ESS: median over these words, after the topics of all draws are aligned.")


def write_plots(
    explored: Run,
    sampled: Run,
    corpus: Corpus,
    settings: dict[str, float],
    reference: dict[str, float],
    folder: Path,
) -> None:
    """Write perplexity against time, the topics and the temperature as images."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = perplexity_over_time(explored, corpus, settings)
    # The second run starts from the end of the first.
    end = max(seconds[-1] for seconds in explored.seconds.values())
    for name, (seconds, values) in perplexity_over_time(sampled, corpus, settings).items():
        curves[name] = end + seconds, values
    perplexity_figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, (seconds, values) in curves.items():
        ax.plot(seconds, values, marker=".", label=name)
    for style, (name, value) in zip(("--", ":"), reference.items(), strict=True):
        ax.axhline(value, color="gray", linestyle=style, label=name)
    ax.set(xlabel="wall time (seconds)", ylabel="held-out log-perplexity (nats per document)")
    ax.legend()
    figures = {
        "perplexity": perplexity_figure,
        "topics": pg.topics.plot_top_words(sampled.idata, corpus.vocabulary, col_wrap=3),
        "temperature": pg.diagnostics.plot_temperature(sampled.idata),
    }
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150)
    print(f"\nPlots: {', '.join(str(folder / f'{name}.png') for name in figures)}")


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=6)
    parser.add_argument("--explore", type=int, default=900, help="tuning draws with minibatches")
    parser.add_argument("--tune", type=int, default=100, help="tuning draws with all documents")
    parser.add_argument("--draws", type=int, default=225, help="draws with all documents")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    options = parse_options(parser, explore=200, tune=25, draws=50)
    matplotlib.use("Agg")

    corpus = docstring_corpus()
    n_documents, n_words = corpus.train.shape
    kappa, sigma = KAPPA_PER_WORD * n_words, SIGMA_PER_WORD * n_words
    settings = {"alpha": ALPHA, "kappa": kappa}
    print(f"Docstrings of NumPy and SciPy: {corpus}")
    model = pg.topics.spherical_admixture(
        corpus.train, options.topics, sigma=sigma, kappa0=sigma, **settings
    )

    explored = sample(
        model,
        "minibatches of 50",
        {"batch_size": 50, "local_tune": 5, "local_draws": 5},
        options,
        tune=options.explore,
        draws=100,
    )
    finds = explored.idata["posterior"]["beta"].values[:, -1]
    best = min(finds, key=lambda beta: perplexity(beta, corpus.train, settings))
    # Proportions persist between draws, so that few transitions of each suffice.
    sampled = sample(
        model,
        "all documents",
        {"batch_size": n_documents, "local_tune": 1, "local_draws": 2},
        options,
        tune=options.tune,
        draws=options.draws,
        initvals={"beta": best},
    )

    reference = baselines(corpus, options.topics, settings)
    print("\nHeld-out log-perplexity (nats per document, smaller is better)")
    fitted = pg.topics.log_perplexity(sampled.idata, corpus.test, n_draws=15, random_seed=SEED)
    for name, value in (reference | {"SGGMC, 15 draws averaged": fitted}).items():
        print(f"  {name:<32}{value:10.1f}")
    temperature = pg.diagnostics.temperature_summary(sampled.idata)["mean"].values
    print(f"Kinetic temperature, expected 1: {' '.join(f'{t:.3f}' for t in temperature)}")

    print_topics(sampled.idata, corpus.vocabulary)
    write_plots(explored, sampled, corpus, settings, reference, options.output)


if __name__ == "__main__":
    main()
