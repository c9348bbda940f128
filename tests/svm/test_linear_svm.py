"""The Bayesian linear support vector machine, and predictions from its draws."""

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import sparse
from scipy.optimize import minimize

import pymc_geodesic as pg
from pymc_geodesic.sparse import SparseData
from pymc_geodesic.svm import (
    decision_function,
    linear_svm,
    plot_decision_band,
    plot_label_probability,
    predict,
    predict_proba,
    predictions,
)

N, D, L = 80, 3, 4


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    return np.where(rng.random((N, D)) < 0.6, rng.normal(size=(N, D)), 0.0)


@pytest.fixture(scope="module")
def signs(rows):
    return np.where(rows[:, 0] - rows[:, 1] + np.random.default_rng(2).normal(size=N) > 0, 1, -1)


def log_density(model, point):
    return model.compile_logp(mode="FAST_COMPILE")(point)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.lil_matrix])
@pytest.mark.parametrize("intercept", [False, True])
def test_binary_log_density(rows, signs, container, intercept):
    scale = np.array([1.0, 0.5, 2.0])
    model = linear_svm(
        container(rows), signs, 0.7, 1.3, prior_scale=scale, intercept=intercept, intercept_scale=3
    )
    w, b = np.array([0.4, -0.8, 0.1]), 0.6 if intercept else 0.0
    expected = -0.7 * np.maximum(0, 1.3 - signs * (rows @ w + b)).sum()
    expected += -0.5 * np.sum((w / scale) ** 2 + np.log(2 * np.pi * scale**2))
    point = {"weights": w}
    if intercept:
        expected += -0.5 * ((b / 3) ** 2 + np.log(2 * np.pi * 9))
        point["intercept"] = np.array(b)
    assert log_density(model, point) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_multiclass_log_density(rows, container):
    rng = np.random.default_rng(3)
    labels, W, b = rng.integers(L, size=N), rng.normal(size=(D, L)), rng.normal(size=L)
    scale = np.array([1.0, 0.5, 2.0])
    model = linear_svm(container(rows), labels, 0.7, 1.3, prior_scale=scale, intercept=True)
    scores = rows @ W + b
    rival = np.array([np.delete(s, y).max() for s, y in zip(scores, labels, strict=True)])
    expected = -0.7 * np.maximum(0, 1.3 + rival - scores[np.arange(N), labels]).sum()
    for value, sd in ((W, scale[:, None]), (b, 10.0)):
        sd = np.broadcast_to(sd, value.shape)
        expected += -0.5 * np.sum((value / sd) ** 2 + np.log(2 * np.pi * sd**2))
    point = {"weights": W, "intercept": b}
    assert log_density(model, point) == pytest.approx(expected, rel=1e-12)


def test_mode_is_the_support_vector_machine(rows, signs):
    """C = cost · prior_scale²: the mode of the posterior solves scikit-learn's problem."""
    svm = pytest.importorskip("sklearn.svm")
    cost, scale = 0.8, 0.5
    options = {"loss": "hinge", "fit_intercept": False, "tol": 1e-10, "max_iter": 10**6}
    w = svm.LinearSVC(C=cost * scale**2, **options).fit(rows, signs).coef_[0]
    model = linear_svm(rows, signs, cost, prior_scale=scale)
    logp = model.compile_logp(mode="FAST_COMPILE")
    found = minimize(
        lambda x: -logp({"weights": x}), w + 0.3, method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000},
    )  # fmt: skip
    np.testing.assert_allclose(found.x, w, atol=2e-5)


def test_columns_of_a_data_frame_name_the_features(rows, signs):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    assert linear_svm(frame, pd.Series(signs)).coords["feature"] == ("a", "b", "c")
    assert linear_svm(frame, signs, features=[4, 5, 6]).coords["feature"] == (4, 5, 6)


def test_rows_of_a_sparse_model_can_be_replaced(rows, signs):
    model = linear_svm(sparse.csr_array(rows), signs)
    other = linear_svm(sparse.csr_array(rows[:7] + 1.0), signs[:7])
    with model:
        SparseData.find("X").set_value(sparse.csr_array(rows[:7] + 1.0))
        pm.set_data({"y": signs[:7]})
    point = {"weights": np.array([0.5, -1.0, 0.2])}
    assert model.compile_logp(mode="FAST_COMPILE")(point) == pytest.approx(
        other.compile_logp(mode="FAST_COMPILE")(point)
    )
    with pytest.raises(ValueError, match=r"no SparseData 'Z'; its data containers are \['X_val"):
        SparseData.find("Z", model=model)


