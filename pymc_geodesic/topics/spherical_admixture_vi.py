"""Mean-field variational inference of the spherical admixture model, batch and stochastic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpy.typing import ArrayLike, NDArray
from rich.progress import Progress
from scipy import sparse

from pymc_geodesic.arguments import check_batch_size, check_integers, check_positive
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_von_mises_fisher
from pymc_geodesic.ops.bessel import log_vmf_normalizer
from pymc_geodesic.runtime.iterations import warn_not_converged
from pymc_geodesic.runtime.threads import Workers
from pymc_geodesic.schedules import PolynomialDecay, Schedule
from pymc_geodesic.topics.lda import document_coords
from pymc_geodesic.topics.mean_field import (
    AdmixturePrior,
    AscentSettings,
    TopicFactors,
    bound_of_topics,
    coordinate_target,
    document_terms,
    expected_fit,
    maximize_proportions,
    natural_target,
)
from pymc_geodesic.topics.spherical_admixture import (
    check_settings,
    document_vectors,
    mean_direction,
)

Array = NDArray[np.float64]

HALVINGS = 20
"""Maximum number of halvings of a step of the topics that would lower the bound."""

GAIN = 1e-2
"""Predicted gain in nats below which the ascent of the proportions of a document ends."""


class MeanField:
    """Variational distributions of topics and proportions, and their updates.

    Parameters
    ----------
    vectors : ndarray or csr_array, shape (D, V)
    prior : AdmixturePrior
    factors : TopicFactors
        Initial distributions of the topics.
    local_steps : int
        Maximum number of steps of the proportions of a document per visit.

    Attributes
    ----------
    factors : TopicFactors
    concentrations : ndarray, shape (D, K)
        Of the Dirichlet distributions of the proportions.
    """

    def __init__(
        self, vectors: Any, prior: AdmixturePrior, factors: TopicFactors, local_steps: int
    ) -> None:
        self.vectors, self.prior, self.factors = vectors, prior, factors
        self.concentrations = np.tile(prior.alpha, (vectors.shape[0], 1))
        self._ascent = AscentSettings(prior.kappa, GAIN, local_steps)
        self._workers = Workers()
        self._log_c = float(log_vmf_normalizer(vectors.shape[1], prior.kappa))
        self._step = 1.0

    def pass_over_all(self) -> float:
        """Update all proportions, then the topics; return the bound, which does not decrease."""
        with self._workers.one_blas_thread():
            cosines = _cosines(self.vectors, self.factors)
            own, alpha = self.concentrations, self.prior.alpha
            of_documents = maximize_proportions(
                own, cosines, self.factors, alpha, self._ascent, self._workers
            )
            of_documents += self._improve_topics(cosines)
        return of_documents + len(cosines) * self._log_c + bound_of_topics(self.prior, self.factors)

    def _improve_topics(self, cosines: Array) -> float:
        """Update the topics given all proportions; return the change of κ Σ_d ρ_d."""
        kappa, workers = self.prior.kappa, self._workers
        terms = document_terms(
            self.vectors, self.concentrations, cosines, self.factors, kappa, workers
        )
        before = terms.value + bound_of_topics(self.prior, self.factors)
        target = coordinate_target(self.prior, self.factors, terms)
        for _ in range(HALVINGS):
            natural = (1.0 - self._step) * self.factors.natural + self._step * target
            moved = TopicFactors(natural)
            products = _cosines(self.vectors, moved)
            fit = expected_fit(self.concentrations, products, moved, kappa, workers)
            if fit + bound_of_topics(self.prior, moved) >= before:
                self.factors = moved
                self._step = min(1.0, 2.0 * self._step)
                return fit - terms.value
            self._step *= 0.5
        return 0.0

    def visit(self, rows: NDArray[np.intp], step_size: float) -> float:
        """Take a natural-gradient step on a minibatch; return an estimate of the bound."""
        with self._workers.one_blas_thread():
            return self._visit(rows, step_size)

    def _visit(self, rows: NDArray[np.intp], step_size: float) -> float:
        vectors, factors, prior = self.vectors[rows], self.factors, self.prior
        factor = self.vectors.shape[0] / len(rows)
        cosines = _cosines(vectors, factors)
        own = self.concentrations[rows]
        gain = maximize_proportions(own, cosines, factors, prior.alpha, self._ascent, self._workers)
        self.concentrations[rows] = own
        terms = document_terms(vectors, own, cosines, factors, prior.kappa, self._workers)
        target = natural_target(prior, factors, terms.scaled(factor))
        self.factors = TopicFactors((1.0 - step_size) * factors.natural + step_size * target)
        return factor * (gain + len(rows) * self._log_c) + bound_of_topics(prior, factors)


def _cosines(vectors: Any, factors: TopicFactors) -> Array:
    """Products v_d · b_k, shape (n, K)."""
    return np.ascontiguousarray(vectors @ np.ascontiguousarray(factors.mean.T))


Callback = Callable[[Array, Array, int], None]

FIRST_STEP, DECAY_AFTER, DECAY = 0.4, 200.0, 0.6
"""Default schedule of stochastic steps. The first step size is divided by K: each document moves
all topics."""


def spherical_admixture_vi(
    V: ArrayLike | sparse.csr_array,
    n_topics: int,
    alpha: float = 10.0,
    kappa: float = 3e4,
    sigma: float = 1e4,
    kappa0: float = 1e4,
    *,
    mean: ArrayLike | None = None,
    batch_size: int | None = None,
    max_passes: int = 100,
    tolerance: float = 0.1,
    step_size: float | Schedule | None = None,
    local_steps: int = 20,
    start: ArrayLike | None = None,
    draws: int = 20,
    callback: Callback | None = None,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Approximate the posterior of a spherical admixture model by variational inference.

    The posterior of `spherical_admixture` is approximated by independent distributions

    .. math::

        q(\mu) = \text{vMF}, \quad q(\beta_k) = \text{vMF}(\mu_k, \xi_k), \quad
        q(\theta_d) = \text{Dirichlet}(a_d)

    that maximise a bound on the log-evidence, the expected log-joint density plus entropy. The
    expected cosine :math:`E[c\,y^{-1/2}]`, :math:`c = v_d \cdot \beta^\top\theta_d`,
    :math:`y = \|\beta^\top\theta_d\|^2`, is replaced by
    :math:`\frac32 E[c]\,E[y]^{-1/2} - \frac12 E[cy]\,E[y]^{-3/2}`, a lower bound for
    :math:`c \ge 0`. With all documents no pass lowers the bound. With ``batch_size=`` the steps are
    natural gradients of minibatches, :math:`\eta \leftarrow (1 - s) \eta + s \hat\eta`,
    :math:`\eta_k = \xi_k \mu_k` (stochastic variational inference).

    It is fast, converges to one mode, and underestimates the posterior variance of the topics.

    Parameters
    ----------
    V, n_topics, alpha, kappa, sigma, kappa0, mean, documents, vocabulary
        See `spherical_admixture`. A sparse matrix stays sparse.
    batch_size : int, optional
        Documents of a minibatch; all by default.
    max_passes : int
        Maximum number of passes over the documents; with ``batch_size=`` their exact number.
    tolerance : float
        Gain of the bound per document in nats below which a pass over all documents is the last.
    step_size : float or callable, optional
        s with ``batch_size=``, a number in (0, 1] or a function of the step such as
        `PolynomialDecay`; by default 0.4 / K · (1 + t / 200)^−0.6.
    local_steps : int
        Maximum number of natural-gradient steps of the proportions of a document per visit.
    start : array_like, shape (topic, word), optional
        Initial topics; by default random ones around the corpus mean.
    draws : int
        Number of draws of the topics to return.
    callback : callable, optional
        Called after every pass or step with mean directions of the topics, shape (K, V), their
        concentrations ξ, shape (K,), and the number of documents seen so far; ends the run by
        raising StopIteration.
    random_seed : int or numpy.random.Generator, optional
        Seed of the initial topics, the minibatches and the draws.
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``beta`` (chain, draw, topic, word), independent draws of q;
        ``variational`` with the parameters ``direction`` (topic, word), ``concentration`` (topic)
        and ``theta_concentration`` (document, topic), of the last visit of each document, and
        ``elbo`` (pass), with minibatches a mean of estimates; and ``constant_data`` with ``alpha``,
        ``kappa``, ``sigma``, ``kappa0`` and ``mean``.

    Raises
    ------
    ValueError
        As `spherical_admixture`, and if a number of passes, steps or draws is too small, a
        ``batch_size`` does not fit, or topics to start from have another shape.

    Warns
    -----
    ConvergenceWarning
        If the last of ``max_passes`` passes over all documents still gain more than
        ``tolerance``.

    See Also
    --------
    pymc_geodesic.topics.spherical_admixture : the model, for samplers.

    References
    ----------
    Reisinger, Waters, Silverthorn, Mooney (2010), Spherical Topic Models.
    Hoffman, Blei, Wang, Paisley (2013), Stochastic Variational Inference.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import spherical_admixture_vi
    >>> V = np.abs(np.random.default_rng(0).normal(size=(30, 8)))
    >>> V /= np.linalg.norm(V, axis=1, keepdims=True)
    >>> idata = spherical_admixture_vi(
    ...     V, 3, kappa=50.0, sigma=20.0, kappa0=20.0, random_seed=1, progressbar=False
    ... )
    >>> dict(idata.posterior["beta"].sizes)
    {'chain': 1, 'draw': 20, 'topic': 3, 'word': 8}
    >>> bool((np.diff(idata["variational"]["elbo"]) > -1e-6).all())
    True
    """
    vectors = document_vectors(V)
    n_documents = vectors.shape[0]
    check_settings(n_topics, alpha, kappa, sigma, kappa0)
    coords = document_coords(V, vectors.shape, documents, vocabulary, of="V")
    coords["topic"] = np.arange(int(n_topics))
    check_integers(max_passes=(max_passes, 1), local_steps=(local_steps, 1), draws=(draws, 1))
    check_batch_size(batch_size, n_documents, "documents")
    check_positive("step_size", step_size)
    schedule = step_schedule(step_size, int(n_topics))
    rng = np.random.default_rng(random_seed)
    concentrations = np.full(int(n_topics), float(alpha))
    prior = AdmixturePrior(
        mean_direction(vectors, mean), concentrations, float(kappa), float(sigma), float(kappa0)
    )
    topics = initial_topics(start, prior.mean, int(n_topics), rng)
    mean_field = MeanField(vectors, prior, TopicFactors(prior.sigma * topics), int(local_steps))
    optimization = Optimization(mean_field, callback)
    with Progress(disable=not progressbar, transient=True) as progress:
        task = progress.add_task("Passes", total=max_passes)
        for _ in range(max_passes):
            if batch_size is None:
                optimization.all_documents(tolerance * n_documents)
            else:
                optimization.minibatches(
                    shuffled_minibatches(n_documents, batch_size, rng), schedule
                )
            progress.update(
                task, advance=1, description=f"Passes, ELBO {optimization.elbo[-1]:.6g}"
            )
            if optimization.is_over:
                break
    if batch_size is None and not optimization.is_over:
        gain, unit = optimization.last_gain / n_documents, "gained {:.2g} nats for each document"
        warn_not_converged("spherical_admixture_vi", max_passes, gain, unit)
    return to_datatree(mean_field, optimization.elbo, coords, int(draws), rng)


