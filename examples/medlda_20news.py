"""Max-margin topics for two classes: Gibbs MedLDA on two newsgroups.

Texts of alt.atheism and talk.religion.misc (856 for training, 569 for testing), stop words removed,
with the settings of the papers: α = β = 1, cost 1, margin 164. Accuracy against documents processed
and processor seconds is compared for

- data augmentation (`medlda_gibbs`), with topics drawn given λ as its authors do, and without λ;
- SSGRLD (`medlda_ssgrld`), minibatches of 64: SCIR and SGRLD for topics, SSGNHT for weights;
- the same with memoized documents, whose counts have no minibatch noise;
- online passive-aggressive learning (`medlda_passive_aggressive`), minibatches of 64;

and for baselines: a support vector machine on all words, one on the topics that LDA finds without
labels (also by scikit-learn, and by gensim and tomotopy where they are installed), and tomotopy's
supervised LDA. A figure shows the curves and the average topics of both classes.

The last line of output is a JSON object with all results. Run it with
``python examples/medlda_20news.py``; it takes some six minutes of processor time, and one with
``--quick``, which has 20 topics and one seed.
"""

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from script_parts import options_parser, save_figure
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer
from sklearn.metrics import accuracy_score, f1_score
from sklearn.svm import LinearSVC
from topic_baselines import supervised_lda, topics_by_others

from pymc_geodesic.datasets.folder import read_arrays, sparse_rows
from pymc_geodesic.schedules import PolynomialDecay
from pymc_geodesic.topics import (
    medlda_gibbs,
    medlda_passive_aggressive,
    medlda_ssgrld,
    predict,
    topics_by_class,
)

ORIGIN = (
    "20 Newsgroups in its Matlab/Octave version is at http://qwone.com/~jason/20Newsgroups/; the "
    "file must hold the counts of alt.atheism and talk.religion.misc as CSR matrices (Xtr_data, "
    "Xtr_indices, Xtr_indptr, Xtr_shape, and the same with Xte), and the labels ytr and yte. The "
    "words are `vocab` of 20news_bow_61188.npz, which holds all groups in the same way, with the "
    "labels from 1 to 20 and the names of the groups in label_names."
)
SETTINGS: dict[str, float] = {"alpha": 1.0, "beta": 1.0, "cost": 1.0, "margin": 164.0}
CLASSES = {-1: "alt.atheism", 1: "talk.religion.misc"}
LEVELS = (0.70, 0.75, 0.78)
"""Accuracies whose first attainment is reported."""

LAST = 5
"""Maximum number of draws over which predictions are averaged."""


def load_texts(data: str | None) -> dict[str, Any]:
    """Return counts without stop words, labels −1 and +1, and the words of the training texts."""
    arrays = read_arrays("medlda_binary.npz", data_home=data, origin=ORIGIN)
    vocabulary = read_arrays("20news_bow_61188.npz", data_home=data, origin=ORIGIN)["vocab"]
    words = vocabulary.astype(str)
    train = sparse.csr_array(sparse_rows(arrays, "Xtr"))
    test = sparse.csr_array(sparse_rows(arrays, "Xte"))
    occurs = np.asarray((train > 0).sum(axis=0)).ravel() > 0
    kept = occurs & ~np.isin(words, list(ENGLISH_STOP_WORDS))
    labels = [2 * arrays[name].astype(int) - 1 for name in ("ytr", "yte")]
    return {
        "all": (train, test),
        "train": train[:, kept],
        "test": test[:, kept],
        "labels": labels[0],
        "test_labels": labels[1],
        "words": words[kept],
    }


def samplers(n_topics: int, *, sweeps: int, passes: int) -> dict[str, Callable[..., Any]]:
    """Return samplers by name: functions of counts, labels and further arguments."""

    def augmentation(counts: Any, labels: Any, **more: Any) -> Any:
        options = {"draws": sweeps, "tune": 0} | SETTINGS | more
        return medlda_gibbs(counts, labels, n_topics, **options)

    def ssgrld(counts: Any, labels: Any, **more: Any) -> Any:
        options = {"draws": passes * 7, "tune": 0, "n_steps": 2, "batch_size": 64} | SETTINGS | more
        return medlda_ssgrld(counts, labels, n_topics, **options)

    def passive_aggressive(counts: Any, labels: Any, **more: Any) -> Any:
        options = {"draws": passes * 7, "n_steps": 2, "batch_size": 64} | SETTINGS | more
        return medlda_passive_aggressive(counts, labels, n_topics, **options)

    return {
        "data augmentation": augmentation,
        "data augmentation, no λ": lambda *a, **k: augmentation(*a, augmented_topics=False, **k),
        "SSGRLD (SCIR)": ssgrld,
        "SSGRLD (SGRLD)": lambda *a, **k: ssgrld(
            *a, topics_by="SGRLD", topic_step=PolynomialDecay(0.01, b=10, gamma=0.6), **k
        ),
        "SSGRLD, memoized": lambda *a, **k: ssgrld(*a, memoize=True, **k),
        "passive-aggressive": passive_aggressive,
    }


