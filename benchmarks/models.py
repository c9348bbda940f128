"""PyMC models of `benchmarks.problems`, and SGGMC with fixed settings."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.problems import (
    CIRCLE_CONCENTRATION,
    CIRCLE_DIRECTIONS,
    CIRCLE_WEIGHTS,
    TOPIC_CONCENTRATION,
    Problem,
)
from pymc_geodesic import SGGMC
from pymc_geodesic.distributions import UniformSphere

logging.getLogger("pymc").setLevel(logging.ERROR)


def svm_model(problem: Problem) -> pm.Model:
    with pm.Model() as model:
        X = pm.Data("X", problem.arrays["X"])
        y = pm.Data("y", problem.arrays["y"])
        w = pm.Normal("w", 0, 1, shape=problem.start.shape)
        pm.Potential("hinge", -pt.maximum(0, 1 - y * (X @ w)))
    return model


def topics_model(problem: Problem) -> pm.Model:
    with pm.Model() as model:
        theta = pm.Data("theta", problem.arrays["theta"])
        V = pm.Data("V", problem.arrays["V"])
        beta = UniformSphere("beta", shape=problem.start.shape)
        mean = theta @ beta
        cosine = pt.sum(V * mean, axis=-1) / pt.sqrt(pt.sum(mean**2, axis=-1))
        pm.Potential("documents", TOPIC_CONCENTRATION * cosine)
    return model


def circle_model(problem: Problem) -> pm.Model:
    with pm.Model() as model:
        x = UniformSphere("x", shape=2)
        heaps = [
            weight * pt.exp(CIRCLE_CONCENTRATION * pt.dot(direction, x))
            for weight, direction in zip(CIRCLE_WEIGHTS, CIRCLE_DIRECTIONS, strict=True)
        ]
        pm.Potential("mixture", pt.log(pt.add(*heaps)))
    return model


MODELS = {"svm": svm_model, "topics": topics_model, "circle": circle_model}


def make_step(problem: Problem, n_steps: int) -> SGGMC:
    """Return SGGMC, set up at the problem's starting point."""
    model = MODELS[problem.kind](problem)
    minibatch = (
        {"batch_size": problem.batch_size, "minibatch": list(problem.arrays)}
        if problem.arrays
        else {}
    )
    with model:
        step = SGGMC(
            step_size=problem.step_size, friction=problem.friction, n_steps=n_steps, **minibatch
        )
    step.setup_chain(np.random.default_rng(1), tune=0, draws=1)
    step.step({step.variables[0].value_name: problem.start})
    return step


def kernel_of(step: Any) -> Callable[[np.ndarray], None]:
    """Return a function that runs the kernel of a Langevin step on minibatches."""
    sampler = step.sampler
    settings, product = sampler.parameters, sampler.adaptation.product

    def run(minibatches: np.ndarray) -> None:
        sampler.dynamics.run(
            sampler.adaptation.logp_grad, minibatches, product, sampler.z, settings, sampler.stream
        )

    return run
