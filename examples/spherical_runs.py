"""What the examples of spherical topics share: runs of samplers and of variational inference.

Each takes some wall time and is looked at now and then: held-out log-perplexity of the last fifteen
snapshots of a chain, or of fifteen draws from a variational law. The clock stands still meanwhile,
and starts when everything is compiled.
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


class Watch:
    """Perplexities against a clock that stands still while they are computed.

    Parameters
    ----------
    held_out : ndarray or csr_matrix, shape (D, V)
    alpha, kappa : float
    every : float
        Seconds between two looks.
    """

    def __init__(self, held_out: Documents, alpha: float, kappa: float, every: float) -> None:
        self._held_out, self._alpha, self._kappa, self._every = held_out, alpha, kappa, every
        self.seen: Curve = {"seconds": [], "processor_seconds": [], "perplexity": []}
        self.seconds, self._processor, self._next = 0.0, 0.0, every
        self._start()

    def _start(self) -> None:
        self._began, self._processor_began = time.perf_counter(), time.process_time()

    def is_time(self) -> bool:
        """Say whether the next look is due."""
        return self.seconds + time.perf_counter() - self._began >= self._next

    def stop(self) -> None:
        """Stop the clock until after the next look."""
        self.seconds += time.perf_counter() - self._began
        self._processor += time.process_time() - self._processor_began
        self._next = self.seconds + self._every

    def look(self, topics: np.ndarray, **others: float) -> None:
        """Write down the perplexity of some draws of the topics, shape (..., K, V), and others."""
        self.seen["seconds"].append(self.seconds)
        self.seen["processor_seconds"].append(self._processor)
        self.seen["perplexity"].append(
            log_perplexity(
                topics, self._held_out, alpha=self._alpha, kappa=self._kappa, random_seed=SEED
            )
        )
        for name, value in others.items():
            self.seen.setdefault(name, []).append(value)
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
    """Topics and proportions where a variational law has its means.

    Proportions count: a chain that first has to find those of every document pulls the topics to
    the corpus mean meanwhile.
    """
    laws = fit["variational"]
    shares = laws["theta_concentration"].values
    shares = shares / shares.sum(axis=1, keepdims=True)
    beta, theta = model["beta"], model["theta"]
    return model.initial_point() | {
        model.rvs_to_values[beta].name: laws["direction"].values,
        model.rvs_to_values[theta].name: model.rvs_to_transforms[theta].forward(shares).eval(),
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
    """Sample for some time; return what was seen every few seconds of it.

    With ``returns`` the last fifth of tuning begins where the first began, if that was a fit: the
    heat of tuning leads away from it, and what is tuned there is of topics that are blurred.
    """
    name = model.rvs_to_values[model["beta"]].name
    step.setup_chain(np.random.default_rng(SEED), tune, 10**6)
    start = point
    point, _ = step.step(point)
    alpha, kappa = (float(model[key].get_value()) for key in ("alpha", "kappa"))
    watch = Watch(held_out, alpha, kappa, every / 5)
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
            watch.look(
                np.stack(snapshots),
                draws=draw,
                temperature=float(np.mean(temperatures)),
                acceptance=float(np.mean(acceptances)),
            )
            temperatures, acceptances = [], []
    return watch.seen


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
    with warnings.catch_warnings():  # one pass compiles, and is thrown away
        warnings.simplefilter("ignore", pg.topics.ConvergenceWarning)
        pg.topics.spherical_admixture_vi(few, **settings, max_passes=1, draws=1, progressbar=False)
    rng = np.random.default_rng(SEED)
    start = starting_topics(train, settings["n_topics"], rng)
    watch = Watch(held_out, settings["alpha"], settings["kappa"], every / 5)

    passes = [0.0]

    def look(direction: np.ndarray, xi: np.ndarray, n_documents: int) -> None:
        passes[0] = n_documents / train.shape[0]
        if not watch.is_time():
            return
        watch.stop()
        draws = [draw_von_mises_fisher(rng, direction, xi, None) for _ in range(SNAPSHOTS)]
        watch.look(np.stack(draws), passes=passes[0])
        if watch.seconds >= seconds:
            raise StopIteration

    fit = pg.topics.spherical_admixture_vi(
        train, **settings, start=start, batch_size=batch_size, max_passes=10**6, callback=look,
        draws=SNAPSHOTS, random_seed=SEED, progressbar=False, **options,
    )  # fmt: skip
    if not watch.seen["seconds"] or watch.seen["passes"][-1] < passes[0]:
        watch.stop()
        watch.look(fit.posterior["beta"].values, passes=passes[0])
    return watch.seen, fit


def in_words(curve: Curve) -> str:
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