def test_names_dims_and_coords(rows, signs):
    model = linear_svm(rows, signs, features=list("abc"), intercept=True)
    assert [rv.name for rv in model.free_RVs] == ["weights", "intercept"]
    assert [rv.name for rv in model.observed_RVs] == ["label"]
    assert [data.name for data in model.data_vars] == ["X", "y", "cost", "margin"]
    assert model.named_vars_to_dims["X"] == ("row", "feature")
    assert model.named_vars_to_dims["label"] == ("row",)
    labels = np.arange(N) % 3
    many = linear_svm(rows, labels, classes=list("xyz"), features=list("abc"), intercept=True)
    assert many.named_vars_to_dims["weights"] == ("feature", "class")
    assert many.named_vars_to_dims["intercept"] == ("class",)
    assert list(many.coords["class"]) == ["x", "y", "z"]
    assert linear_svm(rows, labels % 2, n_classes=5).coords["class"] == tuple(range(5))
    assert linear_svm(rows, np.ones(N)).named_vars_to_dims["weights"] == ("feature",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.arange(N) % 2}, "y contains the labels 0 and 1. Pass 2"),
        ({"y": np.where(np.arange(N) % 2, -1, 2)}, r"'y' must be -1 or \+1"),
        ({"y": np.full(N, 3), "n_classes": 3}, "from 0 to 2"),
        ({"y": 1 + np.arange(N) % 2}, r"no label of 'y' is 0, .* or give n_classes="),
        ({"y": np.arange(N) % 2, "n_classes": 1}, "n_classes must be an integer"),
        ({"y": np.arange(N) % 2, "n_classes": 3, "classes": "ab"}, "2 classes but n_classes=3"),
        ({"y": np.full(N, "a")}, "must be numbers"),
        ({"y": np.ones(N - 1)}, f"each of the {N} rows"),
        ({"X": np.ones(N)}, "X must be a matrix"),
        ({"X": np.full((N, D), np.nan)}, "X has missing values"),
        ({"X": sparse.csr_array(np.full((N, D), np.inf))}, "X has infinite values"),
        ({"X": np.ma.masked_equal(np.eye(N, D), 0.0)}, "X has missing values"),
        ({"y": np.ma.masked_equal(np.resize([1, -1], N), -1)}, "y has missing values"),
        ({"X": np.ones((0, D)), "y": np.ones(0)}, "no rows"),
        ({"cost": -1.0}, "cost must be"),
        ({"margin": np.nan}, "margin must be"),
        ({"prior_scale": np.ones(2)}, "prior_scale must be"),
        ({"prior_scale": 0.0}, "prior_scale must be"),
        ({"intercept_scale": 0.0}, "intercept_scale must be"),
        ({"features": "ab"}, "3 columns but there are 2 features"),
    ],
)
def test_invalid_input_raises(rows, signs, change, message):
    with pytest.raises(ValueError, match=message):
        linear_svm(**({"X": rows, "y": signs} | change))


@pytest.mark.usefixtures("interpreted")
def test_predictions_are_those_of_the_posterior_predictive(rows, signs):
    """The draws agree with `sample_posterior_predictive` for new rows."""
    model = linear_svm(rows, signs, cost=1.0, margin=0.8, intercept=True)
    new = np.array([[1.5, -1.0, 0.0], [0.1, 0.2, 0.0], [-2.0, 1.0, 0.3]])
    interpreted = {"mode": "FAST_COMPILE"}
    with model:
        idata = pm.sample(
            400, tune=200, chains=2, cores=1, random_seed=1, progressbar=False,
            step=pg.GMC(), compute_convergence_checks=False,
        )  # fmt: skip
        pm.set_data({"X": new, "y": np.ones(3)})
        predicted = pm.sample_posterior_predictive(
            idata, random_seed=1, progressbar=False, compile_kwargs=interpreted
        )
    expected = predict_proba(idata, new).sel({"class": 1}).values
    share = (predicted.posterior_predictive["label"] == 1).mean(("chain", "draw")).values
    assert np.all(np.abs(share - expected) < 5 * np.sqrt(0.25 / 800))
    assert np.mean(predict(idata, rows) == signs) > 0.65
    assert expected[0] > 0.8 > 0.2 > expected[2]


# Predictions from given draws -----------------------------------------------------------------


def make_draws(*shape, coords=None, **constants):
    rng = np.random.default_rng(5)
    posterior = {"weights": rng.normal(size=(2, 25, *shape)) + 0.4}
    posterior["intercept"] = rng.normal(size=(2, 25, *shape[1:]))
    dims = {"weights": ["feature", "class"][: len(shape)], "intercept": ["class"][: len(shape) - 1]}
    groups = {"posterior": posterior} | ({"constant_data": constants} if constants else {})
    return az.from_dict(groups, dims=dims, coords=coords or {})


