"""Clusters of texts: mixtures of von Mises–Fisher distributions on 20 Newsgroups.

Texts of five groups, unit vectors of the tf-idf of their most frequent words (d = 2,000,
sparse), are clustered without the labels by spherical k-means, by a mixture fitted by expectation
maximization, and by its posterior, sampled with GMC. Mixtures have a concentration for each cluster
or a shared one. The adjusted Rand index compares clusters with groups.

The second data set is household expenditures (40 × 3), for which the R package movMF reports κ =
114.7 and 18.0 with two clusters, 83.3, 181.2 and 62.9 with three; the posterior shows the
uncertainty of κ with forty households.

The last line of output is a JSON object with all results. Run it with
``python examples/vmf_mixture_of_texts.py``; it takes some five minutes, and two with ``--quick``,
which has fewer draws.
"""

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from scipy import sparse
from script_parts import options_parser, save_figure
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfTransformer
from sklearn.metrics import adjusted_rand_score

import pymc_geodesic as pg
from pymc_geodesic.datasets.folder import read_arrays, sparse_rows
from pymc_geodesic.mixtures import (
    component_probabilities,
    spherical_kmeans,
    vmf_mixture,
    vmf_mixture_em,
)

ORIGIN = (
    "20 Newsgroups in its Matlab/Octave version is at http://qwone.com/~jason/20Newsgroups/; the "
    "file must hold the counts as CSR matrices (Xtr_data, Xtr_indices, Xtr_indptr, Xtr_shape, and "
    "the same with Xte), the groups ytr and yte from 1 to 20, and the words vocab."
)
GROUPS = (1, 8, 11, 15, 17)
"""Atheism, cars, hockey, space and guns."""

KINDS = {"own concentrations": False, "one concentration": True}
SEED = 1
HOUSEHOLD = (
    "The file 'household.npz' must hold `X` (40, 4), expenditures on housing, food, goods and "
    "service: the data set `household` of the R package HSAUR3 "
    "(https://cran.r-project.org/package=HSAUR3). Export it from R and store it with `numpy.savez`."
)
MOVMF = {2: [114.7, 18.0], 3: [83.3, 181.2, 62.9]}


