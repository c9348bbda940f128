"""Hinge losses of binary and multiclass classifiers as pseudo-likelihoods."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc import modelcontext
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.labels import (
    label_probabilities,
    probability_of_plus_one,
    require_classes,
    require_signs,
)
from pymc_geodesic.distributions.validation import PACKAGE, known_shape, require_known_arguments
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


def warn_of_random_cost(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Warn if the cost or the margin of a hinge loss depends on a free variable.

    ψ is not normalized, and increases as the cost decreases: the posterior of a cost concentrates
    at zero for any labels.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    args, kwargs
        Arguments after the scores: cost and margin.
    """
    given = dict(zip(("cost", "margin"), args, strict=False)) | dict(kwargs)
    for argument in ("cost", "margin"):
        value = given.get(argument)
        above = set(ancestors([value])) if isinstance(value, Variable) else set()
        free = [rv.name for rv in modelcontext(None).free_RVs if rv in above]
        if free:
            warnings.warn(
                f"the {argument} of {name!r} depends on {', '.join(map(repr, free))}. The hinge "
                f"pseudo-likelihood has no normalizing constant, so that the posterior of its "
                f"{argument} is not valid. Set {argument}= to a number, chosen by "
                "cross-validation.",
                UserWarning,
                skip_file_prefixes=(PACKAGE, os.path.dirname(pymc.__file__)),
            )