def initial_topics(
    start: ArrayLike | None, mean: Array, n_topics: int, rng: np.random.Generator
) -> Array:
    """Return unit vectors: the given topics, or random ones around the corpus mean."""
    if start is None:
        topics = mean + rng.standard_normal((n_topics, len(mean))) / np.sqrt(len(mean))
    else:
        topics = np.asarray(start, dtype=float)
    lengths = np.linalg.norm(topics, axis=-1, keepdims=True)
    if topics.shape != (n_topics, len(mean)) or not np.all(lengths > 0):
        raise ValueError(
            f"start must be {n_topics} nonzero topics of {len(mean)} words, got shape "
            f"{topics.shape}"
        )
    return topics / lengths


def step_schedule(step_size: float | Schedule | None, n_topics: int) -> Schedule:
    """Stochastic step sizes by the number of the step."""
    if step_size is None:
        return PolynomialDecay(FIRST_STEP / n_topics, DECAY_AFTER, DECAY)
    if callable(step_size):
        return step_size
    return PolynomialDecay(step_size, DECAY_AFTER, 0.0)


def shuffled_minibatches(
    n_rows: int, batch_size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.intp]]:
    """One pass over the rows, in minibatches of about the same size."""
    yield from np.array_split(rng.permutation(n_rows), max(1, round(n_rows / batch_size)))


