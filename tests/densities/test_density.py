"""Log-density on manifolds and for blocks of rows, compared with PyMC's."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_geodesic.densities.log_density import build_density
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables, product_of
from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.manifolds import HalfLine, Simplex, Sphere
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.steps import SGGMC
from tests.grids import cross

INTERPRETED = {"mode": "FAST_COMPILE"}
"""Without compilation, which these tests do not need."""


class Gradient:
    """Gradient and log-density of a model at coordinates by name."""

    def __init__(self, model, vars=None, manifolds=None, **minibatches):
        self.variables = manifold_variables(model, vars, manifolds)
        self.product = product_of(self.variables)
        rows = MinibatchArguments(**minibatches)
        source = minibatch_source(model, rows)
        density = RowDensity(model, self.variables, source, rows.total_size)
        self.estimator = MinibatchGradient(density, with_value=True, compile_kwargs=INTERPRETED)

    def __call__(self, coordinates, argument=0):
        position = np.concatenate(
            [np.ravel(coordinates[variable.name]) for variable in self.variables]
        )
        logp_grad = self.estimator.logp_grad
        output = np.full(position.size + 1, np.nan)  # minibatches write no value
        evaluate(logp_grad.address, position, argument, logp_grad.context, output)
        logp_grad.raise_error()
        parts = {name: output[part] for name, part in self.product.slices.items()}
        return output[-1], parts


def projected(x, v):
    return v - x * (x @ v)


def test_euclidean_variables_have_the_gradient_of_pymc():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        a = pm.Normal("a", 1.0, 2.0, shape=3)
        s = pm.HalfNormal("s")
        p = pm.Beta("p", 2.0, 3.0, shape=(2, 2))
        pm.Normal("y", a.sum() * p.mean(), s, observed=rng.normal(size=7))
        pm.Potential("penalty", -(a[0] ** 4) - p[0, 1])
    gradient = Gradient(model)
    point = {k: v + 0.3 * rng.normal(size=v.shape) for k, v in model.initial_point().items()}
    value, parts = gradient({v.name: point[v.value_name] for v in gradient.variables})
    expected = model.compile_dlogp(mode="FAST_COMPILE")(point)
    assert value == pytest.approx(float(model.compile_logp(mode="FAST_COMPILE")(point)), rel=1e-12)
    ours = np.concatenate([parts[v.name] for v in gradient.variables])
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


def test_direction_has_the_projected_gradient_of_pymc():
    rng = np.random.default_rng(1)
    data = VonMisesFisher.dist(mu=[0.0, 0.6, 0.8], kappa=4.0)
    x = pm.draw(data, draws=20, random_seed=1, mode="FAST_COMPILE")
    with pm.Model() as model:
        mu = UniformSphere("mu", shape=3)
        kappa = pm.Exponential("kappa", 1.0)
        VonMisesFisher("x", mu, kappa, observed=x)
    gradient = Gradient(model)
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    point = {"mu_unit_vector__": direction, "kappa_log__": np.array(0.4)}
    names = {v.value_name: v for v in gradient.variables}
    point = {name: point.get(name, direction if "mu" in name else np.array(0.4)) for name in names}
    value, parts = gradient({v.name: point[v.value_name] for v in gradient.variables})
    without = model.compile_dlogp(jacobian=False, mode="FAST_COMPILE")(point)
    order = [v.name for v in model.value_vars]
    mu_first = "mu" in order[0]
    expected_mu = without[:3] if mu_first else without[1:]
    np.testing.assert_allclose(
        projected(direction, parts["mu"]), projected(direction, expected_mu), rtol=1e-10
    )
    assert abs(expected_mu @ direction) < 1e-10  # PyMC's is tangent at a unit vector already
    logp = stats.vonmises_fisher(direction, np.exp(0.4)).logpdf(x).sum()
    prior = -np.log(4 * np.pi) - np.exp(0.4) + 0.4
    assert value == pytest.approx(logp + prior, rel=1e-10)
    # kappa stays in PyMC's log scale, with its Jacobian
    with_jacobian = model.compile_dlogp(mode="FAST_COMPILE")(point)
    expected_kappa = with_jacobian[-1] if mu_first else with_jacobian[0]
    np.testing.assert_allclose(parts["kappa"], expected_kappa, rtol=1e-10)


def test_proportions_include_the_volume_of_their_chart():
    alpha = np.array([[2.0, 3.0, 4.0], [1.5, 0.7, 1.0]])
    with pm.Model() as model:
        pm.Dirichlet("w", alpha)
    gradient = Gradient(model)
    q = np.sqrt([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]) * [[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]
    value, parts = gradient({"w": q})
    np.testing.assert_allclose(parts["w"].reshape(2, 3), (2.0 * alpha - 1.0) / q, rtol=1e-10)
    logp = sum(stats.dirichlet(a).logpdf(row**2) for a, row in zip(alpha, q, strict=True))
    assert value == pytest.approx(logp + np.log(np.abs(q)).sum(), rel=1e-10)


def test_half_line_uses_the_variable_itself():
    """No logarithm and no Jacobian."""
    with pm.Model() as model:
        pm.Gamma("s", 3.3, 2.1, shape=2)
    gradient = Gradient(model, manifolds={"s": HalfLine})
    s = np.array([0.5, 2.0])
    value, parts = gradient({"s": s})
    np.testing.assert_allclose(parts["s"], 2.3 / s - 2.1, rtol=1e-10)
    assert value == pytest.approx(stats.gamma(3.3, scale=1 / 2.1).logpdf(s).sum(), rel=1e-12)


N_ROWS, N_FEATURES, BATCH = 24, 2, 6


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    return X, rng.normal(X @ [1.0, -2.0], 1.0)


def regression(X, y, **kwargs):
    """A prior, a row likelihood, a potential of the rows and one of the weights."""
    w = pm.Normal("w", 0.0, 3.0, shape=N_FEATURES)
    pm.Normal("y_obs", X @ w, 1.0, observed=y, **kwargs)
    if not kwargs:
        pm.Potential("row_penalty", -pt.abs(X @ w))
    pm.Potential("penalty", -(w[0] ** 4))


def gradient_by_hand(X, y, w, scale=1.0, row_penalty=True):
    rows = X.T @ (y - X @ w)
    if row_penalty:
        rows = rows - X.T @ np.sign(X @ w)
    return scale * rows - w / 9.0 - np.array([4.0 * w[0] ** 3, 0.0])


@pytest.fixture(scope="module")
def full(table):
    X, y = table
    with pm.Model() as model:
        regression(pm.Data("X", X), pm.Data("y", y))
    return model


W = {"w": np.array([0.4, -0.3])}


def test_full_data(full, table):
    _, parts = Gradient(full)(W)
    np.testing.assert_allclose(parts["w"], gradient_by_hand(*table, W["w"]), rtol=1e-10)


@pytest.mark.parametrize("batch_size", [BATCH, 7])
def test_only_rows_are_scaled(full, table, batch_size):
    X, y = table
    gradient = Gradient(full, minibatch=["X", "y"], batch_size=batch_size)
    for start in gradient.estimator.next_minibatches(6):
        rows = gradient.estimator.source.row_indices(start)
        expected = gradient_by_hand(X[rows], y[rows], W["w"], N_ROWS / batch_size)
        np.testing.assert_allclose(gradient(W, start)[1]["w"], expected, rtol=1e-10)


def test_total_size_overrides_the_number_of_rows(full, table):
    X, y = table
    gradient = Gradient(full, minibatch=["X", "y"], batch_size=BATCH, total_size=1000)
    rows = gradient.estimator.source.row_indices(3)
    expected = gradient_by_hand(X[rows], y[rows], W["w"], 1000 / BATCH)
    np.testing.assert_allclose(gradient(W, 3)[1]["w"], expected, rtol=1e-10)


def test_average_over_all_minibatches_is_the_full_gradient(full):
    _, full_parts = Gradient(full)(W)
    gradient = Gradient(full, minibatch=["X", "y"], batch_size=7)
    each = [gradient(W, start)[1]["w"] for start in range(N_ROWS)]
    np.testing.assert_allclose(np.mean(each, axis=0), full_parts["w"], rtol=1e-10)


def test_minibatch_of_pymc(table):
    """The same blocks, scaled by ``total_size``, without PyMC's generator."""
    X, y = table
    with pm.Model() as model:
        X_rows, y_rows = pm.Minibatch(X, y, batch_size=BATCH)
        regression(X_rows, y_rows, total_size=N_ROWS)
    gradient = Gradient(model)
    assert gradient.estimator.source.batch_size == BATCH
    for start in gradient.estimator.next_minibatches(5):
        rows = gradient.estimator.source.row_indices(start)
        expected = gradient_by_hand(X[rows], y[rows], W["w"], N_ROWS / BATCH, row_penalty=False)
        np.testing.assert_allclose(gradient(W, start)[1]["w"], expected, rtol=1e-10)


