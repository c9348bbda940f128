"""Dirichlet-process mixtures of experts, which have a normal law of features and a classifier."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import check_batch_size, check_integers
from pymc_geodesic.distributions.labels import (
    require_classes,
    require_every_class,
    require_signs,
)
from pymc_geodesic.kernels.hinge_augmentation import draw_scales, draw_weights
from pymc_geodesic.mixtures.gaussian_experts import (
    HINGE,
    Experts,
    count_rows,
    log_predictive,
    loss_of_row,
    losses,
    move_rows,
)
from pymc_geodesic.runtime.chains import each_chain
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.missing_values import refuse_missing
from pymc_geodesic.runtime.streams import fill_normal, new_stream, uniform


@compiled
def add_subgradient(
    weights: np.ndarray, row: np.ndarray, label: int, margin: float, loss: int, factor: float,
    scores: np.ndarray, gradient: np.ndarray,
) -> None:  # fmt: skip
    """Add the subgradient of minus the loss of a row, times a factor."""
    value = loss_of_row(weights, row, label, margin, loss, scores)
    if value <= 0.0:
        return
    if loss == HINGE:
        rival = 1 if label == 0 else 0
        for y in range(scores.size):
            if y != label and scores[y] > scores[rival]:
                rival = y
        for j in range(row.size):
            gradient[label, j] += factor * row[j]
            gradient[rival, j] -= factor * row[j]
        return
    log_total = value + scores[label]
    for y in range(scores.size):
        part = (1.0 if y == label else 0.0) - math.exp(scores[y] - log_total)
        for j in range(row.size):
            gradient[y, j] += factor * part * row[j]


@compiled
def follow_subgradients(
    weights: np.ndarray,
    velocity: np.ndarray,
    thermostat: np.ndarray,
    sizes: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    assignments: np.ndarray,
    step_sizes: np.ndarray,
    diffusion: float,
    batch_size: int,
    n_steps: int,
    cost: float,
    margin: float,
    loss: int,
    prior_scale: float,
    stream: np.ndarray,
) -> float:
    r"""Move the weights of all experts by stochastic subgradient thermostats, in place.

    .. math::

        d\eta = v\,dt, \qquad
        dv = \tilde g\,dt - \xi v\,dt + \sqrt{2A}\,dW, \qquad d\xi = (v^\top v / \dim - 1)\,dt,

    g̃ being −η/τ² and (N/n) times the subgradients of a minibatch of random rows, in which every
    row counts for the expert that it belongs to. Half a drift, kick with friction and noise, half
    a drift. A time step of its own for each feature is a metric of the velocities.

    Parameters
    ----------
    weights, velocity : ndarray, shape (K, L, q)
    thermostat : ndarray, shape (1,)
        ξ times the step.
    sizes : ndarray, shape (K,)
    features : ndarray, shape (n, q)
    labels, assignments : ndarray of int64, shape (n,)
    step_sizes : ndarray, shape (q,)
        h of every feature.
    diffusion : float
        A times the step.
    batch_size, n_steps : int
    cost, margin, prior_scale : float
        c, ℓ and τ.
    loss : int
        `HINGE` or `LOGIT`.
    stream : ndarray of uint64, shape (2,)

    Returns
    -------
    float
        Mean of v·v over its dimension.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, eqs. 30 and 47.
    """
    n = features.shape[0]
    gradient, noise = np.empty_like(weights), np.empty(weights.shape[2])
    heat, scores = 0.0, np.empty(weights.shape[1])
    classes, width = weights.shape[1], weights.shape[2]
    for _ in range(n_steps):
        for k in range(sizes.size):
            if sizes[k] > 0.5:
                for y in range(classes):
                    for j in range(width):
                        weights[k, y, j] += 0.5 * step_sizes[j] * velocity[k, y, j]
                        gradient[k, y, j] = -weights[k, y, j] / prior_scale**2
        for _ in range(batch_size):
            row = min(int(uniform(stream) * n), n - 1)
            k = assignments[row]
            add_subgradient(
                weights[k], features[row], labels[row], margin, loss, cost * n / batch_size,
                scores, gradient[k],
            )  # fmt: skip
        rub = math.exp(-thermostat[0])
        spread = math.sqrt(2.0 * diffusion)
        total, dim = 0.0, 0
        for k in range(sizes.size):
            if sizes[k] < 0.5:
                continue
            for y in range(classes):
                fill_normal(stream, noise)
                for j in range(width):
                    kick = step_sizes[j] * gradient[k, y, j] + spread * noise[j]
                    velocity[k, y, j] = rub * velocity[k, y, j] + kick
                    total += velocity[k, y, j] ** 2
                    weights[k, y, j] += 0.5 * step_sizes[j] * velocity[k, y, j]
            dim += classes * width
        temperature = total / dim
        heat += temperature
        thermostat[0] += 0.1 * diffusion * (temperature - 1.0)
        thermostat[0] = max(min(thermostat[0], 2.0), -0.1)
    return heat / n_steps


def augment_weights(
    rng: np.random.Generator,
    weights: np.ndarray,
    sizes: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    assignments: np.ndarray,
    *,
    cost: float,
    margin: float,
    prior_scale: float,
) -> None:
    r"""Draw the weights of all experts by data augmentation, class by class, in place.

    Given the weights of the other classes the loss of a row is a hinge in the score f of one:
    :math:`\max(0, \zeta - f)` for rows of that class, with ζ = ℓ + the largest other score, and
    else :math:`\max(0, f - \tau)` and a constant, with
    :math:`\tau = \max(0, \ell + \text{other} - \text{own}) - (\ell - \text{own})`.

    Parameters
    ----------
    rng : numpy.random.Generator
    weights : ndarray, shape (K, L, q)
    sizes : ndarray, shape (K,)
    features : ndarray, shape (n, q)
    labels, assignments : ndarray of int64, shape (n,)
    cost, margin, prior_scale : float
    """
    n_classes = weights.shape[1]
    for k in np.flatnonzero(sizes > 0.5):
        rows = np.flatnonzero(assignments == k)
        x, y = features[rows], labels[rows]
        scores = x @ weights[k].T
        each = np.arange(len(rows))
        for c in range(n_classes):
            own = scores[each, y]
            others = scores.copy()
            others[:, c] = -np.inf
            others[each, y] = -np.inf
            other = others.max(axis=1)
            is_own = y == c
            base = np.maximum(0.0, margin + other - own)
            bound = np.where(is_own, margin + other, base - margin + own)
            signs = np.where(is_own, 1.0, -1.0)
            offset = signs * bound
            scales = draw_scales(rng, offset - signs * scores[:, c], cost)
            weights[k, c] = draw_weights(
                rng, x, signs, scales, cost=cost, margin=offset, prior_scale=prior_scale
            )
            scores[:, c] = x @ weights[k, c]


FRESH = 3
"""Weights from the prior that every row is offered."""

DIFFUSION, NOISE = 0.05, 0.05
"""Of the thermostats, in units of the step, and the gradient noise of a step at most."""

LONGEST_STEP = 0.3


def sample_experts(
    X: ArrayLike,
    y: ArrayLike,
    *,
    loss: int,
    method: str,
    batch_size: int | None,
    draws: int,
    tune: int,
    chains: int,
    n_steps: int,
    max_experts: int,
    n_classes: int | None,
    classes: Sequence[Any] | None,
    random_seed: int | np.random.Generator | None,
    progressbar: bool,
    intercept: bool,
    **numbers: float,
) -> xr.DataTree:
    """Check what users gave, and sample assignments and weights.

    Parameters
    ----------
    loss : int
        `HINGE` or `LOGIT` of `pymc_geodesic.mixtures.gaussian_experts`.
    **numbers : float
        ``cost``, ``margin``, ``alpha``, ``prior_scale``, ``strength`` and ``scatter``.
    X, y, method, batch_size, draws, tune, chains, n_steps, max_experts, n_classes, classes
        See `infinite_svm`.
    random_seed, progressbar, intercept
        See `infinite_svm`.

    Returns
    -------
    xarray.DataTree

    Raises
    ------
    ValueError
        If labels, shapes or numbers are not as described, or X holds NaN.
    RuntimeError
        If experts find no room.
    """
    X, labels, n_classes = _rows(X, y, n_classes if classes is None else len(classes))
    if classes is None and has_signs(np.asarray(y)):
        classes = (-1, 1)
    for name, value in numbers.items():
        if np.ndim(value) or not 0 < value < np.inf:
            raise ValueError(f"{name} must be a positive number, got {value}")
    check_integers(
        draws=(draws, 1),
        tune=(tune, 0),
        chains=(chains, 1),
        n_steps=(n_steps, 1),
        max_experts=(max_experts, 2),
    )
    n = len(X)
    if batch_size is None:
        batch_size = min(max(n // 10, 50), 500, n)
    check_batch_size(batch_size, n)
    sampler = _Sampler(
        X, labels, n_classes, loss=loss, intercept=intercept, max_experts=int(max_experts),
        batch_size=int(batch_size), n_steps=int(n_steps), method=method, **numbers,
    )  # fmt: skip
    kept: list[list[Experts]] = []
    stats: dict[str, list[list[float]]] = {}
    for chain, rng, sweeps in each_chain(
        random_seed, chains, tune + draws, progressbar=progressbar
    ):
        sampler.start(rng)
        kept.append([])
        for sweep in sweeps:
            found = sampler.sweep(rng)
            if sweep >= tune:
                kept[-1].append(sampler.snapshot())
                for name, value in found.items():
                    stats.setdefault(name, [[] for _ in range(chains)])[chain].append(value)
    return _tree(sampler, kept, stats, classes, n_classes)


def has_signs(labels: np.ndarray) -> bool:
    """Whether labels are meant to be −1 and +1."""
    return labels.dtype.kind in "if" and bool(np.any(labels == -1))


def _rows(X: ArrayLike, y: ArrayLike, n_classes: int | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Check features and labels; return also the number of classes."""
    refuse_missing("X", X)
    features = np.ascontiguousarray(X, dtype=float)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(f"X must be a matrix (row, feature), got shape {features.shape}")
    constant = np.flatnonzero(np.ptp(features, axis=0) == 0.0)
    if constant.size:
        raise ValueError(
            f"column {constant[0]} of X is the same number everywhere, and no normal law fits it: "
            "drop the column; intercept=True adds one to the scores"
        )
    refuse_missing("y", y)
    labels = np.asarray(y)
    if labels.shape != (len(features),):
        raise ValueError(
            f"y must hold one label for each of the {len(features)} rows of X, got shape "
            f"{labels.shape}"
        )
    if has_signs(labels):
        require_signs("y", labels)
        if n_classes not in (None, 2):
            raise ValueError(f"y holds the labels -1 and +1, but there are {n_classes} classes")
        labels = (labels + 1) / 2
    labels = labels.astype(float) if labels.dtype.kind == "b" else labels
    require_classes("y", labels, n_classes)
    found = int(labels.max()) + 1 if n_classes is None else int(n_classes)
    if found < 2:
        raise ValueError("y has one class only; give n_classes= of at least 2 if there are more")
    if n_classes is None:
        require_every_class("y", labels, "n_classes")
    return features, labels.astype(np.int64), found