def scores_by_loop(idata, X):
    weights = idata.posterior["weights"].stack(sample=("chain", "draw"))
    intercept = idata.posterior["intercept"].stack(sample=("chain", "draw"))
    return np.stack(
        [X @ weights.isel(sample=i).values + intercept.isel(sample=i).values for i in range(50)], 1
    )


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_binary_predictions_are_their_definitions(rows, container, monkeypatch):
    monkeypatch.setattr(predictions, "_BLOCK_SIZE", 700)  # 14 rows at a time
    idata = make_draws(D, cost=1.7, margin=0.6)
    X = container(rows)
    scores = scores_by_loop(idata, rows)
    by_draw = decision_function(idata, X, average=False)
    assert by_draw.dims == ("chain", "draw", "row")
    np.testing.assert_allclose(by_draw.values.reshape(50, -1).T, scores, rtol=1e-10)
    np.testing.assert_allclose(decision_function(idata, X), scores.mean(1), rtol=1e-9)
    np.testing.assert_array_equal(predict(idata, X), np.sign(scores.mean(1)))
    votes = np.stack([(scores < 0).mean(1), (scores > 0).mean(1)], 1)
    found = predict_proba(idata, X, kind="votes")
    assert found["class"].values.tolist() == [-1, 1]
    np.testing.assert_allclose(found, votes, atol=1e-12)
    psi = [np.exp(-1.7 * np.maximum(0, 0.6 - y * scores)) for y in (-1, 1)]
    plus = (psi[1] / (psi[0] + psi[1])).mean(1)
    np.testing.assert_allclose(predict_proba(idata, X)[:, 1], plus, rtol=1e-10)


def test_multiclass_predictions_are_their_definitions(rows, monkeypatch):
    monkeypatch.setattr(predictions, "_BLOCK_SIZE", 700)
    idata = make_draws(D, L, coords={"class": list("wxyz")})
    scores = scores_by_loop(idata, rows)
    assert decision_function(idata, rows, average=False).dims == ("chain", "draw", "row", "class")
    names = np.array(list("wxyz"))
    np.testing.assert_array_equal(predict(idata, rows), names[scores.mean(1).argmax(-1)])
    votes = (scores.argmax(-1)[..., None] == np.arange(L)).mean(1)
    np.testing.assert_allclose(predict_proba(idata, rows, kind="votes"), votes, atol=1e-12)
    loss = [0.6 + np.delete(scores, k, -1).max(-1) - scores[..., k] for k in range(L)]
    psi = np.exp(-1.7 * np.maximum(0, np.stack(loss, -1)))
    probability = (psi / psi.sum(-1, keepdims=True)).mean(1)
    found = predict_proba(idata, rows, cost=1.7, margin=0.6)
    np.testing.assert_allclose(found, probability, rtol=1e-10)


def test_fewer_draws_are_evenly_spaced_over_the_chains(rows):
    idata = make_draws(D)
    votes = predict_proba(idata, rows, kind="votes", n_draws=3)
    some = decision_function(idata, rows, average=False).values.reshape(50, -1)[[0, 24, 49]]
    np.testing.assert_allclose(votes[:, 1], (some > 0).mean(axis=0))


def test_settings_of_the_loss_come_from_the_model_or_the_arguments(rows):
    stored = predict_proba(make_draws(D, cost=2.0, margin=0.5), rows)
    given = predict_proba(make_draws(D), rows, cost=2.0, margin=0.5)
    default = predict_proba(make_draws(D), rows)
    np.testing.assert_array_equal(stored, given)
    assert float(np.abs(stored - default).max()) > 0.01
    flat = predict_proba(make_draws(D, cost=2.0), rows, cost=0.0)
    np.testing.assert_array_equal(flat, 0.5)