@pytest.mark.parametrize("is_computed", [False, True], ids=["container", "computed"])
def test_minibatch_nodes_that_share_a_generator_share_their_rows(table, is_computed):
    """A CustomDist copies the node; its data must stay aligned with the observed values.

    It also copies the inputs of the data.
    """
    X, y = table
    with pm.Model() as model:
        data = pt.concatenate([X[:3], X[3:]]) if is_computed else pm.Data("X", X)
        X_rows, y_rows = pm.Minibatch(data, pm.Data("y", y), batch_size=BATCH)
        w = pm.Normal("w", 0.0, 3.0, shape=N_FEATURES)

        def logp(value, mean):
            return -0.5 * (value - mean) ** 2

        pm.CustomDist("y_obs", X_rows @ w, logp=logp, observed=y_rows, total_size=N_ROWS)
    gradient = Gradient(model)
    for start in gradient.estimator.next_minibatches(4):
        rows = gradient.estimator.source.row_indices(start)
        expected = N_ROWS / BATCH * X[rows].T @ (y[rows] - X[rows] @ W["w"]) - W["w"] / 9.0
        np.testing.assert_allclose(gradient(W, start)[1]["w"], expected, rtol=1e-10)


@pytest.mark.parametrize("order", ["random", "independent"])
def test_other_orders_use_their_rows(full, table, order):
    X, y = table
    gradient = Gradient(full, minibatch=["X", "y"], batch_size=BATCH, minibatch_order=order)
    for start in gradient.estimator.next_minibatches(4):
        rows = gradient.estimator.source.row_indices(start)
        expected = gradient_by_hand(X[rows], y[rows], W["w"], N_ROWS / BATCH)
        np.testing.assert_allclose(gradient(W, start)[1]["w"], expected, rtol=1e-10)


