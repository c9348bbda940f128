"""Infinite support vector machines on protein folds and ijcnn1, as in table 2 of the paper.

A Dirichlet-process mixture of linear large-margin experts, its weights drawn by stochastic
subgradient thermostats on minibatches (SSGNHT within Gibbs) or by data augmentation, and one of
multinomial logit models (dpMNL), compared with a linear support vector machine, a multinomial logit
model and a support vector machine with a Gaussian kernel. Protein folds: 694 rows of 21 features,
27 classes, five-fold cross-validation, ten chains. ijcnn1: 49,990 training rows of 22 features,
91,701 test rows.

The last line of output is a JSON object with all results: accuracies, and processor seconds of the
weight updates and in total. Run it with ``python examples/infinite_svm.py``; it takes
eight minutes of processor time, and one with ``--quick``: one fold, fewer sweeps, 10,000 rows of
ijcnn1. ``--data-set protein`` or ``--data-set ijcnn1`` runs one of them.
"""

import json
import time
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from script_parts import options_parser, save_figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from pymc_geodesic.datasets.folder import read_arrays, sparse_rows
from pymc_geodesic.mixtures import (
    dp_multinomial_logit_sgnht,
    infinite_svm,
    predict,
)

PROTEIN = (
    "Ding and Dubchak's protein folds (2001): composition and length; the file must hold features "
    "and labels of both parts."
)
IJCNN1 = "ijcnn1 is at https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html."
SEED = 1

SETTINGS: dict[str, dict[str, Any]] = {
    "protein": {
        "alpha": 0.01, "scatter": 4.0, "prior_scale": 0.5, "chains": 10,
    },
    "ijcnn1": {"alpha": 5.0, "scatter": 0.3},
}  # fmt: skip
STEPS: dict[str, dict[str, int]] = {
    "protein": {"n_steps": 10, "batch_size": 200},
    "ijcnn1": {"n_steps": 500, "batch_size": 2000},
}
"""Steps of the thermostats in each sweep."""


def load_protein(data: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels 0 … 26 of both parts."""
    arrays = read_arrays("protein_dd_comp_len.npz", data_home=data, origin=PROTEIN)
    X = np.concatenate([arrays["Xtr"], arrays["Xte"]]).astype(float)
    y = np.concatenate([arrays["ytr"], arrays["yte"]])
    return X, np.unique(y, return_inverse=True)[1]


def load_ijcnn1(data: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features and labels 0 and 1 of both parts."""
    arrays = read_arrays("ijcnn1.npz", data_home=data, origin=IJCNN1)
    train, test = (sparse_rows(arrays, part).toarray().astype(float) for part in ("Xtr", "Xte"))
    return train, (arrays["ytr"] > 0).astype(int), test, (arrays["yte"] > 0).astype(int)


def score(
    name: str, method: str, train: tuple, test: tuple, *, draws: int, tune: int
) -> dict[str, float]:
    """Accuracy and seconds of one method on one split."""
    scaler = StandardScaler().fit(train[0])
    (X, y), (X_test, y_test) = ((scaler.transform(X), y) for X, y in (train, test))
    began = time.process_time()
    machines = {
        "linear SVM": LinearSVC(C=1.0),
        "multinomial logit": LogisticRegression(max_iter=1000),
        "kernel SVM": SVC(C=10.0),
    }
    if method in machines:
        machine = machines[method].fit(X, y)
        found = {"accuracy": float(machine.score(X_test, y_test))}
        return found | {"seconds": time.process_time() - began}
    options = {
        "draws": draws, "tune": tune, "n_classes": int(max(y.max(), y_test.max())) + 1,
        "random_seed": SEED, "progressbar": False, **SETTINGS[name],
    }  # fmt: skip
    if method == "dpMNL":
        idata = dp_multinomial_logit_sgnht(X, y, **STEPS[name], **options)
    else:
        steps = STEPS[name] if method == "infinite SVM, SSGNHT" else {"method": "augmentation"}
        idata = infinite_svm(X, y, **steps, **options)
    seconds = time.process_time() - began
    chosen = predict(idata, X_test)
    stats = idata.sample_stats
    share = float(stats["weights_time"].sum() / stats["perf_counter_diff"].sum())
    return {
        "accuracy": float(np.mean(chosen == y_test)),
        "seconds": seconds,
        "seconds_for_weights": share * seconds,
        "experts": float(stats["n_experts"].mean()),
    }


METHODS = (
    "multinomial logit",
    "linear SVM",
    "kernel SVM",
    "dpMNL",
    "infinite SVM, augmentation",
    "infinite SVM, SSGNHT",
)


def run_protein(data: str | None, *, quick: bool) -> dict[str, dict[str, float]]:
    """Average over the folds."""
    X, y = load_protein(data)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=SEED).split(X, y))
    found: dict[str, dict[str, float]] = {}
    for method in METHODS:
        each = [
            score("protein", method, (X[a], y[a]), (X[b], y[b]), draws=50 if quick else 100,
                  tune=50 if quick else 100)
            for a, b in (folds[:1] if quick else folds)
        ]  # fmt: skip
        found[method] = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
        found[method]["rows"] = sum(len(b) for _, b in (folds[:1] if quick else folds))
        print("protein", method, found[method], flush=True)
    return found


