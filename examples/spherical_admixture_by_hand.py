"""Spherical admixture model written in PyMC, compared with the built-in model.

`pymc_geodesic.topics.spherical_admixture` is equivalent to a dozen lines of PyMC: topics on the
sphere, proportions on the simplex, and a likelihood that uses the Gram matrix of the topics instead
of the mean vector of each document. This script builds both models, checks that log-densities and
gradients agree to rounding, and samples the topics of a synthetic corpus with both.

Run it with ``python examples/spherical_admixture_by_hand.py``.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from script_parts import parse_options

import pymc_geodesic as pg

SEED = 3


def synthetic_corpus(
    n_documents: int, n_words: int, n_topics: int, *, kappa: float, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return documents, shape (document, word), and the true topics."""
    rng = np.random.default_rng(SEED)
    topics = rng.gamma(0.1, size=(n_topics, n_words))
    topics /= np.linalg.norm(topics, axis=1, keepdims=True)
    means = rng.dirichlet(np.full(n_topics, alpha), size=n_documents) @ topics
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    documents = pm.draw(pg.VonMisesFisher.dist(means, kappa), random_seed=SEED)
    return documents, topics


def log_normalizer(n_words: int, kappa: Any) -> Any:
    """Return log c_V(κ) from the density of a von Mises–Fisher distribution at its mode."""
    mode = np.eye(1, n_words)[0]
    return pm.logp(pg.VonMisesFisher.dist(mode, kappa), mode) - kappa


def document_cosines(v: Any, theta: Any, beta: Any) -> Any:
    """Return the cosine of each v_d and βᵀθ_d, by v·βᵀθ = (βv)·θ and ‖βᵀθ‖² = θᵀ(ββᵀ)θ."""
    length = pt.sqrt(pt.sum((theta @ (beta @ beta.T)) * theta, axis=-1))
    return pt.sum((v @ beta.T) * theta, axis=-1) / length


def model_by_hand(
    documents: np.ndarray,
    n_topics: int,
    *,
    alpha: float,
    kappa: float,
    sigma: float,
    kappa0: float,
) -> pm.Model:
    """Return the model with the corpus mean integrated out (eq. 9 of the SGGMC paper)."""
    n_documents, n_words = documents.shape
    mean = documents.sum(axis=0)
    mean /= np.linalg.norm(mean)
    coords = {
        "document": np.arange(n_documents),
        "topic": np.arange(n_topics),
        "word": np.arange(n_words),
    }
    with pm.Model(coords=coords) as model:
        V = pm.Data("V", documents, dims=("document", "word"))
        beta = pg.UniformSphere("beta", dims=("topic", "word"))
        length = pt.sqrt(pt.sum((kappa0 * mean + sigma * pt.sum(beta, axis=0)) ** 2))
        pm.Potential(
            "topics_around_a_mean",
            log_normalizer(n_words, kappa0)
            + n_topics * (log_normalizer(n_words, sigma) - log_normalizer(n_words, 0.0))
            - log_normalizer(n_words, length),
        )
        theta = pm.Dirichlet("theta", alpha * np.ones(n_topics), dims=("document", "topic"))
        pm.Potential(
            "documents",
            log_normalizer(n_words, kappa) + kappa * document_cosines(V, theta, beta),
            dims="document",
        )
    return model


def largest_differences(one: pm.Model, other: pm.Model, n_points: int = 5) -> tuple[float, float]:
    """Return the largest relative differences of log-density and gradient at random points.

    The points are random directions for the topics and random proportions for the documents;
    both models have the same variables in the same coordinates.
    """
    rng = np.random.default_rng(SEED)
    functions = [
        (model.compile_logp(mode="FAST_COMPILE"), model.compile_dlogp(mode="FAST_COMPILE"))
        for model in (one, other)
    ]
    shapes = {name: value.shape for name, value in one.initial_point().items()}
    worst = np.zeros(2)
    for _ in range(n_points):
        point = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        topics = point[one.rvs_to_values[one["beta"]].name]
        topics /= np.linalg.norm(topics, axis=1, keepdims=True)
        values, gradients = zip(*[(f(point), g(point)) for f, g in functions], strict=True)
        worst = np.maximum(
            worst,
            [
                abs(values[0] - values[1]) / abs(values[0]),
                np.linalg.norm(gradients[0] - gradients[1]) / np.linalg.norm(gradients[0]),
            ],
        )
    return float(worst[0]), float(worst[1])


