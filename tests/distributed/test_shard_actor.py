"""Gradients of shards average to that of the posterior."""

import copy
import functools

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.densities.variables import product_of
from pymc_geodesic.distributed.laplace import follow_geodesic, point_to_position, position_to_point
from pymc_geodesic.distributed.shard_actor import Job, ShardActor
from pymc_geodesic.distributed.shards import set_rows, step_spec
from pymc_geodesic.distributed.surrogates import Quadratic, conducive_terms
from pymc_geodesic.manifolds.product_flows import project
from tests.distributed.problems import SIZES, sorted_directions, sorted_regression
from tests.grids import slow

PROBABILITIES = np.array([0.2, 0.5, 0.3])
INTERPRETED = {"mode": "FAST_COMPILE"}


class Shards:
    """Shards of a problem in this process, and PyMC's gradient of all rows."""

    def __init__(self, problem, names):
        self.model, shards = problem[:2]
        step = functools.partial(
            pg.SGGMC, batch_size=20, minibatch=names, compile_kwargs=INTERPRETED
        )
        self.spec = step_spec(step, self.model)
        self.variables = self.spec.variables(self.model)
        self.product = product_of(self.variables)
        self.start = self.model.initial_point(random_seed=1)
        self.center = point_to_position(self.variables, self.start)
        rng = np.random.default_rng(3)
        self.positions = [
            follow_geodesic(self.product, self.center, 0.3 * rng.normal(size=self.center.size))
            for _ in "ab"
        ]
        self.shards = self.load(shards)
        whole = cloudpickle.loads(cloudpickle.dumps(self.model))
        set_rows(whole, {n: np.concatenate([shard[n] for shard in shards]) for n in shards[0]})
        values = [whole[variable.name] for variable in self.variables]
        self._slope = whole.compile_dlogp(vars=values, mode="FAST_COMPILE")

    def load(self, shards):
        job = cloudpickle.dumps(Job(self.model, self.spec, expands=True))
        return [ShardActor(job, s, f) for s, f in zip(shards, PROBABILITIES, strict=True)]

    def tangent(self, x, gradient):
        projected = gradient.copy()
        project(self.product.blocks, x, projected)
        return projected

    def of_posterior(self, x):
        return self.tangent(x, self._slope(position_to_point(self.variables, x, self.start)))

    def surrogates(self):
        expansions = [shard.expand(self.center, None) for shard in self.shards]
        return [Quadratic(self.center, each.gradient, each.hessian) for each in expansions]

    def configure(self, terms):
        for shard, term in zip(self.shards, terms, strict=True):
            shard.configure(term, None, 0, 1)

    def seen(self, x):
        """Gradients of the shards at a point, shape (shard, size)."""
        return np.array([self.tangent(x, s.gradients(x[np.newaxis])[0]) for s in self.shards])


@pytest.fixture(scope="module", params=[slow("regression"), "directions"])
def loaded(request):
    if request.param == "regression":
        return Shards(sorted_regression(), ["x", "y"])
    return Shards(sorted_directions(), ["v", "w"])


@pytest.fixture(scope="module")
def regression():
    return Shards(sorted_regression(), ["x", "y"])


def no_terms(loaded):
    size = loaded.center.size
    return [Quadratic(loaded.center, np.zeros(size), np.zeros((size, size)))] * len(SIZES)


def agrees(loaded):
    """Whether the average gradient over visits is that of the posterior."""
    return all(
        np.allclose(PROBABILITIES @ loaded.seen(x), loaded.of_posterior(x), rtol=1e-9)
        for x in loaded.positions
    )


@pytest.mark.slow
@pytest.mark.parametrize("conducive", [False, True])
def test_shards_add_up_to_the_posterior(loaded, conducive):
    """By Σ f_s ∇ log p_s = ∇ log p, also for unequal sizes and visit probabilities."""
    terms = conducive_terms(loaded.surrogates(), PROBABILITIES) if conducive else None
    loaded.configure(terms or no_terms(loaded))
    assert agrees(loaded)


def test_conducive_gradients_of_normal_likelihoods_are_exact(regression):
    """With normal likelihoods, the gradient in any shard is that of the posterior."""
    x = regression.positions[0]
    regression.configure(no_terms(regression))
    alone = np.abs(regression.seen(x) - regression.of_posterior(x)).max(axis=1)
    assert (alone > 100).all()
    regression.configure(conducive_terms(regression.surrogates(), PROBABILITIES))
    for seen in regression.seen(x):
        np.testing.assert_allclose(seen, regression.of_posterior(x), rtol=1e-8)


