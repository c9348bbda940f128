"""Maximum-margin topics by stochastic subgradient Riemannian Langevin dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_integers, check_positive, step_size_at
from pymc_geodesic.schedules import PolynomialDecay, Schedule
from pymc_geodesic.topics.labelled_documents import Run, labelled_counts, sample_labelled
from pymc_geodesic.topics.max_margin import MULTICLASS, ONE_AGAINST_ALL
from pymc_geodesic.topics.ssgrld import MaxMarginTopics, TopicSettings

TOPIC_STEPS: dict[str, Schedule] = {
    "SCIR": PolynomialDecay(1.0, b=10, gamma=0.6),
    "SGRLD": PolynomialDecay(1e-3, b=10, gamma=0.6),
}

WEIGHT_STEPS: dict[str, Schedule] = {
    "SSGNHT": PolynomialDecay(0.2, b=1, gamma=0.0),
    "SSGLD": PolynomialDecay(0.5, b=10, gamma=0.5),
}


def medlda_ssgrld(
    counts: ArrayLike | sparse.csr_array,
    labels: ArrayLike,
    n_topics: int,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 1.0,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    loss: Literal["one_against_all", "multiclass"] = "one_against_all",
    prior_scale: float = 1.0,
    batch_size: int = 64,
    topics_by: Literal["SCIR", "SGRLD"] = "SCIR",
    weights_by: Literal["SSGNHT", "SSGLD"] = "SSGNHT",
    topic_step: float | Schedule | None = None,
    weight_step: float | Schedule | None = None,
    diffusion: float = 1.0,
    remember: bool = False,
    sweeps: tuple[int, int] = (1, 2),
    n_steps: int = 1,
    draws: int = 100,
    tune: int = 100,
    chains: int = 1,
    var_names: Sequence[str] | None = None,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample Gibbs MedLDA with minibatches of documents (SSGRLD).

    The posterior of `medlda_gibbs`. An inner step draws the topics of the tokens of a minibatch by
    Gibbs sweeps given topics φ and weights η,

    .. math:: P(z_i = k \mid z_{-i}) \propto (\alpha_k + n_k^{-i})\, \varphi_{k w_i}\,
              \psi(y \mid \bar z, \eta),

    and follows the counts and the subgradient of :math:`\log \psi` that they give, times D / n:
    φ by SCIR or SGRLD, η by SSGNHT or SSGLD.

    Parameters
    ----------
    counts, labels, n_topics, alpha, beta, cost, margin, prior_scale
        See `medlda_gibbs`.
    loss : {"one_against_all", "multiclass"}
        With labels 0 … L − 1, a hinge for each class, or
        :math:`\max(0, \ell + \max_{l \ne y} s_l - s_y)`.
    batch_size : int
        n, documents of a minibatch.
    topics_by : {"SCIR", "SGRLD"}
        Exact transitions of the Cox–Ingersoll–Ross process, or its Euler steps.
    weights_by : {"SSGNHT", "SSGLD"}
        With a thermostat that takes the heat of minibatches away, or without.
    topic_step, weight_step : float or callable, optional
        Step sizes, times: of topics in units of their relaxation time, of weights in prior standard
        deviations. Numbers, or functions of the inner step such as `PolynomialDecay`.
    diffusion : float
        A of SSGNHT.
    remember : bool
        Whether counts and subgradients are those of the present assignments of all documents, of
        which the minibatch replaces its own. Without noise: every step then leaves the posterior as
        it is, up to the steps of the weights; and slower at first, while most assignments are old.
    sweeps : tuple of int
        Sweeps over the documents of a minibatch that are not averaged over, and that are.
    n_steps : int
        Inner steps of a draw, each with a minibatch of its own.
    draws, tune, chains, var_names, documents, vocabulary, classes, random_seed, progressbar
        See `medlda_gibbs`.

    Returns
    -------
    xarray.DataTree
        As `medlda_gibbs`. ``zbar`` is that of the last visit of each document; sample stats
        ``topic_step``, ``weight_step`` and ``temperature`` (SSGNHT: v·v / m of the last inner step)
        are added.

    Raises
    ------
    ValueError
        If counts, labels or numbers are not as described.
    FloatingPointError
        If weights are not finite any more.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-margin Models, section 4.1, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda_ssgrld
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_ssgrld(
    ...     counts, [1, -1, 1, -1], n_topics=2, margin=16.0, batch_size=2, draws=20, random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dict(idata.posterior["weights"].sizes)
    {'chain': 1, 'draw': 20, 'topic': 2}
    >>> float(idata.sample_stats["accuracy"][0, -1])
    1.0
    """
    check_integers(
        n_topics=(n_topics, 2),
        batch_size=(batch_size, 1),
        n_steps=(n_steps, 1),
        **{"sweeps[0]": (sweeps[0], 0), "sweeps[1]": (sweeps[1], 1)},
        draws=(draws, 1),
        tune=(tune, 0),
        chains=(chains, 1),
    )
    for name, value, choices in (
        ("loss", loss, ("one_against_all", "multiclass")),
        ("topics_by", topics_by, tuple(TOPIC_STEPS)),
        ("weights_by", weights_by, tuple(WEIGHT_STEPS)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {value!r}")
    positive: dict[str, Any] = {"cost": cost, "margin": margin, "prior_scale": prior_scale}
    positive |= {"diffusion": diffusion, "topic_step": topic_step, "weight_step": weight_step}
    for name, number in positive.items():
        check_positive(name, number)
    data = labelled_counts(counts, labels, n_topics, alpha, beta, documents, vocabulary, classes)
    if loss == "multiclass" and data.is_binary:
        raise ValueError("loss='multiclass' needs labels 0 … L - 1, got -1 and +1")
    tokens = data.tokens(
        cost, margin, prior_scale, MULTICLASS if loss == "multiclass" else ONE_AGAINST_ALL
    )
    settings = TopicSettings(
        batch_size=batch_size,
        n_discarded=sweeps[0],
        n_kept=sweeps[1],
        exact_transitions=topics_by == "SCIR",
        has_thermostat=weights_by == "SSGNHT",
        diffusion=float(diffusion),
        remembers=remember,
    )
    topic_steps = _schedule(TOPIC_STEPS[topics_by] if topic_step is None else topic_step)
    weight_steps = _schedule(WEIGHT_STEPS[weights_by] if weight_step is None else weight_step)
    run = Run(chains, draws, tune, 1, var_names, random_seed, progressbar)

    def begin(rng: np.random.Generator) -> _Chain:
        return _Chain(MaxMarginTopics(tokens, settings, rng), n_steps, topic_steps, weight_steps)

    return sample_labelled(
        data,
        run,
        begin,
        cost=tokens.cost,
        margin=tokens.margin,
        multiclass=loss == "multiclass",
    )


class _Chain:
    """Some inner steps for each draw, with step sizes by their number."""

    def __init__(
        self, sampler: MaxMarginTopics, n_steps: int, topic_steps: Schedule, weight_steps: Schedule
    ) -> None:
        self._sampler, self._n_steps = sampler, n_steps
        self._topic_steps, self._weight_steps = topic_steps, weight_steps
        self._last = (0.0, 0.0)
        self.in_topics = sampler.in_topics

    def advance(self, iteration: int) -> None:
        """Make the inner steps of a draw."""
        for step in range(self._n_steps):
            inner = iteration * self._n_steps + step
            of_topics = step_size_at(self._topic_steps, inner)
            of_weights = step_size_at(self._weight_steps, inner)
            self._sampler.step(of_topics, of_weights)
            if not np.all(np.isfinite(self._sampler.eta)):
                raise FloatingPointError(
                    f"the weights are not finite any more at draw {iteration} with "
                    f"weight_step={of_weights}: make it smaller"
                )
            self._last = of_topics, of_weights

    def topics(self) -> np.ndarray:
        """Return φ, shape (K, V)."""
        return self._sampler.topics()

    def weights(self) -> np.ndarray:
        """Return η, shape (L, K)."""
        return self._sampler.eta

    def stats(self) -> dict[str, float]:
        """Documents that were processed, the last step sizes and the temperature."""
        topic_step, weight_step = self._last
        return {
            "documents": self._sampler.documents_seen,
            "topic_step": topic_step,
            "weight_step": weight_step,
            "temperature": self._sampler.temperature,
        }


def _schedule(step_size: float | Schedule) -> Schedule:
    """Make a schedule of a number."""
    return step_size if callable(step_size) else PolynomialDecay(step_size, b=1, gamma=0.0)
