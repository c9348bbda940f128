"""The hinge loss of a binary classifier as a pseudo-likelihood."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Discrete
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.arguments import require_known_arguments, warn_of_free_loss
from pymc_geodesic.distributions.known_shapes import known_shape
from pymc_geodesic.distributions.labels import probability_of_plus_one, require_signs
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


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
        """Draw labels from ψ normalised over both labels."""
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
    r"""Labels −1 and +1 whose pseudo-likelihood is the hinge loss of a score.

    .. math::

        \log \psi(y \mid s) = -c \cdot \max(0, \ell - y\,s), \qquad y \in \{-1, +1\}

    with the score s, the cost c and the margin ℓ. ψ is not normalised: ψ(−1) + ψ(+1) depends on
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
        c, at least 0. Do not give it a prior: the missing normaliser would depend on it.
    margin : tensor_like of float, shape (...)
        ℓ, at least 0. What holds for the cost holds for the margin.
    **kwargs
        What every PyMC distribution takes: ``observed``, ``dims``, ``total_size``, ….

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
        warn_of_free_loss(name, args, kwargs)
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
        """Return the label on whose side the score is."""
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
