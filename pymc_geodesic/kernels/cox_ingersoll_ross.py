"""The Cox–Ingersoll–Ross process: gamma laws without discretisation error."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.runtime.branchless import exponential
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import Stream, Vector, kernel
from pymc_geodesic.runtime.log_gamma import fill_log_gamma
from pymc_geodesic.runtime.poisson import fill_poisson

_CHUNK = 1024


@kernel
def cir_transition(
    log_state: Vector,
    shape: Vector,
    log_rate: Vector,
    time: Vector,
    stream: Stream,
) -> None:
    r"""Draw from the exact transition of the CIR process, in place.

    The process dθ = (a − bθ) dt + √(2θ) dW has the stationary law Gamma(a, rate b). With
    y = bθ and t = bτ for a step of time τ,

    .. math::

        y' = \tfrac{1 - e^{-t}}{2} W, \qquad
        W \sim \chi^2\Bigl(2a, \tfrac{2 y e^{-t}}{1 - e^{-t}}\Bigr),

    and W is drawn as twice a Gamma(a + K) variate, K ~ Poisson(y / (eᵗ − 1)). All of it is done
    with logarithms, so that states below the smallest number keep their value.

    Parameters
    ----------
    log_state : ndarray, shape (n,)
        log θ.
    shape : ndarray, shape (n,)
        a > 0.
    log_rate : ndarray, shape (n,) or (1,)
        log b.
    time : ndarray, shape (n,) or (1,)
        t = bτ > 0, without unit.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, eq. 2.2.
    """
    log_state, shape, stream = borrow(log_state), borrow(shape), borrow(stream)
    log_rate, time = borrow(log_rate), borrow(time)
    size = log_state.size
    length = min(_CHUNK, size)
    shapes, draws = np.empty(length), np.empty(length)
    shifts, scales = np.empty(length), np.empty(length)
    own_rate = 1 if log_rate.size > 1 else 0
    own_time = 1 if time.size > 1 else 0
    shift = scale = 0.0
    for start in range(0, size, _CHUNK):
        n = min(_CHUNK, size - start)
        for i in range(n):
            if i == 0 or own_rate or own_time:
                log_b, t = log_rate[own_rate * (start + i)], time[own_time * (start + i)]
                shift = log_b - math.log(math.expm1(t))
                scale = math.log(-math.expm1(-t)) - log_b
            shifts[i], scales[i] = shift, scale
        for i in range(n):
            draws[i] = exponential(log_state[start + i] + shifts[i])
        fill_poisson(stream, draws[:n], shapes[:n])
        for i in range(n):
            shapes[i] += shape[start + i]
        fill_log_gamma(stream, shapes[:n], draws[:n])
        for i in range(n):
            log_state[start + i] = draws[i] + scales[i]