class Optimization:
    """Passes over the documents, and the bounds they reached.

    Parameters
    ----------
    mean_field : MeanField
    callback : callable or None
        See `spherical_admixture_vi`.

    Attributes
    ----------
    elbo : list of float
        One for each pass.
    is_over : bool
    last_gain : float
        Gain of the bound by the last pass over all documents.
    """

    def __init__(self, mean_field: MeanField, callback: Callback | None) -> None:
        self._mean_field, self._callback = mean_field, callback
        self.elbo: list[float] = []
        self.is_over, self.last_gain = False, np.inf
        self._steps = self._seen = 0

    def _report(self, n_documents: int) -> None:
        self._seen += n_documents
        if self._callback is not None:
            try:
                self._callback(
                    self._mean_field.factors.direction, self._mean_field.factors.xi, self._seen
                )
            except StopIteration:
                self.is_over = True

    def all_documents(self, least_gain: float) -> None:
        """Run one pass over all documents."""
        before = self.elbo[-1] if self.elbo else -np.inf
        self.elbo.append(self._mean_field.pass_over_all())
        self.last_gain = self.elbo[-1] - before
        self.is_over = self.last_gain < least_gain
        self._report(len(self._mean_field.concentrations))

    def minibatches(self, rows: Iterator[NDArray[np.intp]], step_size: Schedule) -> None:
        """Run one pass of stochastic steps."""
        estimates = []
        for minibatch in rows:
            step = min(float(step_size(self._steps)), 1.0)
            estimates.append(self._mean_field.visit(minibatch, step))
            self._steps += 1
            self._report(len(minibatch))
            if self.is_over:
                break
        self.elbo.append(float(np.mean(estimates)))


