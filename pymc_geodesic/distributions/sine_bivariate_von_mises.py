r"""Bivariate von Mises distribution of the sine model on the torus: density, constant and draws.

The constant is

.. math::

    Z = 4\pi^2 \sum_{m \ge 0} \binom{2m}{m} \Bigl(\frac{\lambda}{2}\Bigr)^{2m}
        \frac{I_m(\kappa_1)}{\kappa_1^m} \frac{I_m(\kappa_2)}{\kappa_2^m} .

Every term is positive, and :math:`I_m(\kappa) / \kappa^m` is the inverse of a von Mises–Fisher
constant, which is differentiable at zero.

For draws, let the means be zero. The second angle given the first, a, is von Mises with
concentration :math:`r(a) = \sqrt{\kappa_2^2 + \lambda^2 \sin^2 a}`, and the logarithm of the
density of the first is :math:`\kappa_1 \cos a + \log I_0(r(a))`. The logarithm of
:math:`I_0(\sqrt z)` is concave in z, so that its tangent bounds it: with
:math:`\beta = \lambda^2 A(r_0) / (2 r_0)`, A = I₁/I₀, up to a constant by
:math:`h(a) = \kappa_1 \cos a + \beta \sin^2 a`, a parabola in the cosine. Two von Mises envelopes
lie above h:

- around zero, by a tangent in :math:`y = \sin^2(a/2)`, where
  :math:`h = \kappa_1 - (2\kappa_1 - 4\beta) y - 4\beta y^2`;
- around :math:`\pm a_0`, :math:`\cos a_0 = \kappa_1 / (2\beta)`, the maxima of h if this is below
  one: :math:`h = h_0 - 4\beta \sin^2\frac{a - a_0}{2} \sin^2\frac{a + a_0}{2}
  \le h_0 - (\beta - \kappa_1 / 2)(1 - \cos(a - a_0))` for a in [0, π].

The angle with the smaller concentration is drawn first. Proposals are accepted with the ratio of
the density to the envelope, hence draws are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.pytensorf import floatX
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.basic import ARange
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.circular import (
    Angular,
    compiled_von_mises,
    draw_von_mises,
    wrap_angles,
)
from pymc_geodesic.distributions.validation import last_length
from pymc_geodesic.ops.bessel import NUMPY_FUNCTIONS, bessel_functions
from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
from pymc_geodesic.ops.jax_backend import WithJax
from pymc_geodesic.ops.numba_backend import LoopOp, LoopRandomVariable

SMALL_LAMBDA = 1e-7
"""|λ| below which two terms are exact to rounding; these are differentiable at zero."""

DROP = 40.0
"""Difference between the logarithms of the largest and the last term."""

MAX_TERMS = 1e7
"""Maximum number of terms; the constant is NaN if more are needed."""

JAX_TERMS = 1024
"""Number of terms with JAX, whose arrays have a static shape.

