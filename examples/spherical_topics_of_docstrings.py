"""Topics of the NumPy and SciPy docstrings, by stochastic gradient geodesic Monte Carlo.

Run it with ``make demo`` or ``python examples/spherical_topics_of_docstrings.py``. It fits a
spherical admixture model to some two thousand docstrings, each a unit vector of tf-idf features,
compares held-out log-perplexities with baselines, prints the topics with their convergence
diagnostics, and writes plots to ``demo_output/``.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
import xarray as xr

import pymc_geodesic as pg
from pymc_geodesic import diagnostics
from pymc_geodesic.datasets import Corpus, docstring_corpus

# The concentrations of the SGGMC paper per word: its vocabulary has 5,000 words, kappa is
# 30,000, sigma and kappa0 are 10,000.
KAPPA_PER_WORD = 6.0
SIGMA_PER_WORD = 2.0
ALPHA = 10.0
SEED = 20


class Stopwatch:
    """Note when each draw of each chain arrives."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.seconds: dict[int, list[float]] = {}

    def __call__(self, *, trace: object, draw: Any) -> None:
        """Take the call that `pymc.sample` makes for each draw."""
        self.seconds.setdefault(draw.chain, []).append(time.perf_counter() - self.start)


def baselines(corpus: Corpus, n_topics: int, kappa: float) -> dict[str, float]:
    """Return log-perplexities of two sets of topics that no sampler had a hand in."""
    mean = np.asarray(corpus.train.sum(axis=0)).ravel()
    mean /= np.linalg.norm(mean)
    centres, _ = diagnostics.spherical_kmeans(corpus.train, n_topics, random_seed=SEED)
    topics = {
        "every topic is the corpus mean": np.tile(mean, (n_topics, 1)),
        "spherical k-means centres": centres,
    }
    return {
        name: diagnostics.log_perplexity(
            beta, corpus.test, alpha=ALPHA, kappa=kappa, random_seed=SEED
        )
        for name, beta in topics.items()
    }


def perplexity_over_time(
    idata: xr.DataTree, seconds: list[float], chain: int, corpus: Corpus, n_points: int = 25
) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds and log-perplexities of single draws of a chain, tuning included."""
    beta = np.concatenate(
        [idata[group]["beta"].values[chain] for group in ("warmup_posterior", "posterior")]
    )
    settings = {name: float(idata["constant_data"][name]) for name in ("alpha", "kappa")}
    chosen = np.unique(np.geomspace(1, len(beta), n_points).astype(int)) - 1
    values = [
        diagnostics.log_perplexity(beta[i], corpus.test, random_seed=SEED, **settings)
        for i in chosen
    ]
    return np.asarray(seconds)[chosen], np.asarray(values)


def print_topics(idata: xr.DataTree, vocabulary: np.ndarray) -> None:
    """Print the first words of each topic with R-hat and effective sample size of their weights."""
    aligned = diagnostics.align_topics(idata)
    words = diagnostics.top_words(aligned, vocabulary, n=8)
    column = {word: index for index, word in enumerate(vocabulary)}
    print(f"\n{'topic':>5}  {'R-hat':>6}  {'ESS':>5}  words with the largest weight")
    for topic in range(words.sizes["topic"]):
        best = words["word"].values[topic]
        weights = aligned["posterior"]["beta"][:, :, topic, [column[word] for word in best]]
        rhat, ess = az.rhat(weights).max().item(), az.ess(weights).min().item()
        print(f"{topic:5d}  {rhat:6.3f}  {ess:5.0f}  {' '.join(best)}")
    print("R-hat is the largest and ESS the smallest over these words; topics of all chains are")
    print("aligned first. R-hat well above 1.01: the chains have found different topics.")


def write_plots(
    idata: xr.DataTree,
    watch: Stopwatch,
    corpus: Corpus,
    reference: dict[str, float],
    folder: Path,
) -> None:
    """Write perplexity against time, the topics and the temperature as images."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = {
        f"SGGMC, chain {chain}": perplexity_over_time(idata, seconds, chain, corpus)
        for chain, seconds in sorted(watch.seconds.items())
    }
    figures = {
        "perplexity": diagnostics.plot_perplexity(curves, baselines=reference),
        "topics": diagnostics.plot_top_words(idata, corpus.vocabulary)[0],
        "temperature": diagnostics.plot_temperature(idata),
    }
    for name, ax in figures.items():
        ax.figure.savefig(folder / f"{name}.png", dpi=150)
    print(f"\nPlots: {', '.join(str(folder / f'{name}.png') for name in figures)}")


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--tune", type=int, default=600)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    options = parser.parse_args()
    matplotlib.use("Agg")

    corpus = docstring_corpus()
    n_words = len(corpus.vocabulary)
    kappa, sigma = KAPPA_PER_WORD * n_words, SIGMA_PER_WORD * n_words
    print(f"Docstrings of NumPy and SciPy: {corpus}")
    reference = baselines(corpus, options.topics, kappa)

    model = pg.models.spherical_admixture(
        corpus.train,
        options.topics,
        alpha=ALPHA,
        kappa=kappa,
        sigma=sigma,
        kappa0=sigma,
        vocabulary=corpus.vocabulary,
    )
    watch = Stopwatch()
    with model:
        idata = pm.sample(
            draws=options.draws,
            tune=options.tune,
            chains=options.chains,
            step=pg.SGGMC(batch_size=50, minibatch=["V"], local=["theta"]),
            var_names=["beta"],
            discard_tuned_samples=False,
            compute_convergence_checks=False,
            random_seed=SEED,
            callback=watch,
        )
    seconds = time.perf_counter() - watch.start
    print(f"\nSampled in {seconds:.0f} s, compilation included.")
    temperature = diagnostics.temperature_summary(idata)["mean"].values
    print(f"Kinetic temperature, 1 is right: {' '.join(f'{t:.3f}' for t in temperature)}")

    print("\nHeld-out log-perplexity (nats per document, smaller is better)")
    for name, value in reference.items():
        print(f"  {name:<32}{value:10.1f}")
    fitted = diagnostics.log_perplexity(idata, corpus.test, draws=15, random_seed=SEED)
    print(f"  {'SGGMC, 15 draws averaged':<32}{fitted:10.1f}")

    print_topics(idata, corpus.vocabulary)
    write_plots(idata, watch, corpus, reference, options.output)


if __name__ == "__main__":
    main()
