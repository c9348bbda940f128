"""Spherical topics of 20News-different: the comparison of samplers in the SGGMC paper.

Section 5.3 and appendix F.3 of Liu, Zhu, Song (2016): K = 20 topics, minibatches of 50
documents, L = 10, sigma = kappa0 = 1e4, kappa = 3e4, alpha = 10, topic proportions by 40 + 20 GMC
transitions of 10 steps, topics started at the normalized corpus mean plus N(0, 1) / sqrt(V). Every
sampler runs for the same wall time; the figure shows held-out log-perplexity, averaged over the
last 15 snapshots, and kinetic temperature against it. Variational inference, with all documents
and stochastic, starts there too and is evaluated by 15 draws from its distribution of the topics.

Run it with ``python examples/spherical_topics_of_20news.py --data FOLDER``; see
`pymc_geodesic.datasets.load_20news_different` for the folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from script_parts import parse_options
from spherical_runs import SEED, Curve, format_summary, run, run_variational, starting_point

import pymc_geodesic as pg
from pymc_geodesic.datasets import load_20news_different

N_TOPICS = 20
BATCH_SIZE = 50
ALPHA, KAPPA, SIGMA = 10.0, 3e4, 1e4

VARIATIONAL: dict[str, dict[str, Any]] = {
    "VI": {"tolerance": 0.0},
    "stochastic VI": {"batch_size": BATCH_SIZE},
}
TYPICAL = {"learning_rate": 1e-2, "momentum_decay": 1e-2, "splitting": "paper"}
"""Lower end of the range that appendix E calls typical; the paper states neither value."""
TYPICAL_LABEL = "γ = ρ = 0.01"


def steps(model: pm.Model, n_documents: int) -> dict[str, Callable[[], BlockedStep]]:
    """Samplers by name, compiled when they are called."""
    beta, theta = model["beta"], model["theta"]
    shared = {"local": [theta], "minibatch": ["V"], "model": model}
    batch = {**shared, "batch_size": BATCH_SIZE}
    full = {**shared, "batch_size": n_documents}
    thermostat = {**TYPICAL, "thermostat_inertia": 1.0}
    return {
        "SGGMC, tuned": lambda: pg.SGGMC([beta], **batch),
        "gSGNHT, tuned": lambda: pg.gSGNHT([beta], **batch),
        f"SGGMC, {TYPICAL_LABEL}": lambda: pg.SGGMC([beta], **batch, **TYPICAL),
        f"gSGNHT, {TYPICAL_LABEL}": lambda: pg.gSGNHT([beta], **batch, **thermostat),
        "SGGMC, full, tuned": lambda: pg.SGGMC([beta], **full),
        "gSGNHT, full, tuned": lambda: pg.gSGNHT([beta], **full),
        f"SGGMC, full, {TYPICAL_LABEL}": lambda: pg.SGGMC([beta], **full, **TYPICAL),
        f"gSGNHT, full, {TYPICAL_LABEL}": lambda: pg.gSGNHT([beta], **full, **thermostat),
        "GMC-bGibbs": lambda: pg.GMC([beta], local_draws=1, **shared),
        "GMC-apprMH": lambda: pg.GMC([beta], local_draws=20, **shared),
    }


def plot(curves: dict[str, Curve], path: Path) -> None:
    """Plot perplexity and temperature against wall time."""
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(
        2, 1, sharex=True, figsize=(9, 8), height_ratios=(3, 2), layout="constrained"
    )
    for index, (name, seen) in enumerate(curves.items()):
        style = {"color": f"C{index}", "linestyle": "--" if TYPICAL_LABEL in name else "-"}
        above.plot(seen["seconds"], seen["perplexity"], label=name, **style)
        if "temperature" in seen:
            below.plot(seen["seconds"], seen["temperature"], **style)
    above.axhline(5092.60, color="gray", linewidth=0.8)
    above.text(above.get_xlim()[0], 5092.60, " corpus mean", va="bottom", color="gray")
    above.set(ylabel="held-out log-perplexity", xscale="log")
    above.legend(fontsize=8, ncols=2)
    below.axhline(1.0, color="gray", linewidth=0.8)
    below.set(xlabel="wall time (s)", ylabel="kinetic temperature", xscale="log", yscale="log")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run every sampler for the same time and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None, help="folder of the data set")
    parser.add_argument("--seconds", type=float, default=120.0, help="wall time of each sampler")
    parser.add_argument("--tune", type=int, default=2000, help="tuning draws")
    parser.add_argument(
        "--only", nargs="*", help="samplers to run; results are added to earlier ones"
    )
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parse_options(parser, seconds=2.0, tune=100)
    matplotlib.use("Agg")

    corpus = load_20news_different(arguments.data)
    settings = {
        "n_topics": N_TOPICS, "alpha": ALPHA, "kappa": KAPPA, "sigma": SIGMA, "kappa0": SIGMA,
    }  # fmt: skip
    model = pg.topics.spherical_admixture(corpus.train, **settings)
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "spherical_topics_of_20news.json"
    curves: dict[str, Curve] = {}
    if arguments.only and results.exists():
        curves = json.loads(results.read_text())
    clock = {"seconds": arguments.seconds, "every": arguments.seconds / 12}
    made = steps(model, corpus.train.shape[0])
    for name in [*made, *VARIATIONAL]:
        if arguments.only and name not in arguments.only:
            continue
        if name in VARIATIONAL:
            curves[name], _ = run_variational(
                corpus.train, corpus.test, settings, **clock, **VARIATIONAL[name]
            )
        else:
            point = starting_point(model, corpus.train, np.random.default_rng(SEED))
            full = "full" in name or name.startswith("GMC")
            tune = max(arguments.tune // 20, 50) if full else arguments.tune
            curves[name] = run(made[name](), point, model, corpus.test, tune=tune, **clock)
        print(f"{name:26s} {format_summary(curves[name])} in the second half", flush=True)
    results.write_text(json.dumps(curves))
    plot(curves, arguments.output / "spherical_topics_of_20news.png")


if __name__ == "__main__":
    main()
