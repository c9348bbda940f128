"""Bayesian support vector machines on 20 Newsgroups, with all words and sparse rows.

11,269 training and 7,505 test documents over 61,188 words; English stop words are dropped, the rest
is weighted by tf-idf and each document scaled to unit length. Two classifiers with one vector of
weights for each of the 20 groups, 1.2 million in total: one against the rest (20 hinge losses per
document) and the joint loss of Crammer and Singer. The thermostats of gSGNHT run on minibatches
of 100 documents; LinearSVC of scikit-learn on the same features is the point estimate for
comparison.

Two figures: test accuracy of the posterior mean over the wall time, tuning included; and the time
of a step against the number of words, of which the most frequent are kept. Run it with
``python examples/svm_20newsgroups.py``; it takes some three minutes. ``PYMC_GEODESIC_DATA`` names
the data folder.
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy import sparse
from script_parts import parse_options
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer
from sklearn.svm import LinearSVC

import pymc_geodesic as pg
from pymc_geodesic.datasets.folder import read_arrays, sparse_rows

ORIGIN = (
    "20 Newsgroups in its Matlab/Octave version is at http://qwone.com/~jason/20Newsgroups/; the "
    "file must hold the counts as CSR matrices (Xtr_data, Xtr_indices, Xtr_indptr, Xtr_shape, and "
    "the same with Xte), the groups ytr and yte from 1 to 20, and the words vocab."
)
N_GROUPS, BATCH, N_STEPS, SEED = 20, 100, 10, 1
COST, PRIOR_SCALE = 100.0, 0.1
"""Equivalent to C = cost · prior_scale² = 1 of LinearSVC; the likelihood dominates the prior."""

SETTINGS: dict[str, dict[str, float]] = {
    "one against the rest": {},
    "Crammer and Singer": {"step_size": 2e-3, "friction": 50.0},
}
"""Step sizes of losses for which they are not tuned."""

WIDTHS = (500, 2_000, 8_000, 20_000, 61_188)


class Documents(NamedTuple):
    """Features and groups, counted from 0.

    Attributes
    ----------
    train, test : csr_matrix
    train_groups, test_groups : ndarray
    """

    train: sparse.csr_matrix
    train_groups: np.ndarray
    test: sparse.csr_matrix
    test_groups: np.ndarray


def read_documents(data: str | None, n_words: int | None = None) -> Documents:
    """Read the counts and weight them; keep the ``n_words`` most frequent words."""
    arrays = read_arrays("20news_bow_61188.npz", data_home=data, origin=ORIGIN)
    train, test = (sparse_rows(arrays, part).astype(float) for part in ("Xtr", "Xte"))
    kept = np.array([word not in ENGLISH_STOP_WORDS for word in arrays["vocab"]])
    if n_words is not None:
        frequency = np.bincount(train.indices, minlength=train.shape[1]) * kept
        kept = np.zeros(len(kept), dtype=bool)
        kept[np.argsort(-frequency)[:n_words]] = True
        train, test = train[:, kept], test[:, kept]
    else:
        # The columns stay, so that the width is that of the data.
        train, test = (part @ sparse.diags(kept.astype(float)) for part in (train, test))
    parts = [sparse.csr_matrix(part) for part in (train, test)]
    for part in parts:
        part.eliminate_zeros()
    weights = TfidfTransformer(sublinear_tf=True).fit(parts[0])
    train, test = (sparse.csr_matrix(weights.transform(part)) for part in parts)
    groups = [arrays[name].astype(int) - 1 for name in ("ytr", "yte")]
    return Documents(train, groups[0], test, groups[1])


def build_model(documents: Documents, loss: str) -> pm.Model:
    """Return one of the two classifiers."""
    groups = documents.train_groups
    with pm.Model() as model:
        X = pg.SparseData("X", documents.train)
        w = pm.Normal("weights", 0.0, PRIOR_SCALE, shape=(documents.train.shape[1], N_GROUPS))
        if loss == "one against the rest":
            signs = np.where(groups[:, None] == np.arange(N_GROUPS), 1, -1)
            pg.Hinge("label", X @ w, COST, observed=pm.Data("y", signs))
        else:
            pg.MulticlassHinge("label", X @ w, COST, observed=pm.Data("y", groups))
    return model


def accuracy(weights: np.ndarray, documents: Documents) -> float:
    """Percentage of test documents whose own group has the largest score."""
    scores = documents.test @ weights
    return 100.0 * float(np.mean(scores.argmax(axis=1) == documents.test_groups))


def sample(documents: Documents, loss: str, n_tune: int, n_draws: int) -> dict[str, Any]:
    """Run one chain from w = 0; return accuracies of the running mean and sample statistics."""
    with build_model(documents, loss) as model:
        step = pg.gSGNHT(batch_size=BATCH, minibatch=["X", "y"], n_steps=N_STEPS, **SETTINGS[loss])
        start = {name: np.zeros_like(value) for name, value in model.initial_point().items()}
    step.setup_chain(np.random.default_rng(SEED), tune=n_tune, draws=n_draws)
    step.step(start)  # compiles
    step.setup_chain(np.random.default_rng(SEED), tune=n_tune, draws=n_draws)
    point, total, stats = start, np.zeros_like(start["weights"]), []
    seconds, percent, elapsed = [], [], 0.0
    for draw in range(n_tune + n_draws):
        if draw == n_tune:
            step.stop_tuning()
        begin = time.perf_counter()
        point, (stat,) = step.step(point)
        if draw >= n_tune:
            total += point["weights"]
            stats.append((stat["step_size"], stat["temperature"]))
        elapsed += time.perf_counter() - begin
        if draw >= n_tune and (draw - n_tune) % 10 == 0:
            seconds.append(elapsed)
            percent.append(accuracy(total, documents))
    step_size, temperature = np.array(stats).T
    return {
        "seconds": seconds,
        "percent": percent,
        "accuracy": accuracy(total, documents),
        "accuracy of one draw": accuracy(point["weights"], documents),
        "temperature": float(temperature.mean()),
        "step size": float(step_size[-1]),
        "steps": (n_tune + n_draws) * N_STEPS,
        "milliseconds per step": 1e3 * elapsed / ((n_tune + n_draws) * N_STEPS),
    }


def step_times(documents: Documents, repeats: int = 10) -> float:
    """Milliseconds of an inner step at fixed settings, the median over draws."""
    with build_model(documents, "Crammer and Singer") as model:
        step = pg.gSGNHT(
            step_size=1e-3, friction=20.0, batch_size=BATCH, minibatch=["X", "y"], n_steps=N_STEPS
        )
    step.setup_chain(np.random.default_rng(SEED), tune=0, draws=10**6)
    point, times = model.initial_point(), []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        point, _ = step.step(point)
        times.append(1e3 * (time.perf_counter() - begin) / N_STEPS)
    return float(np.median(times[1:]))


def main() -> None:
    """Run both classifiers, measure the time of a step, write the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None, help="data folder")
    parser.add_argument("--tune", type=int, default=100)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parse_options(parser, tune=20, draws=40)
    matplotlib.use("Agg")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    documents = read_documents(arguments.data)
    begin = time.perf_counter()
    point_estimate = LinearSVC().fit(documents.train, documents.train_groups)
    summary: dict[str, Any] = {
        "LinearSVC": 100.0 * point_estimate.score(documents.test, documents.test_groups),
        "LinearSVC, seconds": time.perf_counter() - begin,
        "non-zeros per document": documents.train.nnz / documents.train.shape[0],
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.axhline(summary["LinearSVC"], color="0.5", linestyle="--", label="LinearSVC")
    for loss in SETTINGS:
        result = sample(documents, loss, arguments.tune, arguments.draws)
        left.plot(result.pop("seconds"), result.pop("percent"), label=loss)
        summary[loss] = result
    left.set(xlabel="wall time (s)", ylabel="test accuracy of the mean so far (%)")
    left.legend()
    times = {}
    for width in WIDTHS:
        fewer = read_documents(arguments.data, width)
        times[width] = step_times(fewer)
        summary[f"milliseconds per step at {width:,} words"] = times[width]
    right.plot(list(times), list(times.values()), "o-")
    right.set(
        xscale="log", yscale="log", xlabel="words", ylabel=f"time of a step of {BATCH} texts (ms)"
    )
    arguments.output.mkdir(exist_ok=True, parents=True)
    figure.savefig(arguments.output / "svm_20newsgroups.png", dpi=150)
    (arguments.output / "svm_20newsgroups.json").write_text(json.dumps(summary, indent=1))
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