X = np.ones((5, D))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: predict(i, X, var_names=["w"]), "no variable 'w'"),
        (lambda i: predict_proba(i, X, n_draws=51), "n_draws=51 exceeds the 50 draws"),
        (lambda i: predict(i, X, var_names=["intercept"]), "must have the dim"),
        (lambda i: predict(i, np.ones((5, 2))), r"X must have the shape \(rows, 3\)"),
        (lambda i: predict(i, np.full((5, 3), np.nan)), "X has missing values"),
        (lambda i: predict_proba(i, sparse.csr_array(X / 0.0)), "X has infinite values"),
        (lambda i: predict_proba(i, X, kind="x"), "kind='x' is unknown"),
        (lambda i: plot_decision_band(i, X), "two features, got 2 classes and 3 features"),
        (lambda i: plot_label_probability(i, X, np.ones(5)), "n_bins must be"),
        (lambda i: plot_label_probability(i, X, np.ones((5, 1))), r"5 rows of X, .* \(5, 1\)"),
        (lambda i: plot_label_probability(i, X, np.full(5, 2)), "label 2, which is not among"),
        (lambda i: predict(i, np.ma.masked_equal(np.eye(5, 3), 0.0)), "X has missing values"),
    ],
)
def test_inconsistent_arguments_raise(call, message):
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=message):
        call(make_draws(D))


# Plots ----------------------------------------------------------------------------------------


def test_columns_in_another_order_raise(rows):
    """As in scikit-learn; the scores would be those of other features."""
    draws = make_draws(D)
    draws["posterior"] = xr.DataTree(
        draws.posterior.to_dataset().assign_coords(feature=["height", "width", "age"])
    )
    frame = pd.DataFrame(rows, columns=["height", "width", "age"])
    np.testing.assert_array_equal(predict(draws, frame), predict(draws, rows))
    with pytest.raises(ValueError, match=r"another order.*X\[idata.posterior\['feature'\].values"):
        predict(draws, frame[["width", "height", "age"]])
    with pytest.raises(ValueError, match="X has no column 'age'"):
        predict(draws, frame[["height", "width"]])


def test_decision_band_shows_only_labels_of_the_classifier():
    X = np.random.default_rng(1).normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"label .*0.* among the classes \[-1, 1"):
        plot_decision_band(make_draws(2), X, (X[:, 0] > 0).astype(int))


def test_decision_band_shows_boundary_band_and_points():
    rng = np.random.default_rng(1)
    idata = az.from_dict({"posterior": {"weights": rng.normal([1.0, -0.7], 0.3, (2, 50, 2))}})
    X = rng.normal(size=(60, 2))
    y = predict(idata, X)
    collection = plot_decision_band(idata, X, y, max_points=40, ci_prob=0.45, backend="matplotlib")
    ax = collection.get_target("probability", {})
    assert sum(len(each.get_offsets()) for each in ax.collections) == 40
    boundary, *band = (np.stack(line.get_data(), axis=1) for line in ax.lines[:3])
    assert np.abs(decision_function(idata, boundary).values).max() < 0.02
    for line, level in zip(band, (0.275, 0.725), strict=True):
        vertices = line[np.isfinite(line[:, 0])]
        # All boundaries meet in the origin.
        vertices = vertices[np.linalg.norm(vertices, axis=1) > 0.5]
        votes = predict_proba(idata, vertices, kind="votes").values[:, 1]
        assert np.abs(votes - level).max() < 0.06


def test_label_probability_shows_bins_of_both(rows):
    idata, y = make_draws(D), np.where(np.arange(N) % 3, 1, -1)
    ax = plot_label_probability(idata, rows, y, n_bins=8, backend="matplotlib").get_target(
        "probability", {}
    )
    order = np.argsort(decision_function(idata, rows).values).reshape(8, 10)
    np.testing.assert_allclose(
        ax.lines[0].get_ydata(), predict_proba(idata, rows).values[order, 1].mean(1)
    )
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], (y[order] == 1).mean(1))


def test_label_probability_of_many_classes(rows):
    idata = make_draws(D, L)
    y = predict(idata, rows)
    ax = plot_label_probability(idata, rows, y, n_bins=4, backend="matplotlib").get_target(
        "probability", {}
    )
    np.testing.assert_array_equal(ax.collections[0].get_offsets()[:, 1], 1.0)


@pytest.mark.parametrize("backend", ["matplotlib", "plotly", "bokeh"])
def test_plots_work_with_every_backend(backend):
    X = np.random.default_rng(1).normal(size=(60, 2))
    idata = make_draws(2)
    y = predict(idata, X)
    for plot in (plot_decision_band, plot_label_probability):
        assert plot(idata, X, y, backend=backend).backend == backend


def test_filled_regions_have_holes():
    """The area of a ring between two levels of a cone."""
    from pymc_geodesic.svm.plots import _filled_region

    axis = np.linspace(-1.0, 1.0, 201)
    radius = np.hypot(*np.meshgrid(axis, axis))
    x, y = _filled_region([axis, axis], radius, 0.4, 0.8)
    area = 0.5 * abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))
    assert area == pytest.approx(np.pi * (0.8**2 - 0.4**2), rel=0.01)
