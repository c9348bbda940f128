"""BlackJAX's SGNHT, one jitted `lax.scan`, double precision.

BlackJAX has no manifolds: the topics and the circle are sampled in flat space, without projection
and geodesics, from the same log-density plus a normal log-density that keeps them near the origin,
which is less work.

Minibatches are random rows, as in BlackJAX's own examples, or with ``blocks=True`` consecutive
blocks of pre-shuffled rows, as in this package.
"""

from collections.abc import Callable
from time import process_time

import blackjax
import jax
import jax.numpy as jnp

from benchmarks.problems import (
    CIRCLE_CONCENTRATION,
    CIRCLE_DIRECTIONS,
    CIRCLE_WEIGHTS,
    TOPIC_CONCENTRATION,
    Problem,
)

jax.config.update("jax_enable_x64", True)


def svm_log_density(scale, w, X, y):
    return -0.5 * w @ w - scale * jnp.sum(jnp.maximum(0.0, 1.0 - y * (X @ w)))


def topics_log_density(scale, beta, theta, V):
    mean = theta @ beta
    cosine = jnp.sum(V * mean, axis=1) / jnp.sqrt(jnp.sum(mean**2, axis=1))
    return -0.5 * jnp.sum(beta**2) + scale * TOPIC_CONCENTRATION * jnp.sum(cosine)


def circle_log_density(scale, x):
    heights = CIRCLE_CONCENTRATION * CIRCLE_DIRECTIONS @ x
    return -0.5 * x @ x + jax.scipy.special.logsumexp(heights, b=CIRCLE_WEIGHTS)


LOG_DENSITIES = {
    "svm": svm_log_density,
    "topics": topics_log_density,
    "circle": circle_log_density,
}


def make_timed_run(problem: Problem, n_steps: int, blocks: bool = False) -> Callable[[], float]:
    """Run ``n_steps`` steps per call and return microseconds per step."""
    n, n_rows = problem.batch_size, problem.n_rows
    scale = n_rows / n if n else 1.0
    log_density = LOG_DENSITIES[problem.kind]
    sampler = blackjax.sgnht(
        jax.grad(lambda position, batch: log_density(scale, position, *batch)),
        alpha=problem.friction,
    )

    def minibatch(key, arrays):
        if not arrays:
            return ()
        if blocks:
            first = n * jax.random.randint(key, (), 0, n_rows // n)
            return tuple(jax.lax.dynamic_slice_in_dim(a, first, n) for a in arrays)
        rows = jax.random.randint(key, (n,), 0, n_rows)
        return tuple(a[rows] for a in arrays)

    @jax.jit
    def run(key, state, arrays):
        def step(state, key):
            key_batch, key_step = jax.random.split(key)
            batch = minibatch(key_batch, arrays)
            return sampler.step(key_step, state, batch, problem.step_size), None

        return jax.lax.scan(step, state, jax.random.split(key, n_steps))[0]

    arrays = tuple(jnp.asarray(a) for a in problem.arrays.values())
    key = jax.random.key(1)
    state = sampler.init(jnp.asarray(problem.start), key)

    def timed() -> float:
        nonlocal key, state
        key, now = jax.random.split(key)
        begin = process_time()
        state = jax.block_until_ready(run(now, state, arrays))
        return (process_time() - begin) / n_steps * 1e6

    return timed
