"""The one decorator that compiles every numerical kernel of the package."""

import functools

import numba

FAST_MATH = {"contract", "reassoc", "nsz"}
"""Floating-point freedom given to the compiler.

Sums may be reordered (so that they vectorise), products and sums fused, and the sign of a zero
ignored. NaN and infinity keep their meaning: kernels find divergences by looking for them.
"""

compiled = functools.partial(
    numba.njit, cache=True, nogil=True, error_model="numpy", fastmath=FAST_MATH
)
"""`numba.njit` with on-disk cache, without the interpreter lock, with `FAST_MATH`."""