def test_streamed_blocks_use_their_rows(full, table):
    X, y = table
    batches = [(X[i : i + BATCH], y[i : i + BATCH]) for i in range(0, N_ROWS, BATCH)]
    gradient = Gradient(full, minibatch=["X", "y"], batches=batches, total_size=N_ROWS)
    starts = gradient.estimator.next_minibatches(4)
    arrays = gradient.estimator.source.arrays
    np.testing.assert_array_equal(np.sort(arrays["y"]), np.sort(y))
    for start in starts:
        seen = np.isin(y, arrays["y"][start : start + BATCH])
        assert seen.sum() == BATCH
        expected = gradient_by_hand(X[seen], y[seen], W["w"], N_ROWS / BATCH)
        np.testing.assert_allclose(gradient(W, start)[1]["w"], expected, rtol=1e-10)


def test_rows_counted_by_a_dimension(table):
    """Likelihood and data have a dimension whose length becomes that of the block."""
    X, y = table
    with pm.Model(coords={"row": np.arange(N_ROWS), "feature": ["a", "b"]}) as model:
        X_data = pm.Data("X", X, dims=("row", "feature"))
        y_data = pm.Data("y", y, dims="row")
        w = pm.Normal("w", 0.0, 3.0, dims="feature")
        pm.Normal("y_obs", X_data @ w, 1.0, observed=y_data, dims="row")
    gradient = Gradient(model, minibatch=["X", "y"], batch_size=BATCH)
    rows = gradient.estimator.source.row_indices(5)
    expected = N_ROWS / BATCH * X[rows].T @ (y[rows] - X[rows] @ W["w"]) - W["w"] / 9.0
    np.testing.assert_allclose(gradient(W, 5)[1]["w"], expected, rtol=1e-10)


