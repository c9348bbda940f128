"""Spherical topics of 20News-different: the comparison of samplers in the SGGMC paper.

Section 5.3 and supplement F.3 of Liu, Zhu, Song (2016): K = 20 topics, minibatches of 50
documents, L = 10, sigma = kappa0 = 1e4, kappa = 3e4, alpha = 10, topic proportions by 40 + 20 GMC
transitions of 10 steps, topics started at the normalised corpus mean plus N(0, 1) / sqrt(V). Every
sampler runs for the same wall time; the figure shows held-out log-perplexity, averaged over the
last 15 snapshots, and kinetic temperature against it.

Run it with ``python examples/spherical_topics_of_20news.py --data FOLDER``; see
`pymc_geodesic.datasets.load_20news_different` for the folder.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep

import pymc_geodesic as pg
from pymc_geodesic.datasets import Corpus, load_20news_different
from pymc_geodesic.diagnostics import log_perplexity

N_TOPICS = 20
BATCH_SIZE = 50
ALPHA, KAPPA, SIGMA = 10.0, 3e4, 1e4
SNAPSHOTS = 15
SEED = 17

PUBLISHED = {"learning_rate": 1e-2, "momentum_decay": 1e-2, "splitting": "paper"}


def steps(model: pm.Model, n_documents: int) -> dict[str, Callable[[], BlockedStep]]:
    """Samplers by name, compiled when they are called."""
    beta, theta = model["beta"], model["theta"]
    shared = {"local": [theta], "minibatch": ["V"], "model": model}
    batch = {**shared, "batch_size": BATCH_SIZE}
    full = {**shared, "batch_size": n_documents}
    thermostat = {**PUBLISHED, "thermostat_inertia": 1.0}
    return {
        "SGGMC, tuned": lambda: pg.SGGMC([beta], **batch),
        "gSGNHT, tuned": lambda: pg.gSGNHT([beta], **batch),
        "SGGMC, published": lambda: pg.SGGMC([beta], **batch, **PUBLISHED),
        "gSGNHT, published": lambda: pg.gSGNHT([beta], **batch, **thermostat),
        "SGGMC, full, tuned": lambda: pg.SGGMC([beta], **full),
        "gSGNHT, full, tuned": lambda: pg.gSGNHT([beta], **full),
        "SGGMC, full, published": lambda: pg.SGGMC([beta], **full, **PUBLISHED),
        "gSGNHT, full, published": lambda: pg.gSGNHT([beta], **full, **thermostat),
        "GMC-bGibbs": lambda: pg.GMC([beta], local_draws=1, **shared),
        "GMC-apprMH": lambda: pg.GMC([beta], local_draws=20, **shared),
    }


def starting_point(model: pm.Model, corpus: Corpus, rng: np.random.Generator) -> dict:
    """Topics around the corpus mean, proportions at the prior mean."""
    mean = np.asarray(corpus.train.sum(axis=0)).ravel()
    mean /= np.linalg.norm(mean)
    beta = rng.normal(size=(N_TOPICS, mean.size)) / np.sqrt(mean.size) + mean
    beta /= np.linalg.norm(beta, axis=1, keepdims=True)
    return model.initial_point() | {model.rvs_to_values[model["beta"]].name: beta}


def run(
    step: BlockedStep,
    point: dict,
    model: pm.Model,
    held_out: np.ndarray,
    *,
    seconds: float,
    tune: int,
    every: float,
) -> dict[str, list[float]]:
    """Sample for some time; return what was seen every few seconds of it.

    The clock stands still while perplexities are computed and starts after the first draw, which
    compiles.
    """
    name = model.rvs_to_values[model["beta"]].name
    step.setup_chain(np.random.default_rng(SEED), tune, 10**6)
    point, _ = step.step(point)
    seen: dict[str, list[float]] = {
        key: [] for key in ("seconds", "perplexity", "temperature", "acceptance", "draws")
    }
    snapshots: list[np.ndarray] = []
    temperatures, acceptances = [], []
    elapsed, draw, next_snapshot = 0.0, 1, every / 5
    began = time.perf_counter()
    while elapsed < seconds:
        if draw == tune:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        draw += 1
        temperatures.append(stats.get("temperature", np.nan))
        acceptances.append(stats["acceptance_rate"])
        now = elapsed + time.perf_counter() - began
        if now < next_snapshot:
            continue
        elapsed, next_snapshot = now, now + every / 5
        snapshots = [*snapshots[-SNAPSHOTS + 1 :], point[name].copy()]
        seen["seconds"].append(elapsed)
        seen["draws"].append(draw)
        seen["temperature"].append(float(np.mean(temperatures)))
        seen["acceptance"].append(float(np.mean(acceptances)))
        perplexity = log_perplexity(
            np.stack(snapshots), held_out, alpha=ALPHA, kappa=KAPPA, random_seed=SEED
        )
        seen["perplexity"].append(perplexity)
        temperatures, acceptances = [], []
        began = time.perf_counter()
    return seen


def plot(curves: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Draw perplexity above temperature against wall time."""
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 8), height_ratios=(3, 2), layout="constrained"
    )
    for index, (name, seen) in enumerate(curves.items()):
        style = {"color": f"C{index}", "linestyle": "--" if "published" in name else "-"}
        above.plot(seen["seconds"], seen["perplexity"], label=name, **style)
        below.plot(seen["seconds"], seen["temperature"], **style)
    above.axhline(5092.60, color="grey", linewidth=0.8)
    above.text(above.get_xlim()[0], 5092.60, " corpus mean", va="bottom", color="grey")
    above.set(ylabel="held-out log-perplexity", xscale="log")
    above.legend(fontsize=8, ncols=2)
    below.axhline(1.0, color="grey", linewidth=0.8)
    below.set(xlabel="wall time (s)", ylabel="kinetic temperature", xscale="log", yscale="log")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run every sampler for the same time and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None, help="folder of the data set")
    parser.add_argument("--seconds", type=float, default=120.0, help="wall time of each sampler")
    parser.add_argument("--tune", type=int, default=2000, help="tuning draws")
    parser.add_argument("--only", nargs="*", help="samplers to run; results add up")
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parser.parse_args()
    matplotlib.use("Agg")

    corpus = load_20news_different(arguments.data)
    model = pg.models.spherical_admixture(
        corpus.train, N_TOPICS, alpha=ALPHA, kappa=KAPPA, sigma=SIGMA, kappa0=SIGMA
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "spherical_topics_of_20news.json"
    curves: dict[str, dict[str, list[float]]] = {}
    if arguments.only and results.exists():
        curves = json.loads(results.read_text())
    for name, make in steps(model, corpus.train.shape[0]).items():
        if arguments.only and name not in arguments.only:
            continue
        point = starting_point(model, corpus, np.random.default_rng(SEED))
        full = "full" in name or name.startswith("GMC")
        curves[name] = seen = run(
            make(),
            point,
            model,
            corpus.test,
            seconds=arguments.seconds,
            tune=max(arguments.tune // 20, 50) if full else arguments.tune,
            every=arguments.seconds / 12,
        )
        last = slice(len(seen["seconds"]) // 2, None)
        print(
            f"{name:26s} {1e3 * seen['seconds'][-1] / seen['draws'][-1]:8.1f} ms per draw, "
            f"log-perplexity {min(seen['perplexity'][last]):.0f}-"
            f"{max(seen['perplexity'][last]):.0f}, "
            f"temperature {np.mean(seen['temperature'][last]):.4g}, "
            f"acceptance {np.mean(seen['acceptance'][last]):.2f} in the second half",
            flush=True,
        )
    results.write_text(json.dumps(curves))
    plot(curves, arguments.output / "spherical_topics_of_20news.png")


if __name__ == "__main__":
    main()