class _Sampler:
    """Experts, assignments and thermostats of one chain."""

    def __init__(
        self, X: np.ndarray, labels: np.ndarray, n_classes: int, *, loss: int, intercept: bool,
        scatter: float, max_experts: int, method: str, **numbers: Any,
    ) -> None:  # fmt: skip
        self.X, self.labels, self.loss, self.method = X, labels, loss, method
        self.numbers = numbers
        n, p = X.shape
        self.features = np.column_stack([X, np.ones(n)]) if intercept else X
        q = self.features.shape[1]
        self.degrees = p + 2.0
        covariance = scatter * np.atleast_2d(np.cov(X, rowvar=False))
        lower = np.linalg.cholesky(covariance + 1e-9 * np.trace(covariance) / p * np.eye(p))
        self.prior = Experts(
            np.zeros(1), X.mean(axis=0)[None], lower[None], np.empty((FRESH, n_classes, q))
        )
        self.experts = Experts(
            np.zeros(max_experts),
            np.empty((max_experts, p)),
            np.empty((max_experts, p, p)),
            np.empty((max_experts, n_classes, q)),
        )
        scratch = np.empty(p)
        strength = numbers["strength"]
        self.log_base = np.array(
            [
                log_predictive(self.prior.mean[0], lower, strength, self.degrees, x, scratch)
                for x in X
            ]
        )
        rms = np.sqrt(np.mean(self.features**2, axis=0))
        noise = numbers["cost"] * n * rms / np.sqrt(numbers["batch_size"])
        self.step_sizes = np.minimum(np.sqrt(NOISE) / noise, LONGEST_STEP * numbers["prior_scale"])

    def start(self, rng: np.random.Generator) -> None:
        """Begin with one expert, whose weights are zero."""
        self.stream = new_stream(rng)
        self.assignments = np.zeros(len(self.X), dtype=np.int64)
        self.experts.weights[:] = 0.0
        self.velocity = rng.standard_normal(self.experts.weights.shape)
        self.thermostat = np.array([DIFFUSION])

    def sweep(self, rng: np.random.Generator) -> dict[str, float]:
        """Draw all assignments and weights."""
        began = time.perf_counter()
        experts, numbers = self.experts, self.numbers
        count_rows(experts, self.prior, self.X, self.assignments, numbers["strength"])
        was_idle = experts.sizes < 0.5
        refused = move_rows(
            experts, self.prior, self.X, self.features, self.labels, self.assignments,
            self.log_base, numbers["alpha"], numbers["strength"], self.degrees, numbers["cost"],
            numbers["margin"], self.loss, numbers["prior_scale"], self.stream,
        )  # fmt: skip
        if refused:
            raise RuntimeError(
                f"all max_experts={experts.sizes.size} experts have rows, and more are needed: "
                "raise max_experts=, or expect wider experts (scatter=)"
            )
        moved = time.perf_counter()
        hinge = {name: numbers[name] for name in ("cost", "margin", "prior_scale")}
        temperature = np.nan
        if self.method == "augmentation":
            augment_weights(
                rng, experts.weights, experts.sizes, self.features, self.labels,
                self.assignments, **hinge,
            )  # fmt: skip
        else:
            founded = was_idle & (experts.sizes > 0.5)
            self.velocity[founded] = rng.standard_normal(self.velocity[founded].shape)
            temperature = follow_subgradients(
                experts.weights, self.velocity, self.thermostat, experts.sizes, self.features,
                self.labels, self.assignments, self.step_sizes, DIFFUSION,
                numbers["batch_size"], numbers["n_steps"], numbers["cost"], numbers["margin"],
                self.loss, numbers["prior_scale"], self.stream,
            )  # fmt: skip
            if not np.isfinite(temperature):
                raise RuntimeError("the weights diverged; give a larger batch_size or smaller cost")
        ended = time.perf_counter()
        scores = np.einsum("nyq,nq->ny", experts.weights[self.assignments], self.features)
        return {
            "n_experts": int(np.sum(experts.sizes > 0.5)),
            "loss": float(losses(scores, self.labels, numbers["margin"], self.loss).sum()),
            "accuracy": float(np.mean(scores.argmax(axis=1) == self.labels)),
            "temperature": temperature,
            "weights_time": ended - moved,
            "perf_counter_diff": ended - began,
        }

    def snapshot(self) -> Experts:
        """Copy the experts that have rows, the largest first."""
        order = np.argsort(-self.experts.sizes, kind="stable")
        order = order[self.experts.sizes[order] > 0.5]
        return Experts(*(array[order] for array in self.experts))


