"""The likelihood of the spherical admixture model against its definition."""

from typing import ClassVar

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from pytensor.compile.mode import get_mode
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot
from scipy import sparse

from pymc_geodesic.distributions import SphericalAdmixture, UniformSphere, VonMisesFisher
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    draw_uniform_directions,
    draw_von_mises_fisher,
)
from pymc_geodesic.ops.bessel import mean_resultant_length
from pymc_geodesic.ops.dense_products import with_loops_for_products
from pymc_geodesic.transforms import unit_vector
from tests.grids import slow

D, K, V = 6, 3, 11
RNG = np.random.default_rng(1)
DOCUMENTS = draw_uniform_directions(RNG, (D, V))
TOPICS = draw_uniform_directions(RNG, (K, V))
PROPORTIONS = RNG.dirichlet(np.ones(K), size=D)


def naive_means(theta, beta):
    means = theta @ beta
    return means / np.linalg.norm(means, axis=-1, keepdims=True)


def naive_logp(value, theta, beta, kappa):
    """Return the log-density by its definition: a mean over the words for each document."""
    means = pt.matmul(theta[..., None, :], beta)[..., 0, :]
    means = means / pt.sqrt(pt.sum(means**2, axis=-1, keepdims=True))
    return pm.logp(VonMisesFisher.dist(means, kappa), value)


