"""Models with different kinds of row terms, and their full gradients in NumPy."""

from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_geodesic as pg
from pymc_geodesic.gradients.full_gradient import CHUNK
from pymc_geodesic.runtime.gradient_functions import evaluate

WIDTH = 4
INTERPRETED = {"mode": "FAST_COMPILE"}


class Case(NamedTuple):
    """A model and the way in which it obtains its rows."""

    n_rows: int
    batch_size: int
    in_model: str = "nothing"  # or "minibatch", "total_size"
    total_size: int | None = None
    dtype: str = "float64"
    order: str = "shuffled"
    mode: str | None = "FAST_COMPILE"
    mixed: bool = False


# The formulas are the same in every back end: two of them are compiled, which takes ten seconds.
CASES = {
    "several manifolds": Case(101, 30, mixed=True),
    "one row": Case(101, 1),
    "several chunks": Case(2 * CHUNK + 77, 39),
    "pm.Minibatch": Case(101, 30, in_model="minibatch"),
    "total_size of the likelihood": Case(101, 30, in_model="total_size"),
    "total_size of the step": Case(101, 30, total_size=303),
    "float32": Case(101, 30, dtype="float32", mode=None),
    "random": Case(101, 30, order="random"),
    "another backend": Case(101, 30),
}

CASE = Case(101, 30, mode=None)
CASE_INTERPRETED = CASE._replace(mode="FAST_COMPILE")

BY_DEFAULT = ["several manifolds", "several chunks", "pm.Minibatch", "total_size of the step"]
"""Default cases: the factor N/n is 1, or comes from chunks, the model or the step."""


def rows_of(case: Case, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(case.n_rows, WIDTH)) * [0.1, 1.0, 3.0, 0.5]
    y = x @ [2.0, 0.3, 0.2, -1.0] + rng.normal(size=case.n_rows)
    return x.astype(case.dtype), y.astype(case.dtype)


def parameters(case: Case):
    """Variables, optionally also on a Stiefel manifold, and the mean of the rows."""
    log_sd = pm.Normal("log_sd", 0.0, 0.5)
    direction = pg.UniformSphere("direction", shape=3)
    b = pm.Normal("b", 0.5, 2.0, shape=WIDTH)
    pm.Potential("pull", -0.1 * pt.sum(b**4) + b[0] * direction[1])
    if not case.mixed:
        return (lambda x: x @ b + x[:, :3] @ direction), log_sd
    frame = pg.UniformStiefel("frame", shape=(3, 2))

    def mean(x):
        along = x[:, :3] @ (direction + frame @ np.array([1.0, -0.5]))
        return x @ b + along

    return mean, log_sd


def model_of(case: Case) -> pm.Model:
    x, y = rows_of(case)
    with pm.Model() as model:
        mean, log_sd = parameters(case)
        n_rows = None
        if case.in_model == "minibatch":
            rows, observed = pm.Minibatch(x, y, batch_size=case.batch_size)
        else:
            rows, observed = pm.Data("x", x), pm.Data("t", y)
        if case.in_model != "nothing":
            n_rows = case.n_rows
        pm.Normal("y", mean(rows), pt.exp(log_sd), observed=observed, total_size=n_rows)
    return model


def full_model(case: Case, x: np.ndarray, y: np.ndarray) -> pm.Model:
    """The density of all rows, written without minibatches."""
    with pm.Model() as model:
        mean, log_sd = parameters(case)
        weight = (case.total_size or case.n_rows) / case.n_rows
        dist = pm.Normal.dist(mean(pt.as_tensor(x)), pt.exp(log_sd))
        pm.Potential("y", weight * pt.sum(pm.logp(dist, pt.as_tensor(y))))
    return model


class Setup:
    """A step with minibatches, and the full gradient of the same model."""

    def __init__(self, case: Case) -> None:
        self.case = case
        model = model_of(case)
        inside = case.in_model == "minibatch"
        rows = {} if inside else {"minibatch": ["x", "t"], "batch_size": case.batch_size}
        if case.total_size is not None:
            rows["total_size"] = case.total_size
        mode = {} if case.mode is None else {"compile_kwargs": {"mode": case.mode}}
        self.model = model
        self.step = pg.SGGMC(model=model, minibatch_order=case.order, **rows, **mode)
        self.gradient = self.step.adaptation.gradient
        self.source = self.step.estimator.source
        self.take_full(*rows_of(case))
        rng = np.random.default_rng(3)
        self.here, self.there = self.step.product.random_point(rng, 2) * 1.0

    def take_full(self, x: np.ndarray, y: np.ndarray) -> None:
        self._full = pg.SGGMC(model=full_model(self.case, x, y), compile_kwargs=INTERPRETED)
        assert self._full.product.names == self.step.product.names

    def full(self, x: np.ndarray) -> np.ndarray:
        """Gradient over all rows, followed by the log-density."""
        return values(self._full.estimator.logp_grad, x, x.size + 1)

    def center(self, x: np.ndarray) -> None:
        self.gradient.center_at(x, self.gradient.gradient_of_all_rows(x))

    def estimates(self, x: np.ndarray) -> np.ndarray:
        """Estimates from all minibatches of consecutive rows, or from random minibatches.

        Where the rows divide into minibatches, disjoint minibatches that cover all rows are used.
        """
        function = self.gradient.estimated
        if self.case.order == "random":
            starts = self.step.estimator.next_minibatches(20)
        else:
            self.step.estimator.next_minibatches(1)
            even = self.case.n_rows % self.case.batch_size == 0
            starts = np.arange(0, self.case.n_rows, self.case.batch_size if even else 1)
        return np.array([values(function, x, x.size, int(start)) for start in starts])


def values(function, x, size, argument=0):
    output = np.empty(size)
    evaluate(function.address, x, argument, function.context, output)
    function.raise_error()
    return output


def error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def tolerance(setup):
    return 1e-10 if setup.case.dtype == "float64" else 2e-5
