"""Accuracy of topic proportions as features: spherical topics, LDA and matrix factorization.

The data are three groups of 20 Newsgroups: 1,666 labeled and 1,107 unlabeled texts, 5,000 words.
Each method finds 20 topics in all texts without labels. A logistic regression on the topic
proportions is fitted to the labeled texts and predicts the groups of the others; its penalty is
chosen by cross-validation. The baseline is a logistic regression on the tf-idf weights of all
words. Spherical topics and factorizations use tf-idf weights, LDA uses counts.

The last line of output is a JSON object with all results. Run it with
``python examples/topic_features.py --data FOLDER``; tomotopy and gensim are included if they are
installed.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from scipy import sparse
from script_parts import options_parser
from sklearn.decomposition import NMF
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from topic_baselines import topics_by_others

import pymc_geodesic as pg
from pymc_geodesic.datasets import load_20news_different

N_TOPICS, BATCH_SIZE, SEEDS = 20, 50, (1, 2, 3)
SPHERES: dict[str, Any] = {"alpha": 10.0, "kappa": 3e4, "sigma": 1e4, "kappa0": 1e4}
ALPHA, BETA = 0.1, 0.01


def by_sampler(draws: int) -> Callable[..., np.ndarray]:
    """Return a function that computes posterior mean proportions by `SGGMC`."""

    def shares(vectors: sparse.csr_array, seed: int) -> np.ndarray:
        with pg.topics.spherical_admixture(vectors, N_TOPICS, **SPHERES):
            idata = pm.sample(
                draws, tune=draws, chains=1, random_seed=seed, progressbar=False, quiet=True,
                compute_convergence_checks=False, var_names=["theta"],
                step=pg.SGGMC(minibatch=["V"], local=["theta"], batch_size=BATCH_SIZE),
            )  # fmt: skip
        return idata.posterior["theta"].mean(("chain", "draw")).values

    return shares


def by_variational_inference(vectors: sparse.csr_array, seed: int) -> np.ndarray:
    """Return variational means of the proportions."""
    fit = pg.topics.spherical_admixture_vi(
        vectors, N_TOPICS, **SPHERES, random_seed=seed, progressbar=False
    )
    concentration = fit["variational"]["theta_concentration"].values
    return concentration / concentration.sum(axis=1, keepdims=True)


def by_factorization(vectors: sparse.csr_array, seed: int) -> np.ndarray:
    """Return normalized factors of a nonnegative matrix factorization."""
    factors = NMF(N_TOPICS, max_iter=500, random_state=seed).fit_transform(vectors) + 1e-9
    return factors / factors.sum(axis=1, keepdims=True)


def evaluate(features: Any, groups: np.ndarray, n_train: int) -> dict[str, float]:
    """Return accuracy and logarithmic loss on the unlabeled texts."""
    scale = "passthrough" if sparse.issparse(features) else StandardScaler()
    model = GridSearchCV(
        make_pipeline(scale, LogisticRegression(max_iter=2000)),
        {"logisticregression__C": np.logspace(-2, 4, 7)},
        scoring="neg_log_loss",
    )
    model.fit(features[:n_train], groups[:n_train])
    probabilities = model.predict_proba(features[n_train:])
    predicted = model.classes_[probabilities.argmax(axis=1)]
    unseen = groups[n_train:]
    return {
        "accuracy": float(accuracy_score(unseen, predicted)),
        "log_loss": float(log_loss(unseen, probabilities, labels=model.classes_)),
    }


def main() -> None:
    """Print a table of all methods."""
    parser = options_parser(__doc__, "one seed, and fewer draws")
    options = parser.parse_args()
    weights = load_20news_different(options.data)
    counts = load_20news_different(options.data, features="counts")
    groups = np.concatenate([weights.train_titles, weights.test_titles])
    vectors = sparse.csr_array(sparse.vstack([weights.train, weights.test]))
    n_train = weights.train.shape[0]
    seeds = SEEDS[:1] if options.quick else SEEDS
    draws = 200 if options.quick else 1000

    def of_counts(name: str) -> Callable[[Any, int], np.ndarray]:
        def shares(_: Any, seed: int) -> np.ndarray:
            method = topics_by_others(N_TOPICS, ALPHA, BETA, sweeps=draws // 4, seed=seed)[name]
            return np.concatenate(method(counts.train, counts.test))

        return shares

    methods: dict[str, Callable[[Any, int], Any]] = {
        "SAM, SGGMC": by_sampler(draws),
        "SAM, variational inference": by_variational_inference,
        "NMF by scikit-learn": by_factorization,
    }
    for name in topics_by_others(N_TOPICS, ALPHA, BETA, sweeps=1, seed=1):
        methods[name.removesuffix(", then LinearSVC")] = of_counts(name)
    methods["all words"] = lambda words, _: words
    print("| topics | accuracy | log loss | processor seconds |\n|---|---:|---:|---:|", flush=True)
    table: dict[str, Any] = {}
    for name, shares in methods.items():
        began = time.process_time()
        found = [evaluate(shares(vectors, seed), groups, n_train) for seed in seeds]
        seconds = (time.process_time() - began) / len(seeds)
        of = {key: [each[key] for each in found] for key in found[0]}
        table[name] = of | {"seconds": seconds}
        cells = [f"{np.mean(of[key]):.3f} ± {np.std(of[key]):.3f}" for key in of]
        print(f"| {name} | {cells[0]} | {cells[1]} | {seconds:.0f} |", flush=True)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