@pytest.mark.usefixtures("interpreted")
class TestRandom(BaseTestDistributionRandom):
    pymc_dist = SphericalAdmixture
    pymc_dist_params: ClassVar = {"theta": PROPORTIONS[0], "beta": TOPICS, "kappa": 3.0}
    expected_rv_op_params: ClassVar = pymc_dist_params
    reference_dist_params: ClassVar = pymc_dist_params
    sizes_to_check: ClassVar = [None, (2, 4)]
    sizes_expected: ClassVar = [(V,), (2, 4, V)]
    checks_to_run: ClassVar = [
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference_not_numba",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state(reset=True)
        return lambda size, theta, beta, kappa: draw_von_mises_fisher(
            rng, naive_means(theta, beta), kappa, (size,)
        )


@pytest.mark.parametrize(
    ("theta_shape", "beta_shape", "kappa_shape", "value_shape"),
    [
        ((D, K), (K, V), (), (D, V)),
        ((K,), (K, V), (), (V,)),
        ((K,), (K, V), (), (D, V)),
        ((D, K), (K, V), (D,), (D, V)),
        ((4, D, K), (K, V), (), (D, V)),
        ((4, D, K), (K, V), (4, 1), (4, D, V)),
        ((4, D, K), (4, 1, K, V), (), (4, D, V)),
    ],
)
def test_density_and_gradients_against_the_definition(
    theta_shape, beta_shape, kappa_shape, value_shape
):
    rng = np.random.default_rng(2)
    theta, beta = pt.tensor("theta", shape=theta_shape), pt.tensor("beta", shape=beta_shape)
    kappa = pt.tensor("kappa", shape=kappa_shape)
    documents = draw_uniform_directions(rng, value_shape)
    outputs = []
    for density in (
        pm.logp(SphericalAdmixture.dist(theta, beta, kappa), documents),
        naive_logp(documents, theta, beta, kappa),
    ):
        weights = np.random.default_rng(3).normal(size=density.type.shape)
        outputs.append([density, *pt.grad((weights * density).sum(), [theta, beta, kappa])])
    found = pytensor.function([theta, beta, kappa], outputs[0] + outputs[1], mode="FAST_COMPILE")(
        rng.dirichlet(np.ones(K), size=theta_shape[:-1]),
        draw_uniform_directions(rng, beta_shape),
        rng.uniform(1.0, 40.0, kappa_shape),
    )
    for ours, naive in zip(found[:4], found[4:], strict=True):
        np.testing.assert_allclose(ours, naive, rtol=1e-11, atol=1e-11)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping Check")  # JAX cannot raise while it computes
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")  # slower, not wrong
@pytest.mark.parametrize("mode", ["NUMBA", slow("CVM"), slow("JAX")])
def test_backends_agree(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    theta, beta = pt.tensor("theta", shape=(D, K)), pt.tensor("beta", shape=(K, V))
    density = pm.logp(SphericalAdmixture.dist(theta, beta, 30.0), DOCUMENTS).sum()
    naive = naive_logp(DOCUMENTS, theta, beta, 30.0).sum()
    mode = with_loops_for_products(get_mode("NUMBA")) if mode == "NUMBA" else mode
    found, expected = (
        pytensor.function([theta, beta], [f, *pt.grad(f, [theta, beta])], mode=m)(
            PROPORTIONS, TOPICS
        )
        for f, m in ((density, mode), (naive, "FAST_COMPILE"))
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_hessian_against_the_definition():
    """The hand-written gradients have correct derivatives."""
    theta, beta = pt.tensor("theta", shape=(D, K)), pt.tensor("beta", shape=(K, V))
    direction = np.random.default_rng(2).normal(size=(K, V))
    products = []
    for density in (
        pm.logp(SphericalAdmixture.dist(theta, beta, 30.0), DOCUMENTS),
        naive_logp(DOCUMENTS, theta, beta, 30.0),
    ):
        slope = pt.sum(pt.grad(density.sum(), beta) * direction)
        products.extend(pt.grad(slope, [theta, beta]))
    found = pytensor.function([theta, beta], products, mode="FAST_COMPILE")(PROPORTIONS, TOPICS)
    for ours, naive in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(ours, naive, rtol=1e-10, atol=1e-10)


def products_with_words(function):
    """Return the shapes of the factors of all matrix products along or over the words."""
    shapes = [
        tuple(factor.type.shape for factor in node.inputs)
        for node in function.maker.fgraph.toposort()
        if isinstance(node.op, Dot)
    ]
    return sorted(pair for pair in shapes if any(V in shape for shape in pair))


def test_gradients_use_few_products_with_the_words():
    """The documents enter two products; no (documents, words) array of means is computed."""
    theta, beta = pt.tensor("theta", shape=(4, D, K)), pt.tensor("beta", shape=(K, V))
    documents = pt.tensor("documents", shape=(D, V))
    density = SphericalAdmixture.logp(documents, theta, beta, pt.as_tensor(30.0))
    total = density.owner.inputs[0].sum()
    compiled = pytensor.function(
        [documents, theta, beta], [total, *pt.grad(total, [theta, beta])], on_unused_input="ignore"
    )
    assert products_with_words(compiled) == sorted(
        [
            ((D, V), (V, K)),  # documents · betaᵀ
            ((K, V), (V, K)),  # beta · betaᵀ
            ((K, D), (D, V)),  # its gradient
            ((K, K), (K, V)),  # its gradient
        ]
    )


def test_products_with_words_do_not_depend_on_the_proportions():
    theta, beta = pt.tensor("theta", shape=(D, K)), pt.tensor("beta", shape=(K, V))
    gradient = pt.grad(pm.logp(SphericalAdmixture.dist(theta, beta, 9.0), DOCUMENTS).sum(), theta)
    moving = {
        variable
        for variable in ancestors([gradient])
        if theta in set(ancestors([variable])) and variable is not theta
    }
    assert moving
    assert not any(V in getattr(variable.type, "shape", ()) for variable in moving)


def test_a_graph_for_one_draw_of_the_proportions_takes_many():
    theta, beta = pt.tensor("theta", shape=(D, K)), pt.tensor("beta", shape=(K, V))
    many = pt.tensor("many", shape=(5, D, K))
    density = pm.logp(SphericalAdmixture.dist(theta, beta, 9.0), DOCUMENTS)
    batched = vectorize_graph(density, {theta: many})
    values = np.random.default_rng(2).dirichlet(np.ones(K), size=(5, D))
    one = pytensor.function([theta, beta], density, mode="FAST_COMPILE")
    function = pytensor.function(
        [many, beta], [batched, pt.grad(batched.sum(), beta)], mode="FAST_COMPILE"
    )
    found, gradient = function(values, TOPICS)
    np.testing.assert_allclose(found, [one(value, TOPICS) for value in values], rtol=1e-13)
    slope = pytensor.function([theta, beta], pt.grad(density.sum(), beta), mode="FAST_COMPILE")
    np.testing.assert_allclose(gradient, sum(slope(v, TOPICS) for v in values), rtol=1e-11)


@pytest.mark.parametrize("mode", [None, slow("CVM")])
def test_draws_have_the_exact_mean_cosine(mode):
    x = SphericalAdmixture.dist(PROPORTIONS, TOPICS, 25.0)
    draws = pm.draw(x, draws=4000, mode=mode, random_seed=7)
    np.testing.assert_allclose(np.linalg.norm(draws, axis=-1), 1.0, rtol=1e-13)
    cosines = np.sum(draws * naive_means(PROPORTIONS, TOPICS), axis=-1)
    error = cosines.std(axis=0) / np.sqrt(len(cosines))
    assert np.all(np.abs(cosines.mean(axis=0) - mean_resultant_length(V, 25.0)) < 5 * error)


@pytest.mark.usefixtures("interpreted")
def test_support_point_is_the_mean():
    with pm.Model() as model:
        SphericalAdmixture("x", PROPORTIONS, TOPICS, 3.0)
    assert_support_point_is_expected(model, naive_means(PROPORTIONS, TOPICS))


@pytest.fixture(scope="module")
def model():
    coords = {"topic": range(K), "word": range(V), "document": range(D)}
    with pm.Model(coords=coords) as model:
        data = pm.Data("V", DOCUMENTS, dims=("document", "word"))
        theta = pm.Dirichlet("theta", np.ones(K), dims=("document", "topic"))
        beta = UniformSphere("beta", dims=("topic", "word"))
        SphericalAdmixture("v", theta, beta, 20.0, observed=data, dims=("document", "word"))
    return model


def test_model_is_well_formed(model):
    assert "v ~ SphericalAdmixture(theta, beta, 20)" in model.str_repr()
    assert "v ~ SphericalAdmixture" in pm.model_to_mermaid(model)
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point()
    point["theta_simplex__"] = np.random.default_rng(2).normal(size=(D, K - 1))
    point["beta_unitvector__"] = TOPICS
    values = [m.compile_logp(mode="FAST_COMPILE")(point) for m in (model, copy)]
    assert np.isfinite(values[0])
    assert values[0] == values[1]


def test_free_documents_carry_the_unit_vector_transform():
    with pm.Model() as model:
        x = SphericalAdmixture("x", PROPORTIONS, TOPICS, 3.0)
    assert model.rvs_to_transforms[x] is unit_vector


def test_total_size_and_new_data(model):
    with pm.Model() as scaled:
        data = pm.Data("V", DOCUMENTS)
        SphericalAdmixture("v", PROPORTIONS[0], TOPICS, 5.0, observed=data, total_size=60)
        pm.set_data({"V": DOCUMENTS[:2]})
    expected = naive_logp(DOCUMENTS[:2], pt.as_tensor(PROPORTIONS[0]), pt.as_tensor(TOPICS), 5.0)
    total = 30 * expected.sum().eval(mode="FAST_COMPILE")
    assert scaled.compile_logp(mode="FAST_COMPILE")({}) == pytest.approx(total)


@pytest.mark.parametrize(
    ("observed", "error", "message"),
    [
        (DOCUMENTS * 3, ValueError, "'news' must be unit vectors .* length is 3 .*divide each"),
        (np.where(np.arange(D)[:, None] == 2, 0.0, DOCUMENTS), ValueError, "all-zero .* row 2"),
        (np.where(np.arange(D)[:, None] == 4, np.nan, DOCUMENTS), ValueError, "missing .* row 4"),
        (sparse.csr_array(DOCUMENTS), TypeError, "sparse.*toarray"),
        (draw_uniform_directions(RNG, (D, V + 1)), ValueError, f"ends with {V + 1}, but beta"),
    ],
)
def test_invalid_documents_raise_when_the_model_is_built(observed, error, message):
    with pm.Model(), pytest.raises(error, match=message):
        SphericalAdmixture("news", PROPORTIONS, TOPICS, 5.0, observed=observed)


@pytest.mark.parametrize(
    ("theta", "beta", "message"),
    [
        (PROPORTIONS[:, :2], TOPICS, "has 2 topics on its last axis, but beta has 3 rows"),
        (PROPORTIONS, TOPICS[0], "beta of shape .topics, words."),
    ],
)
def test_inconsistent_shapes_raise(theta, beta, message):
    with pytest.raises(ValueError, match=message):
        SphericalAdmixture.dist(theta, beta, 5.0)


def test_negative_concentration_raises_at_evaluation():
    density = pm.logp(SphericalAdmixture.dist(PROPORTIONS, TOPICS, -1.0), DOCUMENTS)
    with pytest.raises(ParameterValueError, match="kappa >= 0"):
        density.eval(mode="FAST_COMPILE")