def to_datatree(
    mean_field: MeanField,
    elbo: list[float],
    coords: dict[str, Any],
    draws: int,
    rng: np.random.Generator,
) -> xr.DataTree:
    """Return draws of the topics and the variational parameters."""
    topics, prior = mean_field.factors, mean_field.prior
    beta = np.empty((1, draws, *topics.natural.shape))
    for draw in range(draws):
        beta[0, draw] = draw_von_mises_fisher(rng, topics.direction, topics.xi, None)
    tree = from_dict(
        {
            "posterior": {"beta": beta},
            "constant_data": {
                "alpha": np.array(prior.alpha[0]),
                "kappa": np.array(prior.kappa),
                "sigma": np.array(prior.sigma),
                "kappa0": np.array(prior.kappa0),
                "mean": prior.mean,
            },
        },
        dims={"beta": ["topic", "word"], "mean": ["word"]},
        coords=coords,
    )
    parameters = {
        "direction": (("topic", "word"), topics.direction),
        "concentration": (("topic",), topics.xi),
        "theta_concentration": (("document", "topic"), mean_field.concentrations),
        "elbo": (("pass",), np.array(elbo)),
    }
    passes = {"pass": np.arange(1, len(elbo) + 1)}
    tree["variational"] = xr.DataTree(xr.Dataset(parameters, coords={**coords, **passes}))
    return tree