class HingeRV(LoopRandomVariable):
    """Random variable Op of `Hinge`."""

    name = "Hinge"
    signature = "(),(),()->()"
    dtype = "int64"
    _print_name = ("Hinge", "\\operatorname{Hinge}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        score: NDArray[np.floating],
        cost: NDArray[np.floating],
        margin: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.int64]:
        """Draw labels from ψ normalized over both labels."""
        probability = probability_of_plus_one(score, cost, margin)
        shape = probability.shape if size is None else size
        return np.where(rng.random(shape) < probability, 1, -1).astype(np.int64)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one label."""

        @njit
        def draw(rng, score, cost, margin):  # type: ignore[no-untyped-def]  # typed by Numba
            log_odds = cost * (max(0.0, margin + score) - max(0.0, margin - score))
            return np.int64(1 if rng.random() * (1.0 + np.exp(-log_odds)) < 1.0 else -1)

        return draw


hinge = HingeRV()


class Hinge(Discrete):
    r"""Hinge-loss pseudo-likelihood of labels −1 and +1.

    .. math::

        \log \psi(y \mid s) = -c \cdot \max(0, \ell - y\,s), \qquad y \in \{-1, +1\}

    with the score s, the cost c and the margin ℓ. ψ is not normalized: ψ(−1) + ψ(+1) depends on
    the score, so that the posterior under a prior p₀ is the Gibbs posterior

    .. math::

        q(w) \propto p_0(w) \prod_i \psi(y_i \mid s_i(w)),

    whose mode is the support vector machine, and not Bayes' posterior of a sampling distribution.
    `pymc.logp` is log ψ; random draws are from ψ(y) / (ψ(−1) + ψ(+1)).

    ========  ==================================================================
    Support   :math:`y \in \{-1, +1\}`
    ========  ==================================================================

    Parameters
    ----------
    score : tensor_like of float, shape (...)
        s, for a linear classifier ``X @ w``.
    cost : tensor_like of float, shape (...)
        c, at least 0. Do not give it a prior: the missing normalizing constant depends on it.
    margin : tensor_like of float, shape (...)
        ℓ, at least 0. Do not give it a prior, for the same reason.
    **kwargs
        Arguments of every PyMC distribution: ``observed``, ``dims``, ``total_size``, ….

    Raises
    ------
    TypeError
        For an unknown argument.
    ParameterValueError
        When the log-density is evaluated with a label that is neither −1 nor +1, or with a
        negative ``cost`` or ``margin``.
    ValueError
        If observed labels are known and not −1 or +1, or not one for each score.

    Warns
    -----
    UserWarning
        If the cost or the margin depends on a free variable.

    Notes
    -----
    The derivative with respect to the score is c·y where y·s < ℓ and 0 elsewhere, also at the
    kink y·s = ℓ: an element of the subdifferential of the convex loss everywhere (eq. 31 of [1]_).

    References
    ----------
    .. [1] W. Hu, J. Zhu, B. Zhang. "Fast Sampling Methods for Bayesian Max-margin Models",
       section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import Hinge
    >>> X, y = np.array([[1.0, 0.5], [-1.0, 0.3], [2.0, 1.0]]), np.array([1, -1, 1])
    >>> with pm.Model() as model:
    ...     w = pm.Normal("w", 0.0, 1.0, shape=2)
    ...     label = Hinge("label", X @ w, observed=y)
    >>> pm.logp(Hinge.dist([-0.5, 0.0, 3.0]), np.ones(3, dtype=int)).eval(mode="FAST_COMPILE")
    array([-1.5, -1. , -0. ])
    """

    rv_op = hinge

    def __new__(
        cls, name: str, score: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check the observed labels and add the variable to the model."""
        if observed is not None:
            score = pt.as_tensor_variable(floatX(score))
            require_signs(name, observed, known_shape(score))
        warn_of_random_cost(name, args, kwargs)
        return super().__new__(cls, name, score, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, score: Any, cost: Any = 1.0, margin: Any = 1.0, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        require_known_arguments(cls, kwargs)
        parameters = [pt.as_tensor_variable(floatX(value)) for value in (score, cost, margin)]
        return super().dist(parameters, **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        score: TensorVariable,
        cost: TensorVariable,
        margin: TensorVariable,
    ) -> TensorVariable:
        """Return the sign of the score."""
        point = pt.switch(pt.broadcast_arrays(score, cost, margin)[0] >= 0, 1, -1)
        return point if rv_size_is_none(size) else pt.full(size, point)

    def logp(
        value: TensorVariable, score: TensorVariable, cost: TensorVariable, margin: TensorVariable
    ) -> TensorVariable:
        """Return log ψ, shape (...), for labels of shape (...)."""
        # PyTensor's gradient of maximum(0, slack) is 0 where slack is 0, as in the paper.
        density = -cost * pt.maximum(0.0, margin - value.astype(score.dtype) * score)
        return check_parameters(
            density,
            pt.eq(pt.abs(value), 1),
            cost >= 0,
            margin >= 0,
            msg="labels are -1 or +1, cost >= 0, margin >= 0",
        )


class MulticlassHingeRV(LoopRandomVariable):
    """Random variable Op of `MulticlassHinge`."""

    name = "MulticlassHinge"
    signature = "(l),(),()->()"
    dtype = "int64"
    _print_name = ("MulticlassHinge", "\\operatorname{MulticlassHinge}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        scores: NDArray[np.floating],
        cost: NDArray[np.floating],
        margin: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.int64]:
        """Draw labels from ψ normalized over all labels."""
        cumulative = np.cumsum(label_probabilities(scores, cost, margin), axis=-1)
        shape = cumulative.shape[:-1] if size is None else size
        # The last sum may be below a uniform number by rounding: it is omitted.
        return np.sum(rng.random(shape)[..., None] >= cumulative[..., :-1], axis=-1)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one label."""

        @njit
        def draw(rng, scores, cost, margin):  # type: ignore[no-untyped-def]  # typed by Numba
            best, first, second = 0, -np.inf, -np.inf
            for k in range(scores.shape[0]):
                if scores[k] > first:
                    best, first, second = k, scores[k], first
                elif scores[k] > second:
                    second = scores[k]
            total = 0.0
            weights = np.empty(scores.shape[0])
            for k in range(scores.shape[0]):
                rival = second if k == best else first
                # Losses are relative to that of the best label, which avoids overflow.
                loss = max(0.0, margin + rival - scores[k]) - max(0.0, margin + second - first)
                weights[k] = np.exp(-cost * loss)
                total += weights[k]
            left = total * rng.random()
            label = 0
            while label < scores.shape[0] - 1 and left >= weights[label]:
                left -= weights[label]
                label += 1
            return np.int64(label)

        return draw


multiclass_hinge = MulticlassHingeRV()


class MulticlassHinge(Discrete):
    r"""Hinge-loss pseudo-likelihood of labels 0 … L − 1.

    .. math::

        \log \psi(y \mid s) = -c \cdot \max(0, \ell + \max_{k \ne y} s_k - s_y)

    with the scores s, the cost c and the margin ℓ: the loss of Crammer and Singer. As for `Hinge`
    ψ is not normalized and the posterior is a Gibbs posterior. `pymc.logp` is log ψ; random draws
    are from ψ(y) / Σ_k ψ(k).

    ========  ==================================================================
    Support   :math:`y \in \{0, \dots, L - 1\}`
    ========  ==================================================================

    Parameters
    ----------
    scores : tensor_like of float, shape (..., L)
        s, for a linear classifier ``X @ W`` with one column of W for each class; L at least 2.
    cost : tensor_like of float, shape (...)
        c, at least 0.
    margin : tensor_like of float, shape (...)
        ℓ, at least 0.
    **kwargs
        Arguments of every PyMC distribution: ``observed``, ``dims``, ``total_size``, ….

    Raises
    ------
    TypeError
        For an unknown argument.
    ParameterValueError
        When the log-density is evaluated with a label outside 0 … L − 1, or with a negative
        ``cost`` or ``margin``.
    ValueError
        If observed labels are known and not integers from 0 to L − 1, or not one for each row of
        scores, or if there are fewer than two scores.

    Warns
    -----
    UserWarning
        If the cost or the margin depends on a free variable.

    Notes
    -----
    The derivative with respect to the scores is c (e_y − e_k), k the first of the rivals with the
    largest score, where the loss is positive, and 0 elsewhere: an element of the
    subdifferential everywhere.

    References
    ----------
    .. [1] K. Crammer, Y. Singer. "On the Algorithmic Implementation of Multiclass Kernel-based
       Vector Machines", JMLR 2, 2001.
    .. [2] W. Hu, J. Zhu, B. Zhang. "Fast Sampling Methods for Bayesian Max-margin Models",
       section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import MulticlassHinge
    >>> X, y = np.array([[1.0, 0.5], [-1.0, 0.3], [0.0, 1.0]]), np.array([0, 1, 2])
    >>> with pm.Model() as model:
    ...     W = pm.Normal("W", 0.0, 1.0, shape=(2, 3))
    ...     label = MulticlassHinge("label", X @ W, observed=y)
    >>> scores = np.array([2.0, 1.5, -1.0])
    >>> pm.logp(MulticlassHinge.dist(scores), 0).eval(mode="FAST_COMPILE")
    array(-0.5)
    """

    rv_op = multiclass_hinge

    def __new__(
        cls, name: str, scores: Any, *args: Any, observed: Any = None, **kwargs: Any
    ) -> TensorVariable:
        """Check the observed labels and add the variable to the model."""
        if observed is not None:
            scores = pt.as_tensor_variable(floatX(scores))
            shape = known_shape(scores)
            if shape:
                require_classes(name, observed, shape[-1], shape[:-1])
            else:
                n_classes = scores.type.shape[-1] if scores.type.ndim else None
                require_classes(name, observed, n_classes)
        warn_of_random_cost(name, args, kwargs)
        return super().__new__(cls, name, scores, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, scores: Any, cost: Any = 1.0, margin: Any = 1.0, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        require_known_arguments(cls, kwargs)
        parameters = [pt.as_tensor_variable(floatX(value)) for value in (scores, cost, margin)]
        if parameters[0].type.ndim == 0 or parameters[0].type.shape[-1] in (0, 1):
            raise ValueError(
                "scores of MulticlassHinge must have one number for each of at least two classes "
                f"on the last axis, but has the static shape {parameters[0].type.shape}; for two "
                "classes with one signed score use Hinge"
            )
        return super().dist(parameters, **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        scores: TensorVariable,
        cost: TensorVariable,
        margin: TensorVariable,
    ) -> TensorVariable:
        """Return the label with the largest score."""
        point = pt.broadcast_arrays(pt.argmax(scores, axis=-1), cost, margin)[0]
        return point if rv_size_is_none(size) else pt.full(size, point)

    def logp(
        value: TensorVariable, scores: TensorVariable, cost: TensorVariable, margin: TensorVariable
    ) -> TensorVariable:
        """Return log ψ, shape (...), for labels of shape (...)."""
        n_classes = scores.shape[-1]
        classes = pt.arange(n_classes)
        is_label = pt.eq(value[..., None], classes)
        # A maximum has a derivative in all elements that tie, a selection in one.
        rival = pt.argmax(pt.switch(is_label, -np.inf, scores), axis=-1)
        is_rival = pt.eq(rival[..., None], classes)
        difference = is_rival.astype(scores.dtype) - is_label.astype(scores.dtype)
        slack = margin + pt.sum(difference * scores, axis=-1)
        return check_parameters(
            -cost * pt.maximum(0.0, slack),
            value >= 0,
            value < n_classes,
            cost >= 0,
            margin >= 0,
            msg="labels are integers from 0 to L - 1, cost >= 0, margin >= 0",
        )
