"""Numba implementations of the Ops of the distributions.

Imported for its effect by `pymc_geodesic.distributions.lazy_dispatch`.
"""

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getsource
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_geodesic.distributions import bessel, compiled_draws, debye
from pymc_geodesic.distributions.bessel import BesselFunctions, bessel_functions
from pymc_geodesic.distributions.compiled_draws import fill_uniform, fill_von_mises_fisher
from pymc_geodesic.distributions.hinge import HingeRV
from pymc_geodesic.distributions.multiclass_hinge import MulticlassHingeRV
from pymc_geodesic.distributions.special_ops import BesselScalarOp
from pymc_geodesic.distributions.spherical_admixture import SphericalAdmixtureRV
from pymc_geodesic.distributions.uniform_sphere import UniformSphereRV
from pymc_geodesic.distributions.von_mises_fisher import VonMisesFisherRV

CODE_VERSION = int.from_bytes(
    sha256(
        "".join(
            getsource(module) for module in (bessel, debye, compiled_draws, sys.modules[__name__])
        ).encode()
    ).digest()[:8]
)
"""Part of the keys of PyTensor's on-disk cache, which cannot see that code here has changed."""


@cache
def compiled_bessel_functions() -> BesselFunctions:
    """Return the Bessel functions as Numba functions of two scalars."""
    return bessel_functions(np.sqrt, np.log, numba_njit(fastmath=False))


@register_funcify_and_cache_key(BesselScalarOp)
def bessel_scalar_op(
    op: BesselScalarOp, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], str]:
    """Return the loop form of the function and its cache key."""
    key = f"{type(op)}, {op.function}, {CODE_VERSION}"
    return getattr(compiled_bessel_functions(), op.function), sha256(key.encode()).hexdigest()


@numba_core_rv_funcify.register(VonMisesFisherRV)
def von_mises_fisher_rv(op: VonMisesFisherRV, node: Apply) -> tuple[Callable[..., Any], int]:
    """Return the draw of one direction and its version in the cache."""
    dtype = op.dtype

    @numba_njit
    def draw(rng, mu, kappa, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
        if out is None:
            out = np.empty(mu.shape[0], dtype=dtype)
        fill_von_mises_fisher(rng, mu, kappa, out)
        return out

    draw.handles_out = True
    return draw, CODE_VERSION


@numba_core_rv_funcify.register(UniformSphereRV)
def uniform_sphere_rv(op: UniformSphereRV, node: Apply) -> tuple[Callable[..., Any], int]:
    """Return the draw of one direction and its version in the cache."""
    dtype = op.dtype

    @numba_njit
    def draw(rng, d, out=None):  # type: ignore[no-untyped-def]  # typed by Numba
        if out is None:
            out = np.empty(d, dtype=dtype)
        fill_uniform(rng, out)
        return out

    draw.handles_out = True
    return draw, CODE_VERSION


@numba_core_rv_funcify.register(SphericalAdmixtureRV)
def spherical_admixture_rv(op: SphericalAdmixtureRV, node: Apply) -> tuple[Callable[..., Any], int]:
    """Return the draw of one document and its version in the cache."""
    dtype = op.dtype

    @numba_njit
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
    return draw, CODE_VERSION


@numba_core_rv_funcify.register(HingeRV)
def hinge_rv(op: HingeRV, node: Apply) -> tuple[Callable[..., Any], int]:
    """Return the draw of one label and its version in the cache."""

    @numba_njit
    def draw(rng, score, cost, margin):  # type: ignore[no-untyped-def]  # typed by Numba
        log_odds = cost * (max(0.0, margin + score) - max(0.0, margin - score))
        return np.int64(1 if rng.random() * (1.0 + np.exp(-log_odds)) < 1.0 else -1)

    return draw, CODE_VERSION


@numba_core_rv_funcify.register(MulticlassHingeRV)
def multiclass_hinge_rv(op: MulticlassHingeRV, node: Apply) -> tuple[Callable[..., Any], int]:
    """Return the draw of one label and its version in the cache."""

    @numba_njit
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
            # The best label has the largest weight: relative to it nothing overflows.
            loss = max(0.0, margin + rival - scores[k]) - max(0.0, margin + second - first)
            weights[k] = np.exp(-cost * loss)
            total += weights[k]
        left = total * rng.random()
        label = 0
        while label < scores.shape[0] - 1 and left >= weights[label]:
            left -= weights[label]
            label += 1
        return np.int64(label)

    return draw, CODE_VERSION
