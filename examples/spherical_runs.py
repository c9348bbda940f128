"""Timed runs of samplers and variational inference for the examples of spherical topics.

Held-out log-perplexity is evaluated at intervals of wall time, from the last fifteen snapshots of a
chain or from fifteen draws of a variational distribution. Times exclude these evaluations and
compilation.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.step_methods.compound import BlockedStep
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
from pymc_geodesic.topics import log_perplexity

SNAPSHOTS = 15
SEED = 17

type Documents = np.ndarray | sparse.csr_matrix
type Curve = dict[str, list[float]]


class TimedPerplexity:
    """Perplexities against time, without the time of their computation.

    Parameters
    ----------
    held_out : ndarray or csr_matrix, shape (D, V)
    alpha, kappa : float
    every : float
        Seconds between two evaluations.
    """

    def __init__(self, held_out: Documents, alpha: float, kappa: float, every: float) -> None:
        self._held_out, self._alpha, self._kappa, self._every = held_out, alpha, kappa, every
        self.results: Curve = {"seconds": [], "processor_seconds": [], "perplexity": []}
        self.seconds, self._processor, self._next = 0.0, 0.0, every
        self._start()

    def _start(self) -> None:
        self._began, self._processor_began = time.perf_counter(), time.process_time()

    def is_time(self) -> bool:
        """Return whether the next evaluation is due."""
        return self.seconds + time.perf_counter() - self._began >= self._next

    def stop(self) -> None:
        """Stop the clock until the end of the next evaluation."""
        self.seconds += time.perf_counter() - self._began
        self._processor += time.process_time() - self._processor_began
        self._next = self.seconds + self._every

    def evaluate(self, topics: np.ndarray, **others: float) -> None:
        """Record the perplexity of draws of the topics, shape (..., K, V), and other values."""
        self.results["seconds"].append(self.seconds)
        self.results["processor_seconds"].append(self._processor)
        self.results["perplexity"].append(
            log_perplexity(
                topics, self._held_out, alpha=self._alpha, kappa=self._kappa, random_seed=SEED
            )
        )
        for name, value in others.items():
            self.results.setdefault(name, []).append(value)
        self._start()


def starting_topics(train: Documents, n_topics: int, rng: np.random.Generator) -> np.ndarray:
    """Draw topics around the corpus mean, as the paper does."""
    mean = np.asarray(train.sum(axis=0)).ravel()
    mean /= np.linalg.norm(mean)
    beta = rng.normal(size=(n_topics, mean.size)) / np.sqrt(mean.size) + mean
    return beta / np.linalg.norm(beta, axis=1, keepdims=True)


def starting_point(model: pm.Model, train: Documents, rng: np.random.Generator) -> dict:
    """Topics around the corpus mean, proportions at the prior mean."""
    beta = starting_topics(train, len(model.coords["topic"]), rng)
    return model.initial_point() | {model.rvs_to_values[model["beta"]].name: beta}


def variational_point(model: pm.Model, fit: xr.DataTree) -> dict:
    """Return the means of topics and proportions under a variational distribution.

    A chain that starts at other proportions moves the topics to the corpus mean before the
    proportions of all documents converge.
    """
    variational = fit["variational"]
    proportions = variational["theta_concentration"].values
    proportions = proportions / proportions.sum(axis=1, keepdims=True)
    beta, theta = model["beta"], model["theta"]
    return model.initial_point() | {
        model.rvs_to_values[beta].name: variational["direction"].values,
        model.rvs_to_values[theta].name: model.rvs_to_transforms[theta].forward(proportions).eval(),
    }


def run(
    step: BlockedStep,
    point: dict,
    model: pm.Model,
    held_out: Documents,
    *,
    seconds: float,
    tune: int,
    every: float,
    returns: bool = False,
) -> Curve:
    """Sample for some time; return the evaluations.

    With ``returns`` the last 20 % of tuning restarts at the initial point, such as a variational
    fit: the raised temperature during tuning moves the chain away from it, and the tuned values
    would belong to less concentrated topics.
    """
    name = model.rvs_to_values[model["beta"]].name
    step.setup_chain(np.random.default_rng(SEED), tune, 10**6)
    start = point
    point, _ = step.step(point)
    alpha, kappa = (float(model[key].get_value()) for key in ("alpha", "kappa"))
    watch = TimedPerplexity(held_out, alpha, kappa, every / 5)
    snapshots: list[np.ndarray] = []
    temperatures, acceptances = [], []
    draw = 1
    while watch.seconds < seconds:
        if draw == tune:
            step.stop_tuning()
        if returns and draw == 4 * tune // 5:
            point = start
        point, (stats,) = step.step(point)
        draw += 1
        temperatures.append(stats.get("temperature", np.nan))
        acceptances.append(stats["acceptance_rate"])
        if watch.is_time():
            watch.stop()
            snapshots = [*snapshots[-SNAPSHOTS + 1 :], point[name].copy()]
            watch.evaluate(
                np.stack(snapshots),
                draws=draw,
                temperature=float(np.mean(temperatures)),
                acceptance=float(np.mean(acceptances)),
            )
            temperatures, acceptances = [], []
    return watch.results


def run_variational(
    train: Documents,
    held_out: Documents,
    settings: dict[str, Any],
    *,
    seconds: float,
    every: float,
    batch_size: int | None = None,
    **options: Any,
) -> tuple[Curve, xr.DataTree]:
    """Fit by variational inference for some time, or until it has converged.

    Parameters
    ----------
    settings : dict
        Topics and concentrations of the model.
    """
    few = train[: 2 * settings["n_topics"]]
    with warnings.catch_warnings():  # this pass compiles; its result is discarded
        warnings.simplefilter("ignore", pg.topics.ConvergenceWarning)
        pg.topics.spherical_admixture_vi(few, **settings, max_passes=1, draws=1, progressbar=False)
    rng = np.random.default_rng(SEED)
    start = starting_topics(train, settings["n_topics"], rng)
    watch = TimedPerplexity(held_out, settings["alpha"], settings["kappa"], every / 5)

    passes = [0.0]

    def evaluate(direction: np.ndarray, xi: np.ndarray, n_documents: int) -> None:
        passes[0] = n_documents / train.shape[0]
        if not watch.is_time():
            return
        watch.stop()
        draws = [draw_von_mises_fisher(rng, direction, xi, None) for _ in range(SNAPSHOTS)]
        watch.evaluate(np.stack(draws), passes=passes[0])
        if watch.seconds >= seconds:
            raise StopIteration

    fit = pg.topics.spherical_admixture_vi(
        train, **settings, start=start, batch_size=batch_size, max_passes=10**6, callback=evaluate,
        draws=SNAPSHOTS, random_seed=SEED, progressbar=False, **options,
    )  # fmt: skip
    if not watch.results["seconds"] or watch.results["passes"][-1] < passes[0]:
        watch.stop()
        watch.evaluate(fit.posterior["beta"].values, passes=passes[0])
    return watch.results, fit


def format_summary(curve: Curve) -> str:
    """Describe the second half of a run."""
    half = slice(len(curve["seconds"]) // 2, None)
    perplexity = curve["perplexity"][half]
    text = f"log-perplexity {min(perplexity):.0f}-{max(perplexity):.0f}"
    if "temperature" in curve:
        text += (
            f", temperature {np.mean(curve['temperature'][half]):.4g}, acceptance "
            f"{np.mean(curve['acceptance'][half]):.2f}, "
            f"{1e3 * curve['seconds'][-1] / curve['draws'][-1]:.0f} ms per draw"
        )
    else:
        text += f", {curve['passes'][-1]:.1f} passes in {curve['seconds'][-1]:.0f} s"
    return f"{text}, {curve['processor_seconds'][-1]:.0f} s of processor time"