@pytest.mark.slow
def test_conducive_gradients_are_second_order_on_curved_spaces(loaded):
    """Halving the distance to the center divides differences of shards by at least four."""
    loaded.configure(conducive_terms(loaded.surrogates(), PROBABILITIES))
    rng = np.random.default_rng(5)
    direction = rng.normal(size=loaded.center.size)
    spreads = []
    for length in (0.02, 0.01):
        x = follow_geodesic(loaded.product, loaded.center, length * direction)
        spreads.append(np.abs(loaded.seen(x) - loaded.of_posterior(x)).max())
    assert spreads[1] < spreads[0] / 3.5 or spreads[0] < 1e-8


@pytest.mark.slow
def test_omitted_visit_probability_is_detected(regression):
    """A mutant that weights each row by one, independent of the visit probability."""
    mutant = copy.copy(regression)
    job = cloudpickle.dumps(Job(mutant.model, mutant.spec, expands=True))
    mutant.shards = [ShardActor(job, shard, 1.0) for shard in sorted_regression()[1]]
    mutant.configure(no_terms(mutant))
    assert not agrees(mutant)


def test_surrogates_of_the_wrong_shards_are_detected(regression):
    """A mutant that gives each shard the term of its neighbor."""
    terms = conducive_terms(regression.surrogates(), PROBABILITIES)
    regression.configure([*terms[1:], terms[0]])
    assert not agrees(regression)


@pytest.mark.slow
def test_state_contains_no_rows(regression):
    """The size of the state does not depend on the number of rows."""
    lengths = []
    _, shards, *_ = sorted_regression()
    job = cloudpickle.dumps(Job(regression.model, regression.spec, expands=True))
    for times in (1, 20):
        rows = {name: np.tile(array, (times, 1)[: array.ndim]) for name, array in shards[0].items()}
        shard = ShardActor(job, rows, 0.5)
        shard.configure(None, None, 60, 10)
        state, draws = shard.visit(
            shard.start_chain(regression.start, 1), 60, 2, shard=0, ends_tuning=True
        )
        lengths.append(len(state))
        assert draws.values["beta"].shape == (60, 2)
    assert abs(lengths[1] - lengths[0]) < 0.02 * lengths[0]


def test_visits_do_not_depend_on_earlier_visits(regression):
    """The same state and seed give bit-identical draws, also after other visits."""
    shard = regression.shards[0]
    shard.configure(None, None, 40, 10)
    state, _ = shard.visit(shard.start_chain(regression.start, 1), 40, 2, shard=0, ends_tuning=True)
    first = shard.visit(state, 5, 3, shard=0, ends_tuning=False)
    shard.visit(state, 7, 4, shard=0, ends_tuning=False)
    again = shard.visit(state, 5, 3, shard=0, ends_tuning=False)
    np.testing.assert_array_equal(first[1].values["beta"], again[1].values["beta"])
    other = shard.visit(state, 5, 5, shard=0, ends_tuning=False)
    assert not np.array_equal(first[1].values["beta"], other[1].values["beta"])


@pytest.mark.slow
def test_kinks_that_hide_the_curvature_are_replaced_by_outer_products():
    """The Hessian of a hinge loss is zero; the covariance of row gradients is near the curvature.

    Far away, where the gradient of no row changes, outer products are all there is.
    """
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 2))
    y = np.where(x @ [1.0, -1.0] + rng.normal(size=4000) > 0, 1.0, -1.0)
    with pm.Model() as model:
        covariates, labels = pm.Data("x", x[:3]), pm.Data("y", y[:3])
        weights = pm.Normal("weights", 0.0, 2.0, shape=2)
        pg.Hinge("hinge", covariates @ weights, observed=labels)
    step = functools.partial(
        pg.SGGMC, batch_size=20, minibatch=["x", "y"], compile_kwargs=INTERPRETED
    )
    job = cloudpickle.dumps(Job(model, step_spec(step, model), expands=True))
    shard = ShardActor(job, {"x": x, "y": y}, 1.0)
    mode = np.array([0.95, -0.95])
    slopes = [
        shard.expand(mode + t * np.eye(2)[0], None, curvature=False).gradient for t in (-0.1, 0.1)
    ]
    measured = (slopes[1] - slopes[0])[0] / 0.2
    hessian = shard.expand(mode, None).hessian
    assert 0.5 < hessian[0, 0] / measured < 2.0
    assert np.all(shard.expand(np.zeros(2), None, far=True).hessian.diagonal() < -1000)
