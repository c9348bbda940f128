"""SGMCMCJax's samplers, single precision, in the environment of `setup.sh`.

The protocol is JSON, one object per line:
``{"prepare": problem, "samplers": names, "steps": n, ...}`` compiles samplers, and
``{"run": name}`` runs one and returns microseconds per step.

Like BlackJAX it has no manifolds: see `benchmarks.blackjax_sgnht`.
"""

import json
import sys
from time import process_time

import jax
import jax.numpy as jnp
import numpy as np
from sgmcmcjax.samplers import build_sghmc_sampler, build_sgnht_sampler

from benchmarks import problems

LEAPFROG_STEPS = 10


def svm_terms():
    def log_likelihood(w, X, y):
        return -jnp.maximum(0.0, 1.0 - y * jnp.dot(X, w))

    def log_prior(w):
        return -0.5 * jnp.dot(w, w)

    return log_likelihood, log_prior


def topics_terms():
    def log_likelihood(beta, theta, v):
        mean = jnp.dot(theta, beta)
        return problems.TOPIC_CONCENTRATION * jnp.dot(v, mean) / jnp.sqrt(jnp.dot(mean, mean))

    def log_prior(beta):
        return -0.5 * jnp.sum(beta**2)

    return log_likelihood, log_prior


def circle_terms():
    directions = jnp.asarray(problems.CIRCLE_CONCENTRATION * problems.CIRCLE_DIRECTIONS)
    weights = jnp.asarray(problems.CIRCLE_WEIGHTS)

    def log_likelihood(x, row):
        return jax.scipy.special.logsumexp(jnp.dot(directions, x), b=weights)

    def log_prior(x):
        return -0.5 * jnp.dot(x, x)

    return log_likelihood, log_prior


TERMS = {"svm": svm_terms, "topics": topics_terms, "circle": circle_terms}


def prepare(problem, sampler, steps):
    """Compile; return a function that runs the sampler and returns the time per step."""
    log_likelihood, log_prior = TERMS[problem.kind]()
    data = tuple(problem.arrays.values()) or (np.zeros((1, 1), np.float32),)
    # SGMCMCJax's velocity is our ε v, its dt our ε² and its friction our C ε.
    dt, friction = problem.step_size**2, problem.friction * problem.step_size
    batch_size = problem.batch_size or 1
    if sampler == "sgnht":
        arguments = (dt, log_likelihood, log_prior, data, batch_size, friction)
        run, draws = build_sgnht_sampler(*arguments, pbar=False), steps
    else:
        arguments = (dt, LEAPFROG_STEPS, log_likelihood, log_prior, data, batch_size, friction)
        run, draws = build_sghmc_sampler(*arguments, pbar=False), steps // LEAPFROG_STEPS
    start = jnp.asarray(problem.start, dtype=jnp.float32)
    key = jax.random.PRNGKey(1)

    def timed():
        nonlocal key
        key, now = jax.random.split(key)
        begin = process_time()
        jax.block_until_ready(run(now, draws, start))
        return (process_time() - begin) / steps * 1e6

    return timed


def main():
    ready = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "run" in order:
            answer = ready[order["run"]]()
        else:
            ready.clear()
            problem = getattr(problems, order["prepare"])(*order["arguments"])
            for sampler in order["samplers"]:
                ready[sampler] = prepare(problem, sampler, order["steps"])
            answer = True
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