def test_other_data_are_updated_by_set_data(table):
    X, y = table
    with pm.Model() as model:
        centre = pm.Data("centre", np.zeros(N_FEATURES))
        w = pm.Normal("w", centre, 3.0, shape=N_FEATURES)
        pm.Normal("y_obs", pm.Data("X", X) @ w, 1.0, observed=pm.Data("y", y))
    gradient = Gradient(model, minibatch=["X", "y"], batch_size=BATCH)
    before = gradient(W)[1]["w"]
    with model:
        pm.set_data({"centre": [9.0, 18.0]})
    gradient.estimator.refresh_data()
    np.testing.assert_allclose(gradient(W)[1]["w"] - before, [1.0, 2.0], rtol=1e-10)


def test_data_are_explicit_inputs_of_the_graph(full, table):
    """Data and long constants are explicit inputs; only short constants are not."""
    X, _ = table
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 3.0, shape=100)
        pm.Potential("p", -pt.sum((w - np.linspace(0.0, 1.0, 100)) ** 2))
        pm.Normal("y", w[:2] @ pm.Data("X", X).T, 1.0, observed=np.zeros(N_ROWS))
    density = build_density(model, manifold_variables(model, None))
    shapes = {variable.type.shape for variable in density.arrays}
    assert (100,) in shapes
    assert (N_ROWS, N_FEATURES) in shapes
    function = pytensor.function(
        [*density.coordinates, *density.arrays], density.graphs, mode="FAST_COMPILE"
    )
    assert not function.get_shared()


def test_variables_of_other_steps_are_inputs(full):
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0)
        s = pm.HalfNormal("s", 1.0)
        pm.Normal("b", a, s)
    gradient = Gradient(model, vars=[a])
    for b, log_s in ((0.5, 0.0), (2.0, -1.0)):
        gradient.estimator.set_others({"a": 9.0, "s_log__": np.array(log_s), "b": np.array(b)})
        _, parts = gradient({"a": 0.3})
        expected = -0.3 + (b - 0.3) / np.exp(2.0 * log_s)
        np.testing.assert_allclose(parts["a"], expected, rtol=1e-10)


def test_manifolds_follow_the_transform():
    with pm.Model() as model:
        UniformSphere("mu", shape=(4, 3))
        pm.Dirichlet("w", np.ones((2, 5)))
        pm.HalfNormal("s", shape=6)
    mu, w, s = manifold_variables(model, ["mu", "w", "s"])
    assert (mu.manifold, mu.rows, mu.shape) == (Sphere(3), 4, (4, 3))
    assert (w.manifold, w.rows, w.shape, w.value_shape) == (Simplex(5), 2, (2, 5), (2, 4))
    assert (s.rows, s.on_manifold, s.value_shape) == (1, False, (6,))
    q = Simplex(5).to_coordinates(np.random.default_rng(1).dirichlet(np.ones(5), 2))
    np.testing.assert_allclose(w.coordinates(w.values(q)), q, rtol=1e-12)


def test_order_of_the_variables_is_the_one_passed():
    with pm.Model() as model:
        pm.Normal("a", 1.0)
        pm.Normal("b", 2.0)
    gradient = Gradient(model, vars=["b", "a"])
    assert gradient.product.names == ("b", "a")
    _, parts = gradient({"a": 0.0, "b": 0.0})
    assert (parts["a"], parts["b"]) == (1.0, 2.0)


