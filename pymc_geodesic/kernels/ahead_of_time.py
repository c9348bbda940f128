"""Ahead-of-time compilation of kernels, in the process that starts the chains.

Otherwise each worker process would compile the same kernels. `SIGNATURES` has the argument types of
compiled functions without kernel annotations; those of a kernel are derived from its annotations.
"""

from __future__ import annotations

from typing import Any

from numba import float64, int64, uint64

from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels.probe import differences_of_pairs
from pymc_geodesic.manifolds.product_flows import geodesic, project
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.jit import report_long_compilation, signature_of
from pymc_geodesic.runtime.numerics import all_finite
from pymc_geodesic.runtime.streams import fill_normal, uniform

_VECTOR, _MATRIX = float64[::1], float64[:, ::1]
_TABLE, _INTEGERS, _STREAM = int64[:, ::1], int64[::1], uint64[::1]

SIGNATURES: dict[Any, tuple[Any, ...]] = {
    all_finite: (_VECTOR,),
    differences_of_pairs: (int64, _INTEGERS, _INTEGERS, _INTEGERS, _MATRIX, _MATRIX),
    evaluate: (int64, _VECTOR, int64, _INTEGERS, _VECTOR),
    fill_normal: (_STREAM, _VECTOR),
    geodesic: (_TABLE, _VECTOR, _VECTOR, float64),
    project: (_TABLE, _VECTOR, _VECTOR),
    refresh_velocity: (_TABLE, _VECTOR, _VECTOR, _STREAM),
    uniform: (_STREAM,),
}
"""Argument types of compiled functions without kernel annotations."""


def prepare(*kernels: Any) -> None:
    """Compile kernels, or load them from disk, for the argument types that steps use.

    Parameters
    ----------
    *kernels : compiled function
        Functions in `SIGNATURES`, or kernels with annotated arguments.

    Examples
    --------
    >>> from pymc_geodesic.kernels.ahead_of_time import prepare
    >>> from pymc_geodesic.runtime.streams import uniform
    >>> prepare(uniform)
    >>> len(uniform.signatures)
    1
    """
    names = ", ".join(kernel.__name__ for kernel in kernels)
    with report_long_compilation(f"the kernels of the sampler ({names})"):
        for kernel in kernels:
            kernel.compile(SIGNATURES.get(kernel) or signature_of(kernel))