def load_texts(data: str | None, n_words: int) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Return tf-idf unit vectors, groups and words."""
    arrays = read_arrays("20news_bow_61188.npz", data_home=data, origin=ORIGIN)
    counts = sparse.csr_array(sparse_rows(arrays, "Xtr"))
    groups, words = arrays["ytr"], arrays["vocab"].astype(str)
    counts = counts[np.isin(groups, GROUPS)]
    groups = groups[np.isin(groups, GROUPS)]
    frequency = np.asarray((counts > 0).sum(axis=0)).ravel().astype(float)
    frequency[np.isin(words, list(ENGLISH_STOP_WORDS))] = 0.0
    kept = np.sort(np.argsort(-frequency, kind="stable")[:n_words])
    texts = sparse.csr_array(TfidfTransformer(sublinear_tf=True).fit_transform(counts[:, kept]))
    some = np.diff(texts.indptr) > 0
    return texts[some], groups[some], words[kept]


def load_household(data: str | None) -> np.ndarray:
    """Return expenditures on housing, food and service as unit vectors, as in the movMF paper."""
    arrays = read_arrays("household.npz", data_home=data, origin=HOUSEHOLD)
    spent = arrays["X"][:, [0, 1, 3]].astype(float)
    return spent / np.linalg.norm(spent, axis=1, keepdims=True)


def sample(model: pm.Model, *, draws: int, tune: int) -> tuple[Any, float]:
    """Sample with default settings; return draws and seconds."""
    began = time.perf_counter()
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pm.sample(
            draws=draws, tune=tune, chains=2, step=pg.GMC(), random_seed=SEED, progressbar=False,
        )  # fmt: skip
    return idata, time.perf_counter() - began


def cluster_texts(texts: Any, groups: np.ndarray, *, draws: int, tune: int) -> dict[str, Any]:
    """Cluster by k-means, maximum likelihood and the posterior."""
    found: dict[str, Any] = {"texts": texts.shape[0], "words": texts.shape[1]}
    began = time.perf_counter()
    _, cluster = spherical_kmeans(texts, len(GROUPS), random_seed=SEED)
    found["spherical k-means"] = {
        "adjusted_rand": adjusted_rand_score(groups, cluster),
        "seconds": time.perf_counter() - began,
    }
    for kind, shared in KINDS.items():
        began = time.perf_counter()
        fit = vmf_mixture_em(texts, len(GROUPS), shared_kappa=shared, random_seed=SEED)
        found[f"maximum likelihood, {kind}"] = {
            "adjusted_rand": adjusted_rand_score(groups, fit.probabilities.argmax(axis=1)),
            "log_likelihood": fit.log_likelihood,
            "kappa": fit.kappa.round(1).tolist(),
            "seconds": time.perf_counter() - began,
        }
        model = vmf_mixture(texts, len(GROUPS), shared_kappa=shared, random_seed=SEED)
        idata, seconds = sample(model, draws=draws, tune=tune)
        found[f"posterior, {kind}"] = describe(idata, texts, groups, seconds)
    return found


def describe(idata: Any, texts: Any, groups: np.ndarray, seconds: float) -> dict[str, Any]:
    """Summarize the draws: clusters, adjusted Rand index and convergence."""
    n_draws = idata.posterior.sizes["chain"] * idata.posterior.sizes["draw"]
    soft = component_probabilities(idata, texts, n_draws=min(100, n_draws))
    summary = az.summary(idata, var_names=["kappa", "weights"], fmt="wide", round_to="none")
    return {
        "adjusted_rand": adjusted_rand_score(groups, soft.argmax("component")),
        "mean_probability_of_label": float(soft.max("component").mean()),
        "kappa": idata.posterior["kappa"].mean(("chain", "draw")).values.round(1).tolist(),
        "kappa_sd": idata.posterior["kappa"].std(("chain", "draw")).values.round(2).tolist(),
        "r_hat": float(summary["r_hat"].astype(float).max()),
        "ess": float(summary["ess_bulk"].astype(float).min()),
        "seconds": seconds,
    }


def cluster_households(data: str | None, *, draws: int) -> tuple[dict[str, Any], Any]:
    """Concentrations by maximum likelihood and by the posterior, and those reported by movMF."""
    points = load_household(data)
    found, draws_of_two = {}, None
    for n_components, published in MOVMF.items():
        fit = vmf_mixture_em(points, n_components, n_restarts=30, random_seed=SEED)
        idata, seconds = sample(vmf_mixture(points, n_components), draws=draws, tune=draws)
        kappa = idata.posterior["kappa"].stack(sample=("chain", "draw"))
        order = np.argsort(-fit.weights)
        found[str(n_components)] = {
            "movMF": published,
            "maximum_likelihood": fit.kappa[order].round(1).tolist(),
            "posterior_median": kappa.median("sample").values.round(1).tolist(),
            "posterior_90%": kappa.quantile([0.05, 0.95], "sample").values.T.round(1).tolist(),
            "r_hat": float(az.rhat(idata, var_names=["kappa"]).max()["kappa"]),
            "seconds": seconds,
        }
        draws_of_two = kappa if draws_of_two is None else draws_of_two
    return found, draws_of_two


def methods(found: dict[str, Any]) -> list[str]:
    """Names of the clustering methods."""
    return [name for name, one in found["texts"].items() if isinstance(one, dict)]


def plot(found: dict[str, Any], kappa: Any, folder: Path) -> Path:
    """Plot the adjusted Rand indices, and the posterior of κ for the households."""
    matplotlib.use("Agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained")
    names = methods(found)
    left.barh(names[::-1], [found["texts"][n]["adjusted_rand"] for n in names[::-1]], color="C0")
    left.set(xlabel="adjusted Rand index", title="five groups of texts")
    for component, published in enumerate(sorted(MOVMF[2])):
        values = np.sort(kappa.values, axis=0)[component]
        right.hist(np.log10(values), 60, density=True, alpha=0.6, color=f"C{component + 1}")
        label = "published maximum" if component == 0 else None
        right.axvline(np.log10(published), color=f"C{component + 1}", linestyle="--", label=label)
    right.legend()
    right.set(xlabel=r"$\log_{10}\kappa$", ylabel="posterior density",
              title="two clusters of households")  # fmt: skip
    return save_figure(figure, folder, "vmf_mixture_of_texts")


def main(arguments: list[str] | None = None) -> None:
    options = options_parser(__doc__, "fewer draws").parse_args(arguments)
    logging.getLogger("pymc").setLevel(logging.ERROR)
    texts, groups, _ = load_texts(options.data, 2_000)
    draws = 250 if options.quick else 1_000
    print(f"{texts.shape[0]:,} texts of {len(GROUPS)} groups, {texts.shape[1]:,} words")
    found: dict[str, Any] = {"texts": cluster_texts(texts, groups, draws=draws, tune=draws)}
    for name in methods(found):
        one = found["texts"][name]
        print(f"{name:>38}: adjusted Rand index {one['adjusted_rand']:.3f}, {one['seconds']:.1f} s")
    found["households"], kappa = cluster_households(options.data, draws=1_000)
    for n_components, one in found["households"].items():
        print(f"households, {n_components} clusters: κ by movMF {one['movMF']}, here "
              f"{one['maximum_likelihood']}, posterior {one['posterior_90%']}")  # fmt: skip
    print(f"plot: {plot(found, kappa, options.output)}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
