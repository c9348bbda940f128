"""Hand-written Numba kernels for single problems, with analytic gradients.

The integrator is that of `pymc_geodesic.kernels.sggmc` (geodesic, exact Ornstein-Uhlenbeck kick,
geodesic), the rows are the same consecutive blocks, normal variates come from NumPy's generator.
For the support vector machine this version was faster than a branch per row and than one BLAS call
per product.
"""

import numpy as np
from numba import njit

from benchmarks.problems import (
    CIRCLE_CONCENTRATION,
    CIRCLE_DIRECTIONS,
    CIRCLE_WEIGHTS,
    TOPIC_CONCENTRATION,
)

FAST = {"fastmath": True, "error_model": "numpy", "nogil": True}


@njit(**FAST)
def svm(rng, arrays, starts, batch_size, w, v, step_size, friction):
    X, y = arrays
    n_rows, d = X.shape
    scale = n_rows / batch_size
    decay = np.exp(-friction * step_size)
    scale = 0.5 * step_size * (1.0 + decay)
    noise = np.sqrt(1.0 - decay * decay)
    gradient = np.empty(d)
    for j in range(d):
        w[j] += 0.5 * step_size * v[j]
    for start in starts:
        for j in range(d):
            gradient[j] = -w[j]
        for i in range(start, start + batch_size):
            score = 0.0
            for j in range(d):
                score += X[i, j] * w[j]
            # a factor of zero instead of a branch: half of the branches would be mispredicted
            factor = scale * y[i] if y[i] * score < 1.0 else 0.0
            for j in range(d):
                gradient[j] += factor * X[i, j]
        for j in range(d):
            v[j] = decay * v[j] + scale * gradient[j] + noise * rng.standard_normal()
            w[j] += step_size * v[j]
    for j in range(d):
        w[j] -= 0.5 * step_size * v[j]


@njit(**FAST)
def svm_thermostat(rng, arrays, starts, batch_size, w, v, thermostat, step_size, diffusion):
    """Eq. 30 of the max-margin paper: Euler's scheme with a thermostat of inertia 1."""
    X, y = arrays
    d = w.size
    # the arrays hold the first rows twice, so that a block may begin at every row
    scale = (X.shape[0] - batch_size + 1) / batch_size
    noise = np.sqrt(2.0 * diffusion * step_size)
    gradient = np.empty(d)
    for start in starts:
        for j in range(d):
            gradient[j] = -w[j]
        for i in range(start, start + batch_size):
            score = 0.0
            for j in range(d):
                score += X[i, j] * w[j]
            factor = scale * y[i] if y[i] * score < 1.0 else 0.0
            for j in range(d):
                gradient[j] += factor * X[i, j]
        decay = 1.0 - thermostat * step_size
        energy = 0.0
        for j in range(d):
            energy += v[j] * v[j]
            v[j] = decay * v[j] + step_size * gradient[j] + noise * rng.standard_normal()
            w[j] += step_size * v[j]
        thermostat += step_size * (energy / d - 1.0)
    return thermostat


@njit(**FAST)
def follow_great_circle(x, v, time):
    speed = 0.0
    for i in range(x.size):
        speed += v[i] * v[i]
    speed = np.sqrt(speed)
    cosine = np.cos(speed * time)
    sine = np.sin(speed * time)
    for i in range(x.size):
        position = x[i]
        x[i] = cosine * position + sine / speed * v[i]
        v[i] = cosine * v[i] - sine * speed * position


@njit(**FAST)
def kick(rng, x, v, gradient, decay, scale, noise):
    radial = 0.0
    for i in range(x.size):
        v[i] = decay * v[i] + scale * gradient[i] + noise * rng.standard_normal()
        radial += x[i] * v[i]
    for i in range(x.size):
        v[i] -= radial * x[i]


@njit(**FAST)
def topics(rng, arrays, starts, batch_size, beta, v, step_size, friction):
    theta, V = arrays
    scale = TOPIC_CONCENTRATION * theta.shape[0] / batch_size
    decay = np.exp(-friction * step_size)
    scale = 0.5 * step_size * (1.0 + decay)
    noise = np.sqrt(1.0 - decay * decay)
    n_topics, n_words = beta.shape
    mean = np.empty((batch_size, n_words))
    gradient = np.empty((n_topics, n_words))
    for k in range(n_topics):
        follow_great_circle(beta[k], v[k], 0.5 * step_size)
    for start in starts:
        weights = theta[start : start + batch_size]
        np.dot(weights, beta, mean)
        for d in range(batch_size):
            square = 0.0
            product = 0.0
            for i in range(n_words):
                square += mean[d, i] * mean[d, i]
                product += mean[d, i] * V[start + d, i]
            length = np.sqrt(square)
            along = scale / length
            back = scale * product / (square * length)
            for i in range(n_words):
                mean[d, i] = along * V[start + d, i] - back * mean[d, i]
        np.dot(weights.T, mean, gradient)
        for k in range(n_topics):
            kick(rng, beta[k], v[k], gradient[k], decay, scale, noise)
            follow_great_circle(beta[k], v[k], step_size)
    for k in range(n_topics):
        follow_great_circle(beta[k], v[k], -0.5 * step_size)


@njit(**FAST)
def circle(rng, arrays, starts, batch_size, x, v, step_size, friction):
    decay = np.exp(-friction * step_size)
    scale = 0.5 * step_size * (1.0 + decay)
    noise = np.sqrt(1.0 - decay * decay)
    gradient = np.empty(2)
    follow_great_circle(x, v, 0.5 * step_size)
    for _ in starts:
        total = 0.0
        gradient[:] = 0.0
        for m in range(2):
            height = CIRCLE_DIRECTIONS[m, 0] * x[0] + CIRCLE_DIRECTIONS[m, 1] * x[1]
            weight = CIRCLE_WEIGHTS[m] * np.exp(CIRCLE_CONCENTRATION * height)
            total += weight
            for i in range(2):
                gradient[i] += weight * CIRCLE_CONCENTRATION * CIRCLE_DIRECTIONS[m, i]
        for i in range(2):
            gradient[i] /= total
        kick(rng, x, v, gradient, decay, scale, noise)
        follow_great_circle(x, v, step_size)
    follow_great_circle(x, v, -0.5 * step_size)


KERNELS = {"svm": svm, "topics": topics, "circle": circle}