They suffice for κ below 24,000 and |λ| below 1,500.
"""

Array = NDArray[np.float64]

N_ITERATIONS = 12
"""Iterations of the fixed point for r₀; the envelope is valid for any r₀."""


class SeriesLength(LoopOp, WithJax, Op):
    """Identity of the number of terms, by which the JAX rewrite finds the series."""

    __props__ = ()

    def make_node(self, length: TensorVariable) -> Apply:
        """Build the node."""
        return Apply(self, [length], [length.type()])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of a scalar."""
        return [()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the number of terms has no derivative."""
        return [[False]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Copy the number."""
        outputs[0][0] = np.array(inputs[0])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the copy of the number."""

        @njit
        def copy(length):  # type: ignore[no-untyped-def]  # typed by Numba
            return length.copy()

        return copy

    def jax_function(self, node: Apply) -> Callable[..., Any]:
        """Return the identity."""
        return lambda length: length


@node_rewriter([ARange])
def _terms_for_jax(fgraph: Any, node: Apply) -> list[TensorVariable] | None:
    """Replace the terms of the series by a fixed number of them."""
    stop = node.inputs[1]
    if stop.owner is None or not isinstance(stop.owner.op, SeriesLength):
        return None
    return [pt.constant(np.arange(JAX_TERMS), dtype=node.outputs[0].type.dtype)]


optdb.register("terms_of_sine_model", dfs_rewriter(_terms_for_jax), "jax", position=0.0)


def _number_of_terms(kappa: TensorVariable, lam: TensorVariable) -> TensorVariable:
    r"""Return a sufficient number of terms for all rows.

    By Amos's bound, terms decrease at least as fast as those with both concentrations equal to the
    smaller one, κ; the largest of these is near
    :math:`m_* = (\lambda^2 - \kappa^2) / (2 |\lambda|)`, and with :math:`R^2 = m_*^2 + \kappa^2`
    the logarithm has decreased by :math:`\Delta^2 / (R + \Delta)` at :math:`m_* + \Delta`.
    """
    least, size = pt.min(kappa, axis=-1), pt.switch(pt.abs(lam) > 1e-6, pt.abs(lam), 1e-6)
    peak = pt.switch(size > least, (size**2 - least**2) / (2.0 * size), 0.0)
    radius = pt.sqrt(peak**2 + least**2)
    beyond = DROP / 2.0 + pt.sqrt(DROP**2 / 4.0 + DROP * radius)
    n_terms = pt.ceil(pt.max(peak + beyond)) + 2.0
    return pt.switch((n_terms >= 2.0) & (n_terms < MAX_TERMS), n_terms, 2.0).astype("int64")


def log_sine_normalizer(kappa: TensorVariable, lam: TensorVariable) -> TensorVariable:
    r"""Return log Z, differentiable in both arguments.

    Parameters
    ----------
    kappa : TensorVariable, shape (..., 2)
        Concentrations, at least 0.
    lam : TensorVariable, shape (...)
        Interaction.

    Returns
    -------
    TensorVariable of float64, shape (...)
        NaN if λ is so large that more than ten million terms are needed; with JAX, if more than
        `JAX_TERMS` are.

    References
    ----------
    Singh, Hnizdo and Demchuk (2002), Probabilistic model for two dependent circular variables,
    equation 3; Amos (1974), Computation of modified Bessel functions and their ratios.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.distributions.sine_bivariate_von_mises import log_sine_normalizer
    >>> log_z = log_sine_normalizer(pt.as_tensor([0.0, 0.0]), pt.as_tensor(0.0))
    >>> float(log_z.exp().eval(mode="FAST_COMPILE") / (4 * np.pi**2))
    1.000...
    """
    kappa, lam = kappa.astype("float64"), lam.astype("float64")
    n_terms = SeriesLength()(_number_of_terms(kappa, lam))
    terms_of_series = pt.arange(n_terms)
    m = terms_of_series.astype("float64")
    constants = log_vmf_normalizer(2.0 * m + 2.0, kappa[..., None]).sum(axis=-2)
    log_binomial = pt.gammaln(2.0 * m + 1.0) - 2.0 * pt.gammaln(m + 1.0)
    fixed = log_binomial - constants - 2.0 * (m + 1.0) * np.log(2.0 * np.pi)
    is_small = pt.abs(lam) < SMALL_LAMBDA
    size = pt.switch(is_small, 1.0, pt.abs(lam))
    terms = fixed + 2.0 * m * pt.log(0.5 * size)[..., None]
    quarter = 0.25 * pt.switch(is_small, lam, 0.0) ** 2
    two_terms = fixed[..., 0] + pt.log1p(quarter * pt.exp(fixed[..., 1] - fixed[..., 0]))
    suffices = (n_terms > 2) & (n_terms <= terms_of_series.shape[0])
    summed = pt.switch(suffices, pt.logsumexp(terms, axis=-1), np.nan)
    return 2.0 * np.log(2.0 * np.pi) + pt.switch(is_small, two_terms, summed)


class Envelope(NamedTuple):
    """Logarithm of an envelope: height − concentration · (1 − cos(a − center)), mirrored."""

    center: Any
    concentration: Any
    height: Any


def _log_bessel(r: Any, log_normalizer: Callable[..., Any]) -> Any:
    """Return log I₀(r)."""
    return -log_normalizer(2.0, r) - math.log(2.0 * math.pi)


def envelopes(k1: Array, k2: Array, lam: Array) -> Envelope:
    """Return the better of the two envelopes for each pair; see the module docstring.

    Parameters
    ----------
    k1, k2, lam : ndarray, shape (n,)
        Concentration of the angle that is drawn first and of the other one, and interaction.
    """
    squared = lam**2
    z = k2**2 + squared
    for _ in range(N_ITERATIONS):
        slope = _tangent_slope(z)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosine = np.where(2.0 * squared * slope > k1, k1 / (2.0 * squared * slope), 1.0)
        z = k2**2 + squared * (1.0 - cosine**2)
    slope = _tangent_slope(z)
    beta = squared * slope
    offset = _log_bessel(np.sqrt(z), NUMPY_FUNCTIONS.log_normalizer) + slope * (k2**2 - z)
    positive = np.where(beta > 0.0, beta, 1.0)
    mode = np.where(beta > 0.0, np.maximum(0.5 - 0.25 * k1 / positive, 0.0), 0.0)
    narrow = np.maximum(k1 - 2.0 * beta, 1e-300)
    tangent = mode + np.where(
        beta > 0.0, np.minimum(1.0 / np.sqrt(8.0 * positive), 0.5 / narrow), 0.0
    )
    around_zero = k1 - 2.0 * beta + 4.0 * beta * tangent
    split = 4.0 * beta * mode**2 > 1.0
    cosine = np.where(split, 0.5 * k1 / positive, 1.0)
    return Envelope(
        np.where(split, np.arccos(np.minimum(cosine, 1.0)), 0.0),
        np.maximum(np.where(split, beta - 0.5 * k1, around_zero), 0.0),
        offset + np.where(split, 0.25 * k1**2 / positive + beta, k1 + 4.0 * beta * tangent**2),
    )


def _tangent_slope(z: Any) -> Any:
    """Return the derivative of log I₀(√z), A(r) / (2r), 1/4 at zero."""
    r = np.sqrt(np.maximum(z, 1e-300))
    return 0.5 * NUMPY_FUNCTIONS.mean_resultant_length(2.0, r) / r


def _first_angles(rng: np.random.Generator, k1: Array, k2: Array, lam: Array) -> tuple[Array, int]:
    """Draw the first angle of each pair; return also the number of proposals."""
    center, concentration, height = envelopes(k1, k2, lam)
    angles = np.empty(k1.size)
    rows, proposals = np.arange(k1.size), 0
    while rows.size:
        proposals += rows.size
        side = np.where(rng.random(rows.size) < 0.5, -1.0, 1.0)
        away = draw_von_mises(rng, np.zeros(()), concentration[rows])
        proposal = wrap_angles(center[rows] + away)
        r = np.sqrt(k2[rows] ** 2 + (lam[rows] * np.sin(proposal)) ** 2)
        target = k1[rows] * np.cos(proposal) + _log_bessel(r, NUMPY_FUNCTIONS.log_normalizer)
        bound = height[rows] - concentration[rows] * 2.0 * np.sin(0.5 * away) ** 2
        kept = -rng.standard_exponential(rows.size) <= target - bound
        kept &= (center[rows] == 0.0) | (proposal >= 0.0)
        angles[rows[kept]] = (side * proposal)[kept]
        rows = rows[~kept]
    return angles, proposals


def draw_sine_bivariate(
    rng: np.random.Generator,
    mu: ArrayLike,
    kappa: ArrayLike,
    lam: ArrayLike,
    size: tuple[int, ...] | None = None,
) -> Array:
    """Draw exactly from bivariate von Mises distributions.

    Parameters
    ----------
    rng : numpy.random.Generator
    mu, kappa : array_like of float, shape (..., 2)
    lam : array_like of float, shape (...)
    size : tuple of int, optional
        Shape of the result without its last axis.

    Returns
    -------
    ndarray of float, shape (*size, 2)
        Angles in (−π, π].

    Raises
    ------
    ValueError
        If ``kappa`` is negative or a parameter is not finite.

    References
    ----------
    Singh, Hnizdo and Demchuk (2002), section 3, for the conditional distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.sine_bivariate_von_mises import draw_sine_bivariate
    >>> x = draw_sine_bivariate(np.random.default_rng(1), [0.0, 1.0], [1e6, 1e6], 0.0, (2,))
    >>> x.round(1) + 0.0
    array([[0., 1.], [0., 1.]])
    """
    means, kappas, lams = (np.asarray(each, dtype=float) for each in (mu, kappa, lam))
    if not (np.all(kappas >= 0) and np.all(np.isfinite(kappas)) and np.all(np.isfinite(lams))):
        raise ValueError("kappa must be finite and at least 0, lam finite")
    if size is None:
        size = np.broadcast_shapes(means.shape[:-1], kappas.shape[:-1], lams.shape)
    kappas = np.broadcast_to(kappas, (*size, 2)).reshape(-1, 2)
    lams = np.broadcast_to(lams, size).reshape(-1)
    first = np.argmin(kappas, axis=1)
    rows = np.arange(len(kappas))
    k1, k2 = kappas[rows, first], kappas[rows, 1 - first]
    angles = np.empty((len(kappas), 2))
    a, _ = _first_angles(rng, k1, k2, lams)
    cross = lams * np.sin(a)
    angles[rows, first] = a
    angles[rows, 1 - first] = draw_von_mises(rng, np.arctan2(cross, k2), np.hypot(k2, cross))
    return wrap_angles(means + angles.reshape(*size, 2))


@cache
def compiled_sine_pair(njit: Any) -> Callable[..., None]:
    """Return the function, compiled by Numba, that fills an array with angles around zero.

    Parameters
    ----------
    njit : callable
        Decorator, the argument of `WithLoop.numba_loop`.

    Returns
    -------
    callable
        Function of the generator, κ₁, κ₂, λ and the array to fill, shape (2,).
    """
    von_mises = compiled_von_mises(njit)
    bessel = bessel_functions(np.sqrt, np.log, njit(fastmath=False))
    log_normalizer, mean_length = bessel.log_normalizer, bessel.mean_resultant_length
    log_circle = math.log(2.0 * math.pi)

    @njit
    def tangent_slope(z: float) -> float:
        r = np.sqrt(max(z, 1e-300))
        return 0.5 * mean_length(2.0, r) / r

    @njit
    def envelope(k1: float, k2: float, lam: float) -> tuple[float, float, float]:
        squared = lam * lam
        z = k2 * k2 + squared
        for _ in range(N_ITERATIONS):
            steep = 2.0 * squared * tangent_slope(z)
            cosine = k1 / steep if steep > k1 else 1.0
            z = k2 * k2 + squared * (1.0 - cosine * cosine)
        slope = tangent_slope(z)
        beta = squared * slope
        offset = -log_normalizer(2.0, np.sqrt(z)) - log_circle + slope * (k2 * k2 - z)
        mode, tangent = 0.0, 0.0
        if beta > 0.0:
            mode = max(0.5 - 0.25 * k1 / beta, 0.0)
            narrow = max(k1 - 2.0 * beta, 1e-300)
            tangent = mode + min(1.0 / np.sqrt(8.0 * beta), 0.5 / narrow)
        if 4.0 * beta * mode * mode > 1.0:
            center = np.arccos(0.5 * k1 / beta)
            return center, beta - 0.5 * k1, offset + 0.25 * k1 * k1 / beta + beta
        concentration = max(k1 - 2.0 * beta + 4.0 * beta * tangent, 0.0)
        return 0.0, concentration, offset + k1 + 4.0 * beta * tangent * tangent

    @njit
    def fill_pair(rng: np.random.Generator, k1: float, k2: float, lam: float, out: Array) -> None:
        if not (k1 >= 0.0 and k2 >= 0.0 and k1 < np.inf and k2 < np.inf and np.isfinite(lam)):
            raise ValueError("kappa must be finite and at least 0, lam finite")
        first = 0 if k1 <= k2 else 1
        near, far = min(k1, k2), max(k1, k2)
        center, concentration, height = envelope(near, far, lam)
        while True:
            side = -1.0 if rng.random() < 0.5 else 1.0
            away = von_mises(rng, 0.0, concentration)
            angle = np.pi - (np.pi - center - away) % (2.0 * np.pi)
            cross = lam * np.sin(angle)
            r = np.sqrt(far * far + cross * cross)
            target = near * np.cos(angle) - log_normalizer(2.0, r) - log_circle
            bound = height - concentration * 2.0 * np.sin(0.5 * away) ** 2
            if -rng.standard_exponential() <= target - bound and (center == 0.0 or angle >= 0.0):
                break
        cross *= side
        out[first] = side * angle
        out[1 - first] = von_mises(rng, np.arctan2(cross, far), r)

    return fill_pair


class SineBivariateVonMisesRV(LoopRandomVariable):
    """Random variable Op of `SineBivariateVonMises`."""

    name = "SineBivariateVonMises"
    signature = "(p),(p),()->(p)"
    dtype = "floatX"
    _print_name = ("SineBivariateVonMises", "\\operatorname{SineBivariateVonMises}")

    @classmethod
    def rng_fn(
        cls,
        rng: np.random.Generator,
        mu: NDArray[np.floating],
        kappa: NDArray[np.floating],
        lam: NDArray[np.floating],
        size: tuple[int, ...] | None,
    ) -> NDArray[np.float64]:
        """Draw from the distribution; see `draw_sine_bivariate`."""
        return draw_sine_bivariate(rng, mu, kappa, lam, size)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the draw of one pair of angles."""
        dtype = self.dtype
        fill_pair = compiled_sine_pair(njit)

        @njit
        def draw(rng, mu, kappa, lam, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
            if out is None:
                out = np.empty(2, dtype=dtype)
            fill_pair(rng, np.float64(kappa[0]), np.float64(kappa[1]), np.float64(lam), out)
            for i in range(2):
                out[i] = np.pi - (np.pi - out[i] - mu[i]) % (2.0 * np.pi)
            return out

        draw.handles_out = True
        return draw


sine_bivariate_von_mises = SineBivariateVonMisesRV()


class SineBivariateVonMises(Angular):
    r"""Bivariate von Mises distribution (sine model) of pairs of dependent angles.

    .. math::

        p(\theta \mid \mu, \kappa, \lambda) = \frac1Z \exp\{
            \kappa_1 \cos(\theta_1 - \mu_1) + \kappa_2 \cos(\theta_2 - \mu_2)
            + \lambda \sin(\theta_1 - \mu_1) \sin(\theta_2 - \mu_2) \},

        Z = 4\pi^2 \sum_{m \ge 0} \binom{2m}{m} \Bigl( \frac{\lambda^2}{4 \kappa_1 \kappa_2}
            \Bigr)^{\!m} I_m(\kappa_1)\, I_m(\kappa_2) .

    =========== ===============================================================
    Support     the torus, angles in radians, of period 2π
    Means       directions :math:`\mu_1, \mu_2`
    Moments     :math:`\mathbb{E} \cos(\theta_i - \mu_i) = \partial_{\kappa_i} \log Z`,
                :math:`\mathbb{E} \sin(\theta_1 - \mu_1) \sin(\theta_2 - \mu_2)
                = \partial_\lambda \log Z`
    Mode        μ if :math:`\lambda^2 \le \kappa_1 \kappa_2`, else there are two
    =========== ===============================================================

    For large concentrations it is close to a normal distribution whose precision matrix has the
    diagonal κ and the off-diagonal −λ. The series has positive terms and is summed to rounding; its
    gradient in κ and λ is that of the sum. Draws are exact. Free variables carry a circular
    transform.

    Parameters
    ----------
    mu : tensor_like of float, shape (..., 2)
        Mean directions, angles in radians.
    kappa : tensor_like of float, shape (..., 2)
        Concentrations, at least 0.
    lam : tensor_like of float, shape (...)
        Interaction λ, any real number; zero for independent angles.
    **kwargs
        Arguments of every PyMC distribution: ``shape``, ``dims``, ``observed``, ….

    Raises
    ------
    ParameterValueError
        When the density is evaluated with a negative ``kappa`` or parameters that are not finite.
    ValueError
        If ``mu`` or ``kappa`` is no pair, or observed angles are known and not finite.

    Warns
    -----
    UserWarning
        If observed angles are known and some are beyond 4π, as degrees are.

    Notes
    -----
    The computing time grows with the square root of the concentrations, and linearly in λ if it is
    larger. With JAX the series always has 1,024 terms, enough for κ below 24,000 and λ from
    −1,500 to 1,500; beyond, the log-density is NaN.

    References
    ----------
    Singh, Hnizdo and Demchuk (2002), Probabilistic model for two dependent circular variables,
    equations 1 and 3; Mardia, Taylor and Subramaniam (2007), Protein bioinformatics and mixtures of
    bivariate von Mises distributions for angular data, for the modes.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic import SineBivariateVonMises
    >>> x = SineBivariateVonMises.dist(mu=[0.0, 1.0], kappa=[2.0, 3.0], lam=1.5)
    >>> float(pm.logp(x, np.array([0.3, 1.2])).eval(mode="FAST_COMPILE"))
    -1.253728...
    """

    rv_op = sine_bivariate_von_mises

    @classmethod
    def dist(cls, mu: Any, kappa: Any, lam: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; the parameters are those of the class."""
        mu, kappa, lam = (pt.as_tensor_variable(floatX(each)) for each in (mu, kappa, lam))
        for name, pair in (("mu", mu), ("kappa", kappa)):
            if pair.type.ndim == 0 or pair.type.shape[-1] not in (None, 2):
                raise ValueError(
                    f"{name} of SineBivariateVonMises must be a pair of numbers on its last axis, "
                    f"but has the static shape {pair.type.shape}"
                )
        last = last_length(kwargs.get("shape"))
        if last not in (None, 2):
            raise ValueError(
                "the shape of SineBivariateVonMises, or of its observed data or dims, ends with "
                f"{last}; the last axis holds the two angles"
            )
        return super().dist([mu, kappa, lam], **kwargs)

    def support_point(
        rv: TensorVariable,
        size: TensorVariable,
        mu: TensorVariable,
        kappa: TensorVariable,
        lam: TensorVariable,
    ) -> TensorVariable:
        """Return the mean directions."""
        point = pt.broadcast_arrays(pt.arctan2(pt.sin(mu), pt.cos(mu)), kappa, lam[..., None])[0]
        return point if rv_size_is_none(size) else pt.full(pt.concatenate([size, [2]]), point)

    def logp(
        value: TensorVariable, mu: TensorVariable, kappa: TensorVariable, lam: TensorVariable
    ) -> TensorVariable:
        """Return the log-density of pairs of angles, shape (...), for values of shape (..., 2)."""
        if value.type.ndim == 0 or value.type.shape[-1] not in (None, 2):
            raise ValueError(
                "values of SineBivariateVonMises are pairs of angles on the last axis; this one "
                f"has the static shape {value.type.shape}"
            )
        away = value - mu
        exponent = pt.sum(kappa * pt.cos(away), axis=-1)
        exponent = exponent + lam * pt.sin(away[..., 0]) * pt.sin(away[..., 1])
        return check_parameters(
            exponent - log_sine_normalizer(kappa, lam).astype(kappa.dtype),
            pt.isfinite(mu).all(axis=-1),
            (kappa >= 0).all(axis=-1) & pt.isfinite(kappa).all(axis=-1),
            pt.isfinite(lam),
            msg="mu and lam of SineBivariateVonMises are finite, kappa >= 0",
        )