def timed(sampler: Callable[..., Any], texts: dict[str, Any], **more: Any) -> Any:
    """Run a sampler; replace wall time by processor time in its sample stats."""
    began = time.process_time()
    idata = sampler(texts["train"], texts["labels"], vocabulary=texts["words"], **more)
    spent = time.process_time() - began
    seconds = idata["sample_stats"]["perf_counter_diff"]
    seconds *= spent / float(seconds.sum())
    return idata


def label_scores(labels: Any, predicted: Any) -> dict[str, float]:
    """Return the accuracy of predicted labels, and F1 averaged over the classes."""
    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "f1": float(f1_score(labels, predicted, average="macro")),
    }


def follow(
    idata: Any, texts: dict[str, Any], n_points: int, seed: int, *, last: int = LAST, **sweeps: int
) -> dict[str, Any]:
    """Test accuracy after some draws, with documents processed and seconds."""
    stats = idata["sample_stats"]
    seconds = stats["perf_counter_diff"].values[0].cumsum()
    n_draws = len(seconds)
    at = np.unique(np.geomspace(1, n_draws, n_points).round().astype(int))
    found: dict[str, Any] = {"documents": [], "seconds": [], "accuracy": [], "f1": []}
    for draw in at:
        recent = idata.isel(draw=slice(draw - min(last, 1 + draw // 4), draw))
        label = predict(recent, texts["test"], random_seed=seed, **sweeps).values
        scores = label_scores(texts["test_labels"], label)
        found["documents"].append(int(stats["documents"].values[0, draw - 1]))
        found["seconds"].append(float(seconds[draw - 1]))
        found["accuracy"].append(scores["accuracy"])
        found["f1"].append(scores["f1"])
    found["training_accuracy"] = float(stats["accuracy"].values[0, -1])
    return found


def summary(curves: list[dict[str, Any]]) -> dict[str, Any]:
    """Return final results over the seeds, and times to the accuracies of `LEVELS`."""
    last = [curve["accuracy"][-1] for curve in curves]
    found: dict[str, Any] = {
        "accuracy": float(np.mean(last)),
        "accuracy_of_seeds": last,
        "f1": float(np.mean([curve["f1"][-1] for curve in curves])),
        "training_accuracy": float(np.mean([curve["training_accuracy"] for curve in curves])),
        "documents": curves[0]["documents"][-1],
        "seconds": float(np.mean([curve["seconds"][-1] for curve in curves])),
        "reached": {},
    }
    for level in LEVELS:
        first = [np.argmax(np.array(curve["accuracy"]) >= level) for curve in curves]
        if all(max(curve["accuracy"]) >= level for curve in curves):
            found["reached"][f"{level:.2f}"] = {
                name: float(np.median([c[name][i] for c, i in zip(curves, first, strict=True)]))
                for name in ("documents", "seconds")
            }
    return found


def baselines(texts: dict[str, Any], n_topics: int, *, sweeps: int, seed: int) -> dict[str, Any]:
    """Fit support vector machines to words, and to LDA topics of all texts."""
    found = {}
    tfidf = TfidfTransformer(sublinear_tf=True)
    for name, (train, test) in {
        "LinearSVC, all words": texts["all"],
        "LinearSVC, no stop words": (texts["train"], texts["test"]),
    }.items():
        began = time.process_time()
        machine = LinearSVC(random_state=seed).fit(tfidf.fit_transform(train), texts["labels"])
        label = machine.predict(tfidf.transform(test))
        scores = label_scores(texts["test_labels"], label)
        seconds = time.process_time() - began
        found[name] = scores | {"seconds": seconds}
    concentrations = {name: SETTINGS[name] for name in ("alpha", "beta")}
    for name, theta_of in topics_by_others(
        n_topics, **concentrations, sweeps=sweeps, seed=seed
    ).items():
        began = time.process_time()
        learn, unseen = theta_of(texts["train"], texts["test"])
        machine = LinearSVC(C=10.0, random_state=seed).fit(learn, texts["labels"])
        scores = label_scores(texts["test_labels"], machine.predict(unseen))
        seconds = time.process_time() - began
        found[name] = scores | {"seconds": seconds}
    if importlib.util.find_spec("tomotopy"):
        began = time.process_time()
        label = supervised_lda(
            texts["train"], texts["labels"], texts["test"], n_topics, **concentrations,
            sweeps=sweeps, seed=seed,
        )  # fmt: skip
        scores = label_scores(texts["test_labels"], label)
        seconds = time.process_time() - began
        found["supervised LDA by tomotopy"] = scores | {"seconds": seconds}
    return found


def plot(
    curves: dict[str, dict[str, Any]], references: dict[str, Any], table: Any, folder: Path
) -> Path:
    """Plot accuracy against documents and seconds, and the topics of the classes."""
    matplotlib.use("Agg")
    figure, axes = plt.subplots(1, 3, figsize=(12.0, 4.2), layout="constrained")
    for axis, by in zip(axes[:2], ("documents", "seconds"), strict=True):
        for name, curve in curves.items():
            axis.semilogx(curve[by], curve["accuracy"], ".-", label=name)
        for name, style in (("LinearSVC, all words", "--"), ("LDA, then LinearSVC", ":")):
            axis.axhline(references[name]["accuracy"], color="gray", linestyle=style, label=name)
        label = "processor seconds" if by == "seconds" else by
        axis.set(xlabel=label, ylabel="test accuracy")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    shares = table["proportions"].values
    order = np.argsort(shares[0] - shares[1])
    for row, name, sign in zip(shares, CLASSES.values(), (-1, 1), strict=True):
        axes[2].barh(np.arange(len(order)), sign * row[order], label=name)
    axes[2].set(xlabel="average share", ylabel="topic, by difference", yticks=[], xlim=(-1, 1))
    axes[2].set_xticks([-1, -0.5, 0, 0.5, 1], ["1", "0.5", "0", "0.5", "1"])
    axes[2].axvline(0, color="gray", linewidth=0.8)
    axes[2].legend(fontsize=7)
    return save_figure(figure, folder, "medlda_20news")


def run(
    texts: dict[str, Any], n_topics: int, seeds: range, *, sweeps: int, passes: int, n_points: int
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Return final results, the curves of the first seed, and the topics of the classes."""
    found, first_curves, table = {}, {}, None
    ways = samplers(n_topics, sweeps=sweeps, passes=passes)
    few = slice(None, None, max(1, len(texts["labels"]) // 64))  # texts are sorted by their labels
    for way in ways.values():  # compile, and fill caches
        way(texts["train"][few], texts["labels"][few], draws=1)
    for name, sampler in ways.items():
        curves = []
        for seed in seeds:
            idata = timed(sampler, texts, random_seed=seed)
            curves.append(follow(idata, texts, n_points, seed))
            if name == "SSGRLD (SCIR)" and table is None:
                last = idata.isel(draw=slice(-LAST, None))
                table = topics_by_class(last, texts["labels"], n=8)
        found[name], first_curves[name] = summary(curves), curves[0]
        print(f"{name:>24}: accuracy {found[name]['accuracy']:.3f}, "
              f"{found[name]['documents']:,} documents, {found[name]['seconds']:.1f} s; first "
              f"{found[name]['reached']}", flush=True)  # fmt: skip
    return found, first_curves, table


def main(arguments: list[str] | None = None) -> None:
    options = options_parser(__doc__, "20 topics, one seed").parse_args(arguments)
    texts = load_texts(options.data)
    seeds = range(1) if options.quick else range(3)
    effort = {"sweeps": 60, "passes": 12, "n_points": 14}
    references = baselines(texts, 20, sweeps=200, seed=0)
    for name, one in references.items():
        print(f"{name:>24}: accuracy {one['accuracy']:.3f}, {one['seconds']:.1f} s")
    by_topics = {}
    for n_topics in (20,) if options.quick else (20, 50):
        print(f"{n_topics} topics")
        by_topics[n_topics], curves, table = run(texts, n_topics, seeds, **effort)
        if n_topics == 20:
            path = plot(curves, references, table, options.output)
            salient = table
    for label, name in CLASSES.items():
        one = salient.sel({"class": label})
        share = float(one["proportions"].sel(topic=int(one["salient"])))
        print(f"{name}: {share:.0%} in topic {int(one['salient'])}: "
              f"{', '.join(one['word'].values)}")  # fmt: skip
    print(f"plot: {path}")
    words = {CLASSES[int(c)]: salient.sel({"class": c})["word"].values.tolist() for c in CLASSES}
    shares = {CLASSES[int(c)]: salient.sel({"class": c})["proportions"].values.round(4).tolist()
              for c in CLASSES}  # fmt: skip
    print(json.dumps({
        "texts": {"train": texts["train"].shape[0], "test": texts["test"].shape[0],
                  "words": texts["train"].shape[1]},
        "baselines": references, "medlda": by_topics, "salient_words": words, "proportions": shares,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
