"""Clusters of users by the pages they visit: a Dirichlet-process mixture of categoricals.

The anonymous Microsoft web data contain the visits of 32,711 users to 294 areas of a web site, as
in section 4.2 of Baker, Fearnhead, Fox and Nemeth (2018). The stochastic slice sampler with
minibatches of 1,000 users, by SCIR and by SGRLD, over five seeds, is compared with exact samplers:
collapsed Gibbs, and the slice sampler with all users and with 1,000 at a time. All chains start
from one sequential pass that assigns the users to clusters. Samplers with minibatches also run from
two other starts: clusters of 5,000 users after 200 sweeps over them, and clusters of all users
after ten sweeps with split-merge proposals, which collapsed Gibbs has too.

The criterion is the perplexity per visit of 5,000 held-out users.

The last line of output is a JSON object with all results. Run it with
``python examples/dp_mixture_msweb.py --data FOLDER``; it takes some six minutes of
processor time, and two with ``--quick``, which runs shorter chains.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from scipy import sparse
from script_parts import options_parser, save_figure

from pymc_geodesic.datasets.folder import read_arrays, sparse_rows
from pymc_geodesic.mixtures import (
    dp_categorical_gibbs,
    dp_categorical_slice,
    dp_categorical_stochastic_slice,
    log_predictive,
)

ORIGIN = (
    "The anonymous Microsoft web data is at https://kdd.ics.uci.edu/databases/msweb/; the file "
    "must hold who visited what as CSR matrices (Xtr_data, Xtr_indices, Xtr_indptr, Xtr_shape, and "
    "the same with Xte), and the names of the areas, title."
)
BETA = 0.03
SEEDS = 5
BATCH = 1000
N_DRAWS = 40
REFERENCES = {"unigram": 50.5, "mixture of 10 by EM": 41.8, "20": 41.0, "50": 40.6}
"""Perplexities of maximum likelihood and expectation maximization for the same users."""

STARTS: dict[str, dict[str, int]] = {
    "": {"start_sweeps": 0},
    ", from 5,000 users": {"start_sweeps": 200},
    ", from split-merge": {"start_sweeps": 10, "start_rows": 10**6, "start_split_merge": 20},
}
"""Options by the suffix of a sampler's name: one pass over the users, clusters of 5,000 users, and
clusters of all users after sweeps with twenty split-merge proposals."""

COLORS = {
    "collapsed Gibbs": "C2",
    "collapsed Gibbs, split-merge": "C8",
    "slice": "C3",
    "slice, 1,000 at a time": "C4",
    "SCIR": "C0",
    "SGRLD": "C1",
}


def load_users(data: str | None) -> tuple[sparse.csr_array, sparse.csr_array, np.ndarray]:
    """Return visits of training and held-out users, and the names of the areas."""
    arrays = read_arrays("msweb.npz", data_home=data, origin=ORIGIN)
    users, others = (sparse.csr_array(sparse_rows(arrays, part)) for part in ("Xtr", "Xte"))
    return users, others, arrays["title"].astype(str)


def make_samplers(
    n_sweeps: int, n_iterations: int
) -> dict[str, tuple[Callable[..., Any], int, int]]:
    """Samplers by name, with iterations and chains."""

    def stochastic(method: str, start: dict[str, int]) -> Callable[..., Any]:
        return lambda users, **options: dp_categorical_stochastic_slice(
            users, beta=BETA, method=method, batch_size=BATCH,
            step_size={"scir": 0.01, "sgrld": 3e-4}[method], **(start | options),
        )  # fmt: skip

    def slices(start: dict[str, int]) -> Callable[..., Any]:
        return lambda users, **options: dp_categorical_slice(
            users, beta=BETA, batch_size=BATCH, **(start | options)
        )

    every = {
        "collapsed Gibbs": (lambda users, **options: dp_categorical_gibbs(
            users, beta=BETA, **options), n_sweeps, 2),
        "collapsed Gibbs, split-merge": (lambda users, **options: dp_categorical_gibbs(
            users, beta=BETA, split_merge=(20, 1), **(options | {"tune": 10})), n_sweeps, 2),
        "slice": (lambda users, **options: dp_categorical_slice(
            users, beta=BETA, **options), n_sweeps, 2),
    }  # fmt: skip
    for name, start in STARTS.items():
        every[f"slice, 1,000 at a time{name}"] = (slices(start), n_iterations, 2)
    for name, start in STARTS.items():
        for method in ("SCIR", "SGRLD"):
            every[f"{method}{name}"] = (stochastic(method.lower(), start), n_iterations, SEEDS)
    return every


def run(sampler: Callable[..., Any], users: Any, n_iterations: int, chains: int) -> Any:
    """Run chains in sequence; return draws, and processor seconds at the first and last draw."""
    thin = max(1, n_iterations // N_DRAWS)
    options = {"tune": 0, "progressbar": False}
    sampler(users[:BATCH], draws=1, **options)  # compiles
    trees, first, last = [], [], []
    for seed in range(chains):
        began = time.process_time()
        sampler(users, draws=1, random_seed=seed, **options)
        first.append(time.process_time() - began)
        began = time.process_time()
        trees.append(
            sampler(users, draws=n_iterations // thin, thin=thin, random_seed=seed, **options)
        )
        last.append(time.process_time() - began)
    return trees, float(np.mean(first)), float(np.mean(last))


def describe(trees: list[xr.DataTree], others: Any, first: float, last: float) -> dict[str, Any]:
    """Perplexities of draws one by one, and of averages over the second half."""
    visits = float(others.sum())
    curves, halves, both = [], [], []
    for tree in trees:
        log_p = log_predictive(tree, others, average=False).values[0]
        curves.append(np.exp(-log_p.sum(axis=1) / visits))
        half = log_p[len(log_p) // 2 :]
        both.append(half)
        halves.append(_perplexity(half, visits))
    clusters = np.array([tree.posterior["n_clusters"].values[0] for tree in trees])
    return {
        "perplexity_of_last_draw": np.round([curve[-1] for curve in curves], 2).tolist(),
        "perplexity_of_second_half": np.round(halves, 2).tolist(),
        "perplexity_of_all_chains": round(_perplexity(np.concatenate(both), visits), 2),
        "clusters": clusters[:, -1].tolist(),
        "alpha": np.round([tree.posterior["alpha"].values[0, -1] for tree in trees], 2).tolist(),
        "seconds_of_start": round(first, 2),
        "seconds": round(last, 2),
        "curves": np.round(curves, 2).tolist(),
        "clusters_of_draws": clusters.tolist(),
    }


def _perplexity(log_p: np.ndarray, visits: float) -> float:
    """Perplexity of an average over draws, shape (draw, user)."""
    top = log_p.max(axis=0)
    return float(np.exp(-np.sum(top + np.log(np.mean(np.exp(log_p - top), axis=0))) / visits))


def _style(name: str) -> str:
    """Line of a start."""
    return "--" if "5,000" in name else ":" if "from" in name else "-"


def plot(found: dict[str, Any], iterations: dict[str, int], folder: Path) -> Path:
    """Draw perplexities against iterations and seconds, and numbers of clusters."""
    matplotlib.use("Agg")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.0, 4.2), layout="constrained")
    for name, one in found.items():
        curves, style = np.array(one["curves"]), _style(name)
        color = COLORS[name.split(", from")[0]]
        steps = np.arange(1, curves.shape[1] + 1) / curves.shape[1]
        seconds = one["seconds_of_start"] + steps * (one["seconds"] - one["seconds_of_start"])
        for i, curve in enumerate(curves):
            label = name if i == 0 else None
            if name[:2] in ("SC", "SG"):
                left.plot(steps * iterations[name], curve, style, color=color, label=label)
            middle.plot(seconds, curve, style, color=color, label=label, alpha=0.7)
            right.plot(steps, one["clusters_of_draws"][i], style, color=color, alpha=0.7)
    left.set(xlabel="iteration", ylabel="perplexity of one draw per visit", title=f"{SEEDS} seeds")
    middle.set(xlabel="processor seconds", xscale="log", title="with exact samplers")
    right.set(xlabel="share of the run", title="clusters")
    handles = middle.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8)
    return save_figure(figure, folder, "dp_mixture_msweb")


def main(arguments: list[str] | None = None) -> None:
    options = options_parser(__doc__, "shorter chains").parse_args(arguments)
    users, others, areas = load_users(options.data)
    print(f"{users.shape[0]:,} users, {others.shape[0]:,} held-out users, {users.shape[1]} areas")
    every = make_samplers(*((600, 1_000) if options.quick else (3_000, 5_000)))
    found = {}
    for name, (sampler, n_iterations, chains) in every.items():
        trees, first, last = run(sampler, users, n_iterations, chains)
        one = found[name] = describe(trees, others, first, last)
        print(f"{name:>40}: last draws {one['perplexity_of_last_draw']}, averaged "
              f"{one['perplexity_of_second_half']}, all chains {one['perplexity_of_all_chains']}, "
              f"clusters {one['clusters']}, {one['seconds']:.1f} s a chain")  # fmt: skip
        if name == "collapsed Gibbs":
            largest = trees[0].posterior["topics"].values[0, -1]
            weights = trees[0].posterior["weights"].values[0, -1]
    for weight, topic in list(zip(weights, largest, strict=True))[:6]:
        print(f"{weight:6.1%}: " + ", ".join(areas[np.argsort(-topic)[:4]]))
    print(f"plot: {plot(found, {name: n for name, (_, n, _) in every.items()}, options.output)}")
    for one in found.values():
        del one["curves"], one["clusters_of_draws"]
    print(json.dumps({"perplexity per visit": found, "references": REFERENCES}))


if __name__ == "__main__":
    main()