def test_minibatch_without_total_size(table):
    X, y = table
    with pm.Model() as model:
        X_rows, y_rows = pm.Minibatch(X, y, batch_size=BATCH)
        w = pm.Normal("w", shape=N_FEATURES)
        with pytest.warns(UserWarning, match="total_size not provided"):
            pm.Normal("y_obs", X_rows @ w, 1.0, observed=y_rows)
    with pytest.raises(ValueError, match=r"'y_obs' depends on a pm.Minibatch.*Set total_size="):
        Gradient(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"minibatch": ["X", "z"], "batch_size": 5}, r"minibatch= names 'z'.*\['X', 'y'\]"),
        ({"minibatch": ["w"], "batch_size": 5}, r"minibatch= names 'w'.*not a pm.Data container"),
        ({"minibatch": ["X", "y"]}, "minibatch= needs batch_size="),
        ({"batch_size": 5}, r"batch_size= needs minibatch=.*\['X', 'y'\]"),
        ({"batches": [1]}, "batches= needs minibatch="),
        ({"minibatch": ["X", "y"], "batch_size": 25}, "batch_size=25 exceeds the 24 rows"),
        ({"minibatch": ["X", "y"], "batch_size": 0}, "batch_size must be a positive integer"),
        ({"minibatch": "X", "batches": [np.ones((2, 2))]}, "total_size="),
        (
            {"minibatch": ["X", "y"], "batch_size": 5, "minibatch_order": "sorted"},
            "'sorted' is unknown.*'shuffled', 'independent', 'random'",
        ),
    ],
)
def test_wrong_minibatch_arguments(full, arguments, message):
    with pytest.raises(ValueError, match=message):
        Gradient(full, **arguments)


def test_containers_of_different_lengths(table):
    X, y = table
    with pm.Model() as model:
        regression(pm.Data("X", X), pm.Data("y", y))
        pm.Data("z", np.zeros(3))
    with pytest.raises(ValueError, match=r"different numbers of rows: \{'X': 24, 'z': 3\}"):
        Gradient(model, minibatch=["X", "z"], batch_size=2)


def test_unused_container_raises(table):
    X, y = table
    with pm.Model() as model:
        regression(pm.Data("X", X), pm.Data("y", y))
        pm.Data("z", np.zeros(N_ROWS))
    with pytest.raises(
        ValueError, match="'z' has a row per observation, but the log-density does not"
    ):
        Gradient(model, minibatch=["X", "y", "z"], batch_size=2)


def test_missing_numbers_in_data(table):
    X, y = table
    with pm.Model() as model:
        regression(pm.Data("X", X), pm.Data("y", y))
    X = X.copy()
    X[3, 1] = np.nan
    model["X"].set_value(X)
    with pytest.raises(ValueError, match="data container 'X' contains NaN: drop or impute"):
        Gradient(model, minibatch=["X", "y"], batch_size=2)


@pytest.mark.parametrize("container", ["X", "y"])
def test_infinite_numbers_in_data(table, container):
    X, y = (array.copy() for array in table)
    (X if container == "X" else y)[3] = np.inf
    with pm.Model() as model:
        regression(pm.Data("X", X), pm.Data("y", y))
    with pytest.raises(ValueError, match=f"data container '{container}' contains infinity: drop"):
        Gradient(model, minibatch=["X", "y"], batch_size=2)


def test_infinite_numbers_in_a_stream(table):
    X, y = (array.copy() for array in table)
    X[3] = -np.inf
    with pm.Model() as model:
        regression(pm.Data("X", table[0]), pm.Data("y", y))
    with pytest.raises(ValueError, match="batches= yields infinity for 'X' in block 1; drop"):
        Gradient(model, minibatch=["X", "y"], batches=[(X, y)], total_size=N_ROWS)


@pytest.mark.parametrize("drawn", [False, True])
def test_missing_observed_values(table, drawn):
    """PyMC imputes them, by their positions among all rows."""
    X, y = (array.copy() for array in table)
    y[3] = np.nan
    with pm.Model() as model:
        rows = pm.Minibatch(X, batch_size=N_ROWS) if drawn else pm.Data("X", X)
        mean = rows @ pm.Normal("w", shape=N_FEATURES)
        with pytest.warns(UserWarning, match="imputed"):
            pm.Normal("y_obs", mean, 1.0, observed=y)
    arguments = {} if drawn else {"minibatch": "X", "batch_size": BATCH}
    with pytest.raises(
        ValueError, match=r"observed values of 'y_obs' contain NaN.*Drop these rows"
    ):
        Gradient(model, vars=["w"], **arguments)