def sample(
    model: pm.Model, start: np.ndarray, *, draws: int, tune: int, batch_size: int = 50
) -> Any:
    """Draw topics by SGGMC; the proportions of the documents are drawn with each minibatch."""
    with model:
        step = pg.SGGMC(batch_size=batch_size, minibatch=["V"], local=["theta"])
        return pm.sample(
            draws=draws,
            tune=tune,
            chains=1,
            step=step,
            initvals={"beta": start},
            var_names=["beta"],
            compute_convergence_checks=False,
            progressbar=False,
            random_seed=SEED,
        )


def cosines(idata: Any, topics: np.ndarray) -> np.ndarray:
    """Return the cosine of the mean direction of each topic with the true one."""
    aligned = pg.topics.align_topics(idata, reference=topics)
    mean = aligned.posterior["beta"].values.mean(axis=(0, 1))
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    return np.sum(mean * topics, axis=1)


def plot(idata: dict[str, Any], topics: np.ndarray) -> plt.Figure:
    """Plot posterior means of the word weights against the true weights."""
    figure, axes = plt.subplots(1, len(idata), figsize=(7, 3.4), layout="constrained", sharey=True)
    for ax, (name, each) in zip(axes, idata.items(), strict=True):
        beta = pg.topics.align_topics(each, reference=topics).posterior["beta"].values
        ax.axline((0, 0), slope=1, color="gray", lw=0.5)
        for k, mean in enumerate(beta.mean(axis=(0, 1))):
            ax.plot(topics[k], mean, ".", ms=3, label=f"topic {k}")
        ax.set(xlabel="true weight of a word", title=name)
    axes[0].set_ylabel("posterior mean")
    axes[0].legend(fontsize=7)
    return figure


def main() -> None:
    """Compare the two models and sample from both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--topics", type=int, default=5)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--tune", type=int, default=300)
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parse_options(parser, documents=100, words=60, topics=3, draws=50, tune=50)
    matplotlib.use("Agg")
    options.output.mkdir(parents=True, exist_ok=True)

    settings = {"alpha": 1.0, "kappa": 2000.0, "sigma": 300.0, "kappa0": 300.0}
    corpus, topics = synthetic_corpus(
        options.documents, options.words, options.topics, kappa=2000.0, alpha=0.5
    )
    models = {
        "by hand": model_by_hand(corpus, options.topics, **settings),
        "topics.spherical_admixture": pg.topics.spherical_admixture(
            corpus, options.topics, **settings
        ),
    }
    values, gradients = largest_differences(*models.values())
    print(f"Largest relative difference: log-density {values:.1e}, gradient {gradients:.1e}")

    results = {}
    for name, model in models.items():
        start = time.perf_counter()
        results[name] = sample(
            model, corpus[: options.topics], draws=options.draws, tune=options.tune
        )
        seconds = time.perf_counter() - start
        stats = results[name].sample_stats
        perplexity = pg.topics.log_perplexity(
            results[name],
            corpus[:200],
            alpha=settings["alpha"],
            kappa=settings["kappa"],
            n_draws=15,
            random_seed=SEED,
        )
        print(
            f"{name}: {seconds:.0f} s with compilation, temperature "
            f"{stats['temperature'].mean().item():.3f}, acceptance of theta "
            f"{stats['acceptance_rate'].mean().item():.2f}, log-perplexity {perplexity:.1f}, "
            f"cosines with the true topics {cosines(results[name], topics).round(3)}"
        )
    path = options.output / "spherical_admixture_by_hand.png"
    plot(results, topics).savefig(path, dpi=100)
    print(f"Figure: {path}")


if __name__ == "__main__":
    main()
