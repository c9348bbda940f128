"""Likelihood of the spherical admixture model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.pytensorf import floatX
from pytensor.graph.basic import Apply
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.rotationally_symmetric import log_density_of_cosine
from pymc_geodesic.distributions.unit_sphere import Directional, broadcast_to_size
from pymc_geodesic.distributions.validation import length_of_last_axis, minus_infinity_off_sphere
from pymc_geodesic.distributions.von_mises_fisher_draws import compiled_draws, draw_von_mises_fisher
from pymc_geodesic.ops.inner_products import (
    gram_matrix,
    matrix_product,
    squared_length,
    without_leading_axes,
)
from pymc_geodesic.ops.numba_backend import LoopRandomVariable


class SphericalAdmixtureRV(LoopRandomVariable):
    """Random variable Op of `SphericalAdmixture`."""

    name = "SphericalAdmixture"
    signature = "(k),(k,v),()->(v)"
    dtype = "floatX"
    _print_name = ("SphericalAdmixture", "\\operatorname{SphericalAdmixture}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        theta: NDArray[np.floating],
        beta: NDArray[np.floating],
        kappa: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_von_mises_fisher`."""
        means = np.matmul(theta[..., None, :], beta)[..., 0, :]
        lengths = np.linalg.norm(means, axis=-1, keepdims=True)
        return draw_von_mises_fisher(rng, means / lengths, kappa, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one document."""
        dtype = self.dtype
        fill_von_mises_fisher = compiled_draws(njit).fill_von_mises_fisher

        @njit
        def draw(rng, theta, beta, kappa, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            mean = np.zeros(beta.shape[1])
            for topic in range(beta.shape[0]):
                mean += theta[topic] * beta[topic]
            mean /= np.sqrt(np.sum(mean * mean))
            if out is None:
                out = np.empty(beta.shape[1], dtype=dtype)
            fill_von_mises_fisher(rng, mean, kappa, out)
            return out

        draw.handles_out = True
        return draw


spherical_admixture = SphericalAdmixtureRV()


class SphericalAdmixture(Directional):
    r"""Spherical admixture likelihood: von Mises–Fisher documents around mixtures of topics.

    .. math::

        v_d \sim \mathrm{vMF}\Bigl(\frac{\beta^\top \theta_d}{\|\beta^\top \theta_d\|},
        \kappa\Bigr), \qquad
        \log p(v_d) = \log c_V(\kappa) + \kappa\,
        \frac{\theta_d \cdot \beta v_d}{\sqrt{\theta_d^\top \beta \beta^\top \theta_d}} .

    The log-density is computed from :math:`\beta\beta^\top` (K × K) and :math:`v \beta^\top` (D ×
    K), which do not depend on ``theta``. The mean vectors of the documents (D × V) are not formed,
    and the gradient in ``beta`` needs one product of K × D with D × V.

    Parameters
    ----------
    theta : tensor_like of float, shape (..., D, K)
        Proportions of the topics in each document; their sum has no effect.
    beta : tensor_like of float, shape (K, V)
        Topics, unit vectors over the V words.
    kappa : tensor_like of float, shape (...)
        Concentration, at least 0.
    **kwargs
        Arguments of every PyMC distribution: ``observed`` (unit vectors, a dense array of shape
        (D, V)), ``dims``, ``total_size``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a negative ``kappa``.
    TypeError
        If observed data are a sparse matrix.
    ValueError
        If observed data are known and a document is not a unit vector (for example, if it is empty
        or has NaN), or if the number of words is not that of ``beta``.

    Notes
    -----
    A document whose mixture of topics is the zero vector, as for two opposite topics in equal
    proportions, has no mean direction; its log-density is NaN.

    References
    ----------
    Reisinger, Waters, Silverthorn and Mooney (2010), Spherical topic models; Liu, Zhu and Song
    (2016), Stochastic gradient geodesic MCMC methods, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions import SphericalAdmixture, UniformSphere
    >>> documents = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, 0.8]])
    >>> with pm.Model(coords={"topic": range(2), "word": list("abc")}) as model:
    ...     theta = pm.Dirichlet("theta", np.ones(2), shape=(2, 2))
    ...     beta = UniformSphere("beta", dims=("topic", "word"))
    ...     v = SphericalAdmixture("v", theta, beta, kappa=5.0, observed=documents)
    >>> print(model.str_repr())
    theta ~ Dirichlet(<constant>)
     beta ~ UniformSphere(3)
        v ~ SphericalAdmixture(theta, beta, 5)
    """

    rv_op = spherical_admixture

    @classmethod
    def dist(cls, theta: Any, beta: Any, kappa: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        theta = pt.as_tensor_variable(floatX(theta))
        beta = pt.as_tensor_variable(floatX(beta))
        kappa = pt.as_tensor_variable(floatX(kappa))
        if theta.type.ndim == 0 or beta.type.ndim < 2:
            raise ValueError(
                "SphericalAdmixture needs theta of shape (..., documents, topics) and beta of "
                f"shape (topics, words), but theta has {theta.type.ndim} and beta "
                f"{beta.type.ndim} axes"
            )
        counts = theta.type.shape[-1], beta.type.shape[-2]
        if None not in counts and counts[0] != counts[1]:
            raise ValueError(
                f"theta of SphericalAdmixture has {counts[0]} topics on its last axis, but beta "
                f"has {counts[1]} rows, one per topic"
            )
        cls.require_last_axis(kwargs.get("shape"), beta.type.shape[-1], "beta")
        return super().dist([theta, beta, kappa], **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        theta: TensorVariable,
        beta: TensorVariable,
        kappa: TensorVariable,
    ) -> TensorVariable:
        """Return the mean directions, which are on the sphere."""
        mixtures = matrix_product(theta, beta)
        means = mixtures / pt.sqrt(pt.sum(mixtures**2, axis=-1, keepdims=True))
        return broadcast_to_size(pt.broadcast_arrays(means, kappa[..., None])[0], size)

    def logp(
        value: TensorVariable, theta: TensorVariable, beta: TensorVariable, kappa: TensorVariable
    ) -> TensorVariable:
        """Return the log-density of each document, shape (..., D), of values (..., D, V)."""
        topics = without_leading_axes(beta, 2)
        if topics is None:
            gram = pt.matmul(beta, beta.mT)
            squared = pt.sum(matrix_product(theta, gram) * theta, axis=-1)
        else:
            squared = squared_length(theta, gram_matrix(topics))
        projections = pt.sum(theta * matrix_product(value, beta.mT), axis=-1)
        cosine = projections / pt.sqrt(squared)
        density = log_density_of_cosine(cosine, kappa, length_of_last_axis(beta, value))
        return check_parameters(
            minus_infinity_off_sphere(value, density), kappa >= 0, msg="kappa >= 0"
        )
