"""Dirichlet-process mixtures of experts: the infinite support vector machine and the dpMNL.

Each expert has a normal distribution of the features and a linear classifier.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

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
from pymc_geodesic.mixtures.expert_gibbs import (
    HINGE,
    LOGIT,
    Experts,
    augment_weights,
    compute_losses,
    compute_statistics,
    log_predictive,
    sample_assignments,
    thermostat_weights,
)
from pymc_geodesic.runtime.iterations import each_chain
from pymc_geodesic.runtime.missing_values import check_missing
from pymc_geodesic.runtime.streams import new_stream

N_AUXILIARY = 3
"""Auxiliary weights from the prior for each row: m of algorithm 8 of Neal (2000)."""

DIFFUSION = 0.05
"""A of the thermostats times the step size, dimensionless."""

MAX_NOISE = 0.05
"""Largest variance that the gradient noise adds to a velocity in one step."""

MAX_STEP = 0.3
"""Largest step size, in prior standard deviations of the weights."""


def infinite_svm(
    X: ArrayLike,
    y: ArrayLike,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    alpha: float = 1.0,
    prior_scale: float = 1.0,
    strength: float = 0.01,
    scatter: float = 1.0,
    intercept: bool = True,
    method: Literal["ssgnht", "augmentation"] = "ssgnht",
    batch_size: int | None = None,
    n_steps: int = 100,
    draws: int = 200,
    tune: int = 200,
    chains: int = 1,
    max_experts: int = 50,
    n_classes: int | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample an infinite support vector machine (draws, not a `pymc.Model`).

    A Dirichlet-process mixture of large-margin classifiers. Each row belongs to an expert, which
    has a normal distribution of the features and a linear classifier. The number of experts has
    no bound, so that the posterior is sampled here and not by a step method of a PyMC model:

    .. math::

        z \sim \text{CRP}(\alpha), \quad
        x_d \mid z_d \sim N(\mu_{z_d}, \Sigma_{z_d}), \quad
        (\mu_k, \Sigma_k) \sim \text{NIW}(m_0, \kappa_0, p + 2, \Psi_0), \quad
        \eta_k \sim N(0, \tau^2 I),

    .. math::

        \psi(y_d \mid x_d, \eta_{z_d}) = \exp\bigl(-c \max(0, \ell +
        \max_{y \ne y_d} \eta_{z_d y} \cdot x_d - \eta_{z_d y_d} \cdot x_d)\bigr)

    with m₀ the mean of the features and Ψ₀ ``scatter`` times their covariance. Means and
    covariances are integrated out. Each sweep draws all assignments by algorithm 8 of Neal (2000)
    and then the weights.

    Parameters
    ----------
    X : array_like, shape (row, feature)
        Features. Scale them: all weights have the same prior.
    y : array_like, shape (row,)
        Labels 0 … L − 1, or −1 and 1.
    cost, margin : float
        c and ℓ, positive.
    alpha : float
        Concentration of the Dirichlet process.
    prior_scale : float
        τ, the prior standard deviation of the weights.
    strength, scatter : float
        κ₀, and the prior mean of the covariance of an expert as a multiple of that of all rows.
    intercept : bool
        Whether scores have an intercept.
    method : {"ssgnht", "augmentation"}
        How the weights are drawn: stochastic subgradient Nosé–Hoover thermostats on minibatches,
        or data augmentation, which is exact and factors a matrix for each expert and class.
    batch_size : int, optional
        Rows of a minibatch; 10 % of the rows by default, between 50 and 500.
    n_steps : int
        Steps of the thermostats in each sweep.
    draws, tune : int
        Sweeps that are kept, and warm-up sweeps that are discarded.
    chains : int
        Number of chains, which run one after the other.
    max_experts : int
        Largest number of experts; a chain that needs more raises an error.
    n_classes : int, optional
        L; by default one more than the largest label.
    classes : sequence, optional
        Coordinates of the dimension ``class``; the labels by default.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``sizes`` (expert), ``weights`` (expert, class, weight), ``mean``
        (expert, feature) and ``lower`` (expert, feature, feature_2), the Cholesky factor of Ψ,
        sorted by size in decreasing order and padded with zeros; ``sample_stats`` with
        ``n_experts``, ``loss``, ``accuracy`` (on the training rows, by the experts they belong
        to), ``temperature`` of the thermostats, and the seconds ``weights_time`` and
        ``perf_counter_diff``; ``constant_data`` with the prior, ``cost`` and ``margin``.

    Raises
    ------
    ValueError
        If labels, shapes or arguments are not as described, or X contains NaN.
    RuntimeError
        If more than ``max_experts`` experts are needed, or the weights diverge.

    See Also
    --------
    pymc_geodesic.mixtures.predict : labels of new rows.
    pymc_geodesic.mixtures.predict_proba : their probabilities.

    Notes
    -----
    With ``method="augmentation"`` the chain has the posterior as its stationary distribution. The
    thermostats have a discretization error, and a bias where the gradient noise depends on the
    position.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, section 4.2 and
    algorithm 2; Zhu, Chen, Xing (2011), Infinite SVM.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import infinite_svm, predict
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2)) + 4 * rng.integers(2, size=(200, 1))
    >>> y = (X[:, 0] > 2) ^ (X[:, 1] > X[:, 0])  # not linearly separable
    >>> idata = infinite_svm(X, y, 5.0, draws=50, tune=50, random_seed=1, progressbar=False)
    >>> bool(np.mean(predict(idata, X) == y) > 0.9)
    True
    """
    if method not in ("ssgnht", "augmentation"):
        raise ValueError(f'method={method!r} is unknown; choose "ssgnht" or "augmentation"')
    return sample_experts(
        X, y, loss=HINGE, cost=cost, margin=margin, alpha=alpha, prior_scale=prior_scale,
        strength=strength, scatter=scatter, intercept=intercept, method=method,
        batch_size=batch_size, n_steps=n_steps, draws=draws, tune=tune, chains=chains,
        max_experts=max_experts, n_classes=n_classes, classes=classes, random_seed=random_seed,
        progressbar=progressbar,
    )  # fmt: skip