def _tree(
    sampler: _Sampler, kept: list[list[Experts]], stats: dict[str, list[list[float]]],
    classes: Sequence[Any] | None, n_classes: int,
) -> xr.DataTree:  # fmt: skip
    most = max(len(each.sizes) for chain in kept for each in chain)
    posterior = {}
    for place, name in enumerate(Experts._fields):
        shape = kept[0][0][place].shape[1:]
        values = np.zeros((len(kept), len(kept[0]), most, *shape))
        for c, chain in enumerate(kept):
            for d, each in enumerate(chain):
                values[c, d, : len(each.sizes)] = each[place]
        posterior[name] = values
    return from_dict(
        {
            "posterior": posterior,
            "sample_stats": {name: np.array(values) for name, values in stats.items()},
            "constant_data": {
                "prior_mean": sampler.prior.mean[0],
                "prior_lower": sampler.prior.lower[0],
                "strength": sampler.numbers["strength"],
                "alpha": sampler.numbers["alpha"],
            },
        },
        dims={
            "sizes": ["expert"],
            "weights": ["expert", "class", "weight"],
            "mean": ["expert", "feature"],
            "lower": ["expert", "feature", "feature_2"],
            "prior_mean": ["feature"],
            "prior_lower": ["feature", "feature_2"],
        },
        coords={"class": np.arange(n_classes) if classes is None else list(classes)},
    )