def run_ijcnn1(data: str | None, *, quick: bool) -> dict[str, dict[str, float]]:
    """Fit to the training rows and score the test rows."""
    X, y, X_test, y_test = load_ijcnn1(data)
    if quick:  # neighboring rows are similar: every fifth row would leave some features constant
        rng = np.random.default_rng(SEED)
        kept, kept_test = (rng.choice(len(each), 10_000, replace=False) for each in (y, y_test))
        X, y, X_test, y_test = X[kept], y[kept], X_test[kept_test], y_test[kept_test]
    found = {}
    for method in METHODS:
        found[method] = score(
            "ijcnn1", method, (X, y), (X_test, y_test),
            draws=20 if quick else 30, tune=20 if quick else 30,
        )  # fmt: skip
        found[method]["rows"] = len(y_test)
        print("ijcnn1", method, found[method], flush=True)
    return found


def plot(found: dict[str, Any], folder: Path) -> Path:
    """Plot accuracies with standard errors, and seconds in total and of the weight updates."""
    matplotlib.use("Agg")
    figure, axes = plt.subplots(
        len(found), 2, figsize=(9.0, 2.6 * len(found)), layout="constrained", squeeze=False,
        sharey="row",
    )  # fmt: skip
    for (left, right), (name, results) in zip(axes, found.items(), strict=True):
        names = list(results)[::-1]
        accuracy = np.array([results[each]["accuracy"] for each in names])
        error = np.sqrt(accuracy * (1 - accuracy) / results[names[0]]["rows"])
        left.errorbar(100 * accuracy, names, xerr=100 * error, fmt="o")
        left.set(title=name, xlabel="accuracy on held-out rows, %")
        for key, label in (("seconds", "in all"), ("seconds_for_weights", "weights")):
            seconds = [results[each].get(key, np.nan) for each in names]
            right.plot(seconds, names, "o", label=label)
        right.set(xscale="log", xlabel="processor seconds")
        right.legend(fontsize=8)
        for axis in (left, right):
            axis.grid(alpha=0.3)
    return save_figure(figure, folder, "infinite_svm")


def main(arguments: list[str] | None = None) -> None:
    parser = options_parser(__doc__, "one fold, fewer rows and sweeps")
    parser.add_argument("--data-set", choices=list(RUNS), help="one of them; both by default")
    options = parser.parse_args(arguments)
    names = list(RUNS) if options.data_set is None else [options.data_set]
    found = {name: RUNS[name](options.data, quick=options.quick) for name in names}
    print(f"plot: {plot(found, options.output)}")
    print(json.dumps(found))


RUNS = {"protein": run_protein, "ijcnn1": run_ijcnn1}

if __name__ == "__main__":
    main()