def dp_multinomial_logit_sgnht(
    X: ArrayLike,
    y: ArrayLike,
    *,
    alpha: float = 1.0,
    prior_scale: float = 1.0,
    strength: float = 0.01,
    scatter: float = 1.0,
    intercept: bool = True,
    batch_size: int | None = None,
    n_steps: int = 100,
    draws: int = 200,
    tune: int = 200,
    chains: int = 1,
    max_experts: int = 50,
    n_classes: int | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample a Dirichlet-process mixture of multinomial logit models (dpMNL).

    The mixture of `infinite_svm` with a likelihood instead of the hinge loss: the labels of the
    rows of an expert have a multinomial logit model,

    .. math::

        P(y_d = y) = \frac{\exp(\eta_{z_d y} \cdot x_d)}
        {\sum_{y'} \exp(\eta_{z_d y'} \cdot x_d)}.

    Each sweep draws the assignments given the weights by algorithm 8 of Neal (2000), and then the
    weights by stochastic gradient Nosé–Hoover thermostats (SGNHT) on minibatches.

    Parameters
    ----------
    X, y, alpha, prior_scale, strength, scatter, intercept, batch_size, n_steps, draws, tune
        See `infinite_svm`.
    chains, max_experts, n_classes, classes, random_seed, progressbar
        See `infinite_svm`.

    Returns
    -------
    xarray.DataTree
        As `infinite_svm`, without ``cost`` and ``margin``; ``loss`` is the sum of −log P(y_d).

    Raises
    ------
    ValueError
        As `infinite_svm`.
    RuntimeError
        As `infinite_svm`.

    See Also
    --------
    pymc_geodesic.mixtures.predict_proba : probabilities of the labels of new rows.

    Notes
    -----
    In the paper the features are independent within an expert and the scales of the weights have
    hyperpriors; here the covariances are full and τ is fixed.

    References
    ----------
    Shahbaba, Neal (2009), Nonlinear Models Using Dirichlet Process Mixtures, JMLR 10:1829,
    section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import dp_multinomial_logit_sgnht, predict
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2)) + 4 * rng.integers(2, size=(200, 1))
    >>> y = (X[:, 0] > 2) ^ (X[:, 1] > X[:, 0])  # not linearly separable
    >>> idata = dp_multinomial_logit_sgnht(
    ...     X, y, prior_scale=3.0, draws=50, tune=50, random_seed=1, progressbar=False
    ... )
    >>> bool(np.mean(predict(idata, X) == y) > 0.85)
    True
    """
    return sample_experts(
        X, y, loss=LOGIT, method="ssgnht", cost=1.0, margin=1.0, alpha=alpha,
        prior_scale=prior_scale, strength=strength, scatter=scatter, intercept=intercept,
        batch_size=batch_size, n_steps=n_steps, draws=draws, tune=tune, chains=chains,
        max_experts=max_experts, n_classes=n_classes, classes=classes, random_seed=random_seed,
        progressbar=progressbar,
    )  # fmt: skip


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
    """Validate the arguments, and sample assignments and weights.

    Parameters
    ----------
    loss : int
        `HINGE` or `LOGIT` of `pymc_geodesic.mixtures.expert_gibbs`.
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
        If labels, shapes or arguments are not as described, or X contains NaN.
    RuntimeError
        If more than ``max_experts`` experts are needed, or the weights diverge.
    """
    X, labels, n_classes = _validate_rows(X, y, n_classes if classes is None else len(classes))
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
    """Return whether the labels are −1 and +1 rather than 0 … L − 1."""
    return labels.dtype.kind in "if" and bool(np.any(labels == -1))


def _validate_rows(
    X: ArrayLike, y: ArrayLike, n_classes: int | None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Validate features and labels; return them with the number of classes."""
    check_missing("X", X)
    features = np.ascontiguousarray(X, dtype=float)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(f"X must be a matrix (row, feature), got shape {features.shape}")
    constant = np.flatnonzero(np.ptp(features, axis=0) == 0.0)
    if constant.size:
        raise ValueError(
            f"column {constant[0]} of X is constant, so that its normal distribution is singular. "
            "Drop the column; intercept=True adds an intercept to the scores."
        )
    check_missing("y", y)
    labels = np.asarray(y)
    if labels.shape != (len(features),):
        raise ValueError(
            f"y must contain one label for each of the {len(features)} rows of X, got shape "
            f"{labels.shape}"
        )
    if has_signs(labels):
        require_signs("y", labels)
        if n_classes not in (None, 2):
            raise ValueError(f"y contains the labels -1 and +1, but there are {n_classes} classes")
        labels = (labels + 1) / 2
    labels = labels.astype(float) if labels.dtype.kind == "b" else labels
    require_classes("y", labels, n_classes)
    found = int(labels.max()) + 1 if n_classes is None else int(n_classes)
    if found < 2:
        raise ValueError("y has one class only. Set n_classes= to at least 2 if there are more.")
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
            np.zeros(1), X.mean(axis=0)[None], lower[None], np.empty((N_AUXILIARY, n_classes, q))
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
        self.step_sizes = np.minimum(np.sqrt(MAX_NOISE) / noise, MAX_STEP * numbers["prior_scale"])

    def start(self, rng: np.random.Generator) -> None:
        """Initialize a chain with one expert, whose weights are zero."""
        self.stream = new_stream(rng)
        self.assignments = np.zeros(len(self.X), dtype=np.int64)
        self.experts.weights[:] = 0.0
        self.velocity = rng.standard_normal(self.experts.weights.shape)
        self.thermostat = np.array([DIFFUSION])

    def sweep(self, rng: np.random.Generator) -> dict[str, float]:
        """Draw all assignments and weights."""
        began = time.perf_counter()
        experts, numbers = self.experts, self.numbers
        compute_statistics(experts, self.prior, self.X, self.assignments, numbers["strength"])
        was_empty = experts.sizes < 0.5
        n_overflows = sample_assignments(
            experts, self.prior, self.X, self.features, self.labels, self.assignments,
            self.log_base, numbers["alpha"], numbers["strength"], self.degrees, numbers["cost"],
            numbers["margin"], self.loss, numbers["prior_scale"], self.stream,
        )  # fmt: skip
        if n_overflows:
            raise RuntimeError(
                f"The chain needs more than max_experts={experts.sizes.size} experts. Increase "
                "max_experts=, or scatter= for wider experts."
            )
        assigned = time.perf_counter()
        temperature = np.nan
        if self.method == "augmentation":
            augment_weights(
                rng, experts.weights, experts.sizes, self.features, self.labels,
                self.assignments, cost=numbers["cost"], margin=numbers["margin"],
                prior_scale=numbers["prior_scale"],
            )  # fmt: skip
        else:
            is_new = was_empty & (experts.sizes > 0.5)
            self.velocity[is_new] = rng.standard_normal(self.velocity[is_new].shape)
            temperature = thermostat_weights(
                experts.weights, self.velocity, self.thermostat, experts.sizes, self.features,
                self.labels, self.assignments, self.step_sizes, DIFFUSION,
                numbers["batch_size"], numbers["n_steps"], numbers["cost"], numbers["margin"],
                self.loss, numbers["prior_scale"], self.stream,
            )  # fmt: skip
            if not np.isfinite(temperature):
                raise RuntimeError("The weights diverged. Increase batch_size= or decrease cost=.")
        ended = time.perf_counter()
        scores = np.einsum("nyq,nq->ny", experts.weights[self.assignments], self.features)
        return {
            "n_experts": int(np.sum(experts.sizes > 0.5)),
            "loss": float(compute_losses(scores, self.labels, numbers["margin"], self.loss).sum()),
            "accuracy": float(np.mean(scores.argmax(axis=1) == self.labels)),
            "temperature": temperature,
            "weights_time": ended - assigned,
            "perf_counter_diff": ended - began,
        }

    def snapshot(self) -> Experts:
        """Copy the experts that have rows, sorted by size in decreasing order."""
        order = np.argsort(-self.experts.sizes, kind="stable")
        order = order[self.experts.sizes[order] > 0.5]
        return Experts(*(array[order] for array in self.experts))


def _tree(
    sampler: _Sampler, kept: list[list[Experts]], stats: dict[str, list[list[float]]],
    classes: Sequence[Any] | None, n_classes: int,
) -> xr.DataTree:  # fmt: skip
    """Return the draws, padded with zeros to the largest number of experts."""
    most = max(len(each.sizes) for chain in kept for each in chain)
    posterior = {}
    for field, name in enumerate(Experts._fields):
        shape = kept[0][0][field].shape[1:]
        values = np.zeros((len(kept), len(kept[0]), most, *shape))
        for c, chain in enumerate(kept):
            for d, each in enumerate(chain):
                values[c, d, : len(each.sizes)] = each[field]
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
            }
            | {name: sampler.numbers[name] for name in ("cost", "margin") if sampler.loss == HINGE},
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