def test_mask_without_a_container(table):
    X, y = table
    seen = y > y.min()
    with pm.Model() as model:
        mean = pm.Data("X", X) @ pm.Normal("w", shape=N_FEATURES)
        pm.Normal("y_obs", mean[seen], 1.0, observed=y[seen])
    message = r"a block of rows of minibatch=\['X'\] does not match .*Name every container"
    with pytest.raises(ValueError, match=message):
        Gradient(model, minibatch="X", batch_size=BATCH)


def test_rows_of_two_minibatches_do_not_belong_together(table):
    """Each draws its own rows: covariates and outcomes would not belong together."""
    X, y = table
    with pm.Model() as model:
        X_rows, y_rows = pm.Minibatch(X, batch_size=BATCH), pm.Minibatch(y, batch_size=BATCH)
        mean = X_rows @ pm.Normal("w", shape=N_FEATURES)
        pm.Normal("y_obs", mean, 1.0, observed=y_rows, total_size=N_ROWS)
    with pytest.raises(ValueError, match=r"'y_obs' combines rows of different pm.Minibatch"):
        Gradient(model)


def test_named_rows_and_rows_of_a_minibatch_in_one_model(table):
    X, y = table
    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("drawn", mean, observed=pm.Minibatch(X[:, 0], batch_size=2), total_size=N_ROWS)
        pm.Normal("named", mean, observed=pm.Data("y", y))
    with pytest.raises(
        ValueError, match=r"minibatch='y' names .* a model with pm.Minibatch\. Use pm.Data"
    ):
        Gradient(model, minibatch="y", batch_size=2)


def test_wrong_variables():
    with pm.Model() as model:
        pm.Normal("a")
        k = pm.Poisson("k", 3.0)
        y = pm.Normal("y", observed=1.0)
    with pytest.raises(ValueError, match=r"Unknown variable 'b'.*\['a', 'k'\]"):
        manifold_variables(model, ["b"])
    with pytest.raises(ValueError, match="'k' is discrete"):
        manifold_variables(model, [k])
    with pytest.raises(ValueError, match="'y' is observed"):
        manifold_variables(model, [y])
    with pytest.raises(ValueError, match=r"manifolds= names \['c'\]"):
        manifold_variables(model, ["a"], {"c": Sphere})
    with pytest.raises(ValueError, match="'a' is a scalar"):
        manifold_variables(model, ["a"], {"a": Sphere})


def test_point_off_the_manifold():
    with pm.Model() as model:
        UniformSphere("mu", shape=3)
    (mu,) = manifold_variables(model, None)
    with pytest.raises(ValueError, match=r"points of mu are not on Sphere.*Divide each vector"):
        mu.coordinates(np.array([1.0, 1.0, 0.0]))


NAMES = ["1|g_sigma", "float32", "x:z", "f4"]
ROLES = ["other variable", "variable", "rows", "table", "local variable"]


@pytest.mark.parametrize(("name", "role"), cross(NAMES, ROLES))
def test_names_of_data_types_are_valid_names(name, role):
    is_local, is_other = role == "local variable", role == "other variable"
    with pm.Model(coords={"group": range(2)}) as model:
        x = pm.Data(name if role == "rows" else "x", np.arange(6.0))
        y = pm.Data("y", np.arange(6.0))
        table = pm.Data(name if role == "table" else "table", np.arange(2.0))
        shape = {"shape": 6} if is_local else {"dims": "group"}
        each = pm.Normal("each" if role in ("rows", "table") else name, **shape)
        slope = pm.Normal("slope") * table[1]
        pm.Normal("seen", slope * x + (each if is_local else each[0]), 1.0, observed=y)
        minibatch = {"minibatch": [x.name, "y"], "batch_size": 3}
        local = [name] if is_local else None
        variables = ["slope"] if is_other else None
        step = SGGMC(variables, local=local, **minibatch, compile_kwargs=INTERPRETED)
    assert len(step.vars) == (1 if is_other else len(model.free_RVs))
