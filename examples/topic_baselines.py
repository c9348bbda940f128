"""Baselines for max-margin topic models, imported by other scripts.

- `topics_by_others`: LDA by this package, scikit-learn and, where they are installed, gensim and
  tomotopy.
- `supervised_lda`: supervised LDA by tomotopy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation

from pymc_geodesic.topics import lda_gibbs


def tokens(counts: Any) -> list[list[str]]:
    """Return the word indices of each text as strings."""
    rows = sparse.csr_array(counts)
    return [
        np.repeat(rows.indices[a:b], rows.data[a:b].astype(int)).astype(str).tolist()
        for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)
    ]


def topics_by_others(
    n_topics: int, alpha: float, beta: float, *, sweeps: int, seed: int
) -> dict[str, Callable[..., Any]]:
    """Return unsupervised topic models by name: functions that return topic proportions."""

    def collapsed(train: Any, test: Any) -> Any:
        both = sparse.csr_array(sparse.vstack([train, test]))
        run = lda_gibbs(both, n_topics, alpha, beta, draws=5, tune=sweeps, random_seed=seed)
        theta = run["posterior"]["theta"].mean(("chain", "draw")).values
        return theta[: train.shape[0]], theta[train.shape[0] :]

    def scikit_learn(train: Any, test: Any) -> Any:
        lda = LatentDirichletAllocation(
            n_topics, doc_topic_prior=alpha, topic_word_prior=beta, learning_method="online",
            max_iter=20, random_state=seed,
        )  # fmt: skip
        return lda.fit_transform(train), lda.transform(test)

    def gensim(train: Any, test: Any) -> Any:
        from gensim.matutils import Sparse2Corpus
        from gensim.models import LdaModel

        texts = [Sparse2Corpus(sparse.csc_matrix(each.T)) for each in (train, test)]
        words = {i: str(i) for i in range(train.shape[1])}
        lda = LdaModel(
            texts[0], n_topics, id2word=words, alpha=[alpha] * n_topics, eta=beta, passes=20,
            random_state=seed,
        )  # fmt: skip
        gamma = [lda.inference(list(each))[0] for each in texts]
        return tuple(each / each.sum(axis=1, keepdims=True) for each in gamma)

    def tomotopy(train: Any, test: Any) -> Any:
        import tomotopy as tp

        lda = tp.LDAModel(k=n_topics, alpha=alpha, eta=beta, seed=seed)
        for words in tokens(train):
            lda.add_doc(words)
        lda.train(sweeps, workers=1)
        new = [lda.make_doc(words) for words in tokens(test)]
        theta = lda.infer(new, workers=1)[0]
        return np.array([one.get_topic_dist() for one in lda.docs]), np.array(theta)

    ways = {
        "LDA, then LinearSVC": collapsed,
        "LDA by scikit-learn, then LinearSVC": scikit_learn,
    }
    for package, way in (("gensim", gensim), ("tomotopy", tomotopy)):
        if importlib.util.find_spec(package):
            ways[f"LDA by {package}, then LinearSVC"] = way
    return ways


def supervised_lda(
    train: Any, labels: Any, test: Any, n_topics: int, alpha: float, beta: float, *, sweeps: int,
    seed: int,
) -> np.ndarray:  # fmt: skip
    """Predict labels −1 and +1 by tomotopy's topics with a logistic regression on them."""
    import tomotopy as tp

    model = tp.SLDAModel(k=n_topics, vars=["b"], alpha=alpha, eta=beta, seed=seed)
    for words, label in zip(tokens(train), labels, strict=True):
        model.add_doc(words, y=[float(label > 0)])
    model.train(sweeps, workers=1)
    new = [model.make_doc(words) for words in tokens(test)]
    model.infer(new, workers=1)
    return np.where(np.array([model.estimate(one)[0] for one in new]) > 0.5, 1, -1)
