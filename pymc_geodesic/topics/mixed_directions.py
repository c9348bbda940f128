r"""Mean-field variational inference of the proportions of documents that are directions.

With :math:`\theta \sim \text{Dirichlet}(a)` and topics of moments
:math:`E \beta_k = b_k`, :math:`E \beta_k \beta_k^\top = s_k I + r_k b_k b_k^\top`, independent of
each other, let :math:`c = v \cdot \beta^\top\theta` and :math:`y = \|\beta^\top\theta\|^2`. The
expected cosine :math:`E\, c\, y^{-1/2}` has no closed form. A tangent of the convex
:math:`y^{-1/2}` lies below it, so that where c is not negative

.. math:: E \frac{c}{\sqrt y} \ge \rho = \frac{3}{2} \frac{E c}{\sqrt{E y}}
          - \frac{1}{2} \frac{E\, c y}{(E y)^{3/2}},

whose moments are polynomials in :math:`a`, :math:`v \cdot b_k` and :math:`b_j \cdot b_k`.
Kernels here maximise κρ less the divergence of Dirichlet(a) from Dirichlet(α) over a, by natural
gradients, and differentiate ρ by the moments of the topics.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.runtime.digamma import digamma, trigamma
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Matrix, Vector, kernel, part

HALVINGS = 30

SMALLEST_PART = 0.2
"""No component of a falls below this part of itself in one step."""


class TopicMoments(NamedTuple):
    """What documents need to know of the topics.

    Parameters
    ----------
    gram : ndarray, shape (K, K)
        b_j · b_k, with ones, E‖β_k‖², on the diagonal.
    isotropic, aligned : ndarray, shape (K,)
        s and r, of E ββᵀ = s I + r b bᵀ.
    """

    gram: Matrix
    isotropic: Vector
    aligned: Vector


class Climb(NamedTuple):
    """How far to go.

    Parameters
    ----------
    kappa : float
        Concentration of documents.
    tolerance : float
        Gain of a step, in nats, below which a document is done.
    steps : int
        At most.
    """

    kappa: float
    tolerance: float
    steps: int


class Sums(NamedTuple):
    """Derivatives of κ Σ_d ρ_d, by document or summed up.

    Parameters
    ----------
    by_cosine : ndarray, shape (n, K)
        By v_d · b_k.
    by_gram : ndarray, shape (n, K)
        h_d, of which Σ_d h_d a_dᵀ is the derivative by the matrix of b_j · b_k.
    by_isotropic, by_aligned : ndarray, shape (K,)
        By s and r, added to.
    """

    by_cosine: Matrix
    by_gram: Matrix
    by_isotropic: Vector
    by_aligned: Vector


class _Moments(NamedTuple):
    """Sums in the moments of one document, see `_moments`."""

    total: float
    cosine: float
    squared: float
    product: float
    spread: float


@part
def _moments(a, cosines, topics, mixed, weights):  # type: ignore[no-untyped-def]
    """Rising-factorial numerators of E c, E y and E cy.

    Fills ``mixed``, G a, and ``weights``, (a (a + 1) r − a²) v·b, on the way.
    """
    gram, isotropic, aligned = topics
    n = a.size
    total = 0.0
    cosine = 0.0
    for i in range(n):
        total += a[i]
        cosine += a[i] * cosines[i]
    squared = 0.0
    third = 0.0
    spread = 0.0
    for i in range(n):
        row = gram[i]
        product = 0.0
        for j in range(n):
            product += row[j] * a[j]
        mixed[i] = product
        squared += a[i] * product
        rising = a[i] * (a[i] + 1.0)
        weights[i] = (rising * aligned[i] - a[i] * a[i]) * cosines[i]
        others = cosine - cosines[i] * a[i]
        third += a[i] * a[i] * cosines[i] + rising * isotropic[i] * others
        third += weights[i] * (product - a[i])
        spread += rising * isotropic[i]
    product = cosine * (squared + total + 2.0) + 2.0 * third
    return _Moments(total, cosine, squared, product, spread)


@part
def _expected_cosine(moments):  # type: ignore[no-untyped-def]
    """ρ, and its derivatives by E c, E y and E cy."""
    total = moments.total
    first = moments.cosine / total
    second = (moments.squared + total) / (total * (total + 1.0))
    third = moments.product / (total * (total + 1.0) * (total + 2.0))
    root = 1.0 / math.sqrt(second)
    cube = root / second
    value = 1.5 * first * root - 0.5 * third * cube
    by_second = 0.75 * cube * (third / second - first)
    return value, 1.5 * root, by_second, -0.5 * cube


@part
def _differentiate_by_concentration(a, cosines, topics, moments, mixed, weights, gradient):  # type: ignore[no-untyped-def]
    """Write the gradient of ρ by the parameters of the Dirichlet distribution."""
    gram, isotropic, aligned = topics
    n = a.size
    total = moments.total
    _, by_first, by_second, by_third = _expected_cosine(moments)
    one, two = total, total * (total + 1.0)
    three = two * (total + 2.0)
    shared = -by_first * moments.cosine / (one * one)
    shared -= by_second * (moments.squared + total) * (2.0 * total + 1.0) / (two * two)
    shared -= (
        by_third * moments.product * (3.0 * total * total + 6.0 * total + 2.0) / (three * three)
    )
    by_first /= one
    by_second /= two
    by_third /= three
    cosine = moments.cosine
    for i in range(n):
        row = gram[i]
        product = 0.0
        for j in range(n):
            product += row[j] * weights[j]
        own, c, s = a[i], cosines[i], isotropic[i]
        cross = (2.0 * own + 1.0) * s * (cosine - c * own)
        cross += c * (moments.spread - own * (own + 1.0) * s)
        cross += ((2.0 * own + 1.0) * aligned[i] - 2.0 * own) * c * (mixed[i] - own)
        cross += product - weights[i]
        of_product = c * (moments.squared + total + 2.0) + cosine * (2.0 * mixed[i] + 1.0)
        of_product += 4.0 * own * c + 2.0 * cross
        gradient[i] = (
            shared + by_first * c + by_second * (2.0 * mixed[i] + 1.0) + by_third * of_product
        )


@part
def _divergence(a, alpha):  # type: ignore[no-untyped-def]
    """KL divergence of Dirichlet(a) from Dirichlet(α)."""
    total = 0.0
    prior = 0.0
    for i in range(a.size):
        total += a[i]
        prior += alpha[i]
    of_total = digamma(total)
    result = math.lgamma(total) - math.lgamma(prior)
    for i in range(a.size):
        result += math.lgamma(alpha[i]) - math.lgamma(a[i])
        result += (a[i] - alpha[i]) * (digamma(a[i]) - of_total)
    return result


@part
def _natural_direction(a, alpha, kappa, gradient, direction):  # type: ignore[no-untyped-def]
    """Write F⁻¹∇ of the bound; return the gain that it promises, to first order.

    F = diag ψ'(a) − ψ'(Σa) is the Fisher information, and F⁻¹ that of Sherman and Morrison. The
    natural gradient of the divergence is a − α.
    """
    total = 0.0
    for i in range(a.size):
        total += a[i]
    of_total = trigamma(total)
    sum_inverse = 0.0
    sum_gradient = 0.0
    for i in range(a.size):
        inverse = 1.0 / trigamma(a[i])
        direction[i] = inverse
        sum_inverse += inverse
        sum_gradient += inverse * kappa * gradient[i]
    common = of_total * sum_gradient / (1.0 - of_total * sum_inverse)
    gain = 0.0
    sum_direction = 0.0
    for i in range(a.size):
        inverse = direction[i]
        direction[i] = inverse * (kappa * gradient[i] + common) + alpha[i] - a[i]
        gain += direction[i] * direction[i] / inverse
        sum_direction += direction[i]
    return gain - of_total * sum_direction * sum_direction


@part
def _climb_one(a, cosines, topics, alpha, climb, work):  # type: ignore[no-untyped-def]
    """Maximise the bound of one document over a, in place; return the bound."""
    mixed, weights, gradient, direction, trial = work[0], work[1], work[2], work[3], work[4]
    moments = _moments(a, cosines, topics, mixed, weights)
    value = climb.kappa * _expected_cosine(moments)[0] - _divergence(a, alpha)
    step = 1.0
    for _ in range(climb.steps):
        _differentiate_by_concentration(a, cosines, topics, moments, mixed, weights, gradient)
        gain = _natural_direction(a, alpha, climb.kappa, gradient, direction)
        if not gain > climb.tolerance:
            break
        accepted = False
        for _ in range(HALVINGS):
            for i in range(a.size):
                trial[i] = max(a[i] + step * direction[i], SMALLEST_PART * a[i])
            moments = _moments(trial, cosines, topics, mixed, weights)
            proposed = climb.kappa * _expected_cosine(moments)[0] - _divergence(trial, alpha)
            if proposed > value:
                accepted = True
                break
            step *= 0.5
        if not accepted:
            break
        value = proposed
        for i in range(a.size):
            a[i] = trial[i]
        step = min(2.0 * step, 1.0)
    return value


@kernel
def climb_proportions(
    concentrations: Matrix, cosines: Matrix, topics: TopicMoments, alpha: Vector, climb: Climb
) -> float:
    """Maximise the bounds of some documents over the laws of their proportions, in place.

    Parameters
    ----------
    concentrations : ndarray, shape (n, K)
        a of each document, moved; no bound falls.
    cosines : ndarray, shape (n, K)
        v_d · b_k.
    topics : TopicMoments
    alpha : ndarray, shape (K,)
    climb : Climb

    Returns
    -------
    float
        Sum of the bounds κρ − KL.
    """
    every, products, topics, alpha = borrow((concentrations, cosines, topics, alpha))
    work = np.empty((5, alpha.size))
    total = 0.0
    for row in range(every.shape[0]):
        total += _climb_one(every[row], products[row], topics, alpha, climb, work)
    return total


@kernel
def differentiate_by_topics(
    concentrations: Matrix, cosines: Matrix, topics: TopicMoments, kappa: float, sums: Sums
) -> float:
    """Differentiate κ Σ_d ρ_d by the moments of the topics.

    Parameters
    ----------
    concentrations, cosines, topics
        See `climb_proportions`.
    kappa : float
    sums : Sums
        Receives the derivatives.

    Returns
    -------
    float
        κ Σ_d ρ_d.
    """
    every, products, topics, sums = borrow((concentrations, cosines, topics, sums))
    by_cosine, by_gram, by_isotropic, by_aligned = sums
    isotropic = topics.isotropic
    n = every.shape[1]
    mixed, weights = np.empty(n), np.empty(n)
    value = 0.0
    for row in range(every.shape[0]):
        a, c = every[row], products[row]
        moments = _moments(a, c, topics, mixed, weights)
        rho, by_first, by_second, by_third = _expected_cosine(moments)
        value += kappa * rho
        total = moments.total
        by_first *= kappa / total
        by_second *= kappa / (total * (total + 1.0))
        by_third *= kappa / (total * (total + 1.0) * (total + 2.0))
        for i in range(n):
            rising = a[i] * (a[i] + 1.0)
            others = moments.cosine - c[i] * a[i]
            factor = rising * topics.aligned[i] - a[i] * a[i]
            own = a[i] * (moments.squared + total + 2.0) + 2.0 * a[i] * a[i]
            own += 2.0 * factor * (mixed[i] - a[i])
            own += 2.0 * a[i] * (moments.spread - rising * isotropic[i])
            by_cosine[row, i] = by_first * a[i] + by_third * own
            by_gram[row, i] = (by_second + by_third * moments.cosine) * a[i]
            by_gram[row, i] += 2.0 * by_third * weights[i]
            by_isotropic[i] += by_third * 2.0 * rising * others
            by_aligned[i] += by_third * 2.0 * rising * c[i] * (mixed[i] - a[i])
    return value
