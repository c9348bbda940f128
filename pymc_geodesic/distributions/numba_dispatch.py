"""Numba implementations of the Ops of the distributions.

Imported for its effect by `pymc_geodesic.distributions.lazy_dispatch`.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key

from pymc_geodesic.distributions.bessel import BesselFunctions, bessel_functions
from pymc_geodesic.distributions.special_ops import BesselScalarOp

CODE_VERSION = 1
"""Part of the key of PyTensor's on-disk cache: raise it when compiled code here changes."""


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
