"""Max-margin topics for twenty classes: Gibbs MedLDA on all newsgroups.

11,269 training and 7,505 test texts, words in five texts or more without stop words, 20 and 50
topics, α = β = 1, cost 16, margin 4. Accuracy against documents processed and processor seconds is
compared for data augmentation and online passive-aggressive learning with one-vs-rest classifiers,
SSGRLD with the multiclass hinge, and a support vector machine on words.

The last line of output is a JSON object with all results. Run it with
``python examples/medlda_20groups.py``; it takes some ten minutes of processor time, and two with
``--quick``, which has 20 topics and fewer texts. ``--topics`` sets the numbers of topics.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from medlda_20news import ORIGIN, follow, label_scores, timed
from scipy import sparse
from script_parts import options_parser, save_figure
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer
from sklearn.svm import LinearSVC

from pymc_geodesic.datasets.folder import read_arrays, sparse_rows
from pymc_geodesic.topics import (
    medlda_gibbs,
    medlda_passive_aggressive,
    medlda_ssgrld,
    topics_by_class,
)

SETTINGS: dict[str, float] = {"alpha": 1.0, "beta": 1.0, "cost": 16.0, "margin": 4.0}
"""A wide margin is not attainable for one-vs-rest classifiers with 95 % negative labels."""


STYLES = {"20 topics": "--", "80 topics": "-.", "110 topics": ":"}


def samplers(n_topics: int, *, sweeps: int, passes: int) -> dict[str, Callable[..., Any]]:
    """Return samplers by name, each with the number of steps of a pass."""

    def augmentation(counts: Any, labels: Any, **more: Any) -> Any:
        return medlda_gibbs(counts, labels, n_topics, draws=sweeps, tune=0, **SETTINGS, **more)

    def ssgrld(counts: Any, labels: Any, **more: Any) -> Any:
        return medlda_ssgrld(
            counts, labels, n_topics, loss="multiclass", batch_size=512, n_steps=11,
            draws=max(2 * passes, 1), tune=0, **SETTINGS, **more,
        )  # fmt: skip

    def passive_aggressive(counts: Any, labels: Any, **more: Any) -> Any:
        return medlda_passive_aggressive(
            counts, labels, n_topics, n_steps=22, draws=max(8 * passes, 1), **SETTINGS,
            **more,
        )  # fmt: skip

    return {
        "data augmentation": augmentation,
        "SSGRLD (SCIR)": ssgrld,
        "passive-aggressive": passive_aggressive,
    }


def load_texts(data: str | None, *, every: int = 1) -> dict[str, Any]:
    """Return one in ``every`` texts, with words in five texts or more that are not stop words."""
    arrays = read_arrays("20news_bow_61188.npz", data_home=data, origin=ORIGIN)
    words, groups = arrays["vocab"].astype(str), arrays["label_names"].astype(str)
    train = sparse.csr_array(sparse_rows(arrays, "Xtr"))[::every]
    test = sparse.csr_array(sparse_rows(arrays, "Xte"))[::every]
    labels, test_labels = (arrays[name][::every].astype(int) - 1 for name in ("ytr", "yte"))
    kept = np.asarray((train > 0).sum(axis=0)).ravel() >= 5
    kept &= ~np.isin(words, list(ENGLISH_STOP_WORDS))
    return {
        "all": (train, test), "train": train[:, kept], "test": test[:, kept],
        "labels": labels, "words": words[kept], "groups": groups,
        "test_labels": groups[test_labels],
    }  # fmt: skip


def learn(
    texts: dict[str, Any], way: str, n_topics: int, *, sweeps: int, passes: int, seed: int
) -> tuple[dict[str, Any], Any]:
    """Return the learning curve of one sampler, and the topics of the groups."""
    sampler = samplers(n_topics, sweeps=sweeps, passes=passes)[way]
    idata = timed(sampler, texts, classes=texts["groups"], random_seed=seed)
    curve = follow(idata, texts, 5, seed, last=2, n_tune=5, n_sweeps=5)
    table = topics_by_class(idata.isel(draw=slice(-2, None)), texts["groups"][texts["labels"]], n=4)
    last = {name: curve[name][-1] for name in ("accuracy", "documents", "seconds")}
    print(f"{way}, {n_topics} topics: {last}", flush=True)
    return curve, table


def linear_machine(texts: dict[str, Any]) -> dict[str, float]:
    """Scores of a support vector machine on all words."""
    tfidf = TfidfTransformer(sublinear_tf=True)
    train, test = texts["all"]
    machine = LinearSVC(random_state=0).fit(tfidf.fit_transform(train), texts["labels"])
    label = texts["groups"][machine.predict(tfidf.transform(test))]
    return label_scores(texts["test_labels"], label)


def plot(curves: dict[str, dict[str, Any]], machine: float, table: Any, folder: Path) -> Path:
    """Plot accuracy against documents and seconds, and the topic proportions of the groups."""
    matplotlib.use("Agg")
    figure, axes = plt.subplots(
        1, 3, figsize=(13.0, 5.0), layout="constrained", width_ratios=(1, 1, 1.6)
    )
    colors = {
        name: f"C{i}" for i, name in enumerate(dict.fromkeys(c.split(", ")[0] for c in curves))
    }
    for axis, by in zip(axes[:2], ("documents", "seconds"), strict=True):
        for name, curve in curves.items():
            style = STYLES.get(name.split(", ")[1], "-")
            color = colors[name.split(", ")[0]]
            axis.semilogx(curve[by], curve["accuracy"], f".{style}", color=color, label=name)
        axis.axhline(machine, color="gray", linestyle=":", label="LinearSVC, all words")
        label = "processor seconds" if by == "seconds" else by
        axis.set(xlabel=label, ylabel="test accuracy", ylim=(0, 1))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    shares = table["proportions"].values
    order = np.argsort(shares.argmax(axis=0) - shares.max(axis=0) / 2, kind="stable")
    image = axes[2].imshow(shares[:, order], cmap="Blues", vmin=0, aspect="auto")
    axes[2].set_yticks(np.arange(len(shares)), table["class"].values, fontsize=7)
    axes[2].set(xlabel="topic", title="average share in the texts of a group", xticks=[])
    figure.colorbar(image, ax=axes[2])
    return save_figure(figure, folder, "medlda_20groups")


def main(arguments: list[str] | None = None) -> None:
    parser = options_parser(__doc__, "20 topics, every third text")
    parser.add_argument("--topics", type=int, nargs="+", default=[20, 50])
    options = parser.parse_args(arguments)
    texts = load_texts(options.data, every=3 if options.quick else 1)
    effort = {"sweeps": 12, "passes": 2} if options.quick else {"sweeps": 20, "passes": 3}
    few = {name: texts[name][:64] for name in ("train", "test", "labels", "test_labels")}
    for way in samplers(20, sweeps=1, passes=0):  # compile
        learn(texts | few, way, 20, sweeps=1, passes=0, seed=0)
    curves: dict[str, Any] = {}
    for n_topics in (20,) if options.quick else options.topics:
        for way in samplers(n_topics, **effort):
            curves[f"{way}, {n_topics} topics"], table = learn(
                texts, way, n_topics, **effort, seed=0
            )
    machine = linear_machine(texts)
    print(f"LinearSVC: accuracy {machine['accuracy']:.3f}")
    words = dict(zip(table["class"].values.tolist(), table["word"].values.tolist(), strict=True))
    for group, one in words.items():
        print(f"{group:>26}: {', '.join(one)}")
    print(f"plot: {plot(curves, machine['accuracy'], table, options.output)}")
    largest = np.sort(table["proportions"].values, axis=1)[:, ::-1]
    print(json.dumps({
        "curves": curves, "LinearSVC": machine, "salient_words": words,
        "share_of_two_largest_topics": float(largest[:, :2].sum(axis=1).mean()),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
