"""Group effects that are found in models, and the precision matrix of their posterior."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_geodesic as pg
from pymc_geodesic.densities.effect_detection import NoEffectsError, find_effects
from pymc_geodesic.densities.variables import manifold_variables
from tests.grids import by_default
from tests.steps.hierarchies import CLASS, COVARIATES, GROUP, ITEM, RNG, X, Y, cholesky
from tests.steps.runs import INTERPRETED

RING = np.roll(np.eye(7, dtype=int), 1, axis=0) + np.roll(np.eye(7, dtype=int), -1, axis=0)
START = pm.Normal.dist(0.0, 1.0)


def regression(b):
    return b[GROUP, 0] + b[GROUP, 1] * X


def precision_of(mean, shape=(7, 2)):
    """Precision matrix at a position, for the regression of a function of offsets and factor."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=2)
        mean = mean(pm.Normal("z", shape=shape), cholesky(), scale)
        pm.Normal("y", pm.Normal("b") + mean, 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    return effects.precision(np.linspace(-1.0, 1.0, 20)).toarray()


FORMS = {
    "dot": lambda z, chol, _: regression(pm.math.dot(z, chol.T)),
    "transposed": lambda z, chol, _: regression((chol @ z.T).T),
    "twice": lambda z, chol, _: (z @ chol.T)[GROUP, 0] + (z @ chol.T)[GROUP, 1] * X,
    "columns": lambda z, chol, _: (chol @ z.T)[0][GROUP] + (chol @ z.T)[1, GROUP] * X,
    "of rows": lambda z, chol, _: ((z[GROUP] @ chol.T) * np.stack([0 * X + 1, X], 1)).sum(1),
    "all columns": lambda z, chol, _: ((chol @ z.T)[:, GROUP] * np.stack([0 * X + 1, X])).sum(0),
    "named": lambda z, chol, _: regression(pm.Deterministic("e", z @ chol.T)),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("form", by_default(["dot", "all columns"], of=FORMS))
def test_forms_of_correlated_offsets(form):
    expected = precision_of(lambda z, chol, _: regression(z @ chol.T))
    np.testing.assert_allclose(precision_of(FORMS[form]), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("centered", [True, False])
def test_entries_of_correlated_effects(centered):
    """``effect[group, level]``, as a sum in which the other columns have the covariate zero."""
    level = np.resize([0, 1, 1], GROUP.size)
    chosen = np.stack([level == 0, level == 1], axis=1).astype(float)
    found = []
    for form in (lambda e: e[GROUP, level], lambda e: (e[GROUP] * chosen).sum(axis=1)):
        with pm.Model() as model:
            chol = cholesky()
            if centered:
                effect = pm.MvNormal("effect", np.zeros(2), chol=chol, shape=(7, 2))
            else:
                effect = pm.Normal("z", shape=(7, 2)) @ chol.T
            pm.Normal("y", form(effect), 1.0, observed=Y)
        effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
        assert effects.are_hierarchical
        found.append(effects.precision(np.linspace(-1.0, 1.0, 17)).toarray())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_scales_of_columns():
    """Scales by column, before or after a product, and in the matrix, are the same."""
    first = precision_of(lambda z, chol, scale: regression(z @ (scale[:, None] * chol).T))
    for mean in (
        lambda z, chol, scale: regression(scale * (z @ chol.T)),
        lambda z, chol, scale: regression((scale[:, None] * (chol @ z.T)).T),
    ):
        np.testing.assert_allclose(precision_of(mean), first, rtol=1e-9, atol=1e-9)
    by_rows = precision_of(lambda z, _, scale: regression(z * scale))
    order = np.arange(20)
    order[2:16] = 2 + np.arange(14).reshape(7, 2).T.ravel()
    columns = precision_of(lambda z, _, scale: regression((scale[:, None] * z).T), (2, 7))
    np.testing.assert_allclose(columns, by_rows[np.ix_(order, order)], rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "mean",
    [
        lambda z, chol, _: regression(z @ chol),
        lambda z, chol, _: regression(z @ (chol + chol.T)),
        lambda z, chol, _: regression(z @ np.array([[1.0, 0.3], [0.0, 2.0]])),
        lambda z, chol, _: regression(z @ chol.T) + z.sum(),
        lambda z, chol, scale: (z @ scale)[GROUP],
    ],
    ids=["upper triangular", "symmetric", "constant", "another use", "vector"],
)
def test_other_products_are_not_effects(mean):
    with pytest.raises(NoEffectsError, match="no variable with a normal prior"):
        precision_of(mean)


PAIRS = {
    "two indices": lambda e: e[GROUP, ITEM],
    "negative": lambda e: e[GROUP - 7, ITEM],
    "short integers": lambda e: e[(GROUP - 7).astype("int8"), ITEM.astype("uint8")],
    "of a function": lambda e: (0.0 + e)[GROUP, ITEM],
    "flat": lambda e: e.ravel()[4 * GROUP + ITEM],
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("form", PAIRS)
@pytest.mark.parametrize("centered", [True, False])
def test_interactions_are_effects_of_pairs(form, centered):
    """The matrix has the precision of a vector with an entry for each pair."""

    def precision_of(shape, mean):
        with pm.Model() as model:
            scale = pm.HalfNormal("scale")
            if centered:
                e = pm.Normal("e", pm.Normal("b"), scale, shape=shape)
            else:
                e = pm.Normal("b") + scale * pm.Normal("e", shape=shape)
            pm.StudentT("y", 4.0, mu=mean(e), sigma=1.0, observed=Y)
        effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
        names = [v.name for v in manifold_variables(model, None, None)]
        x = {"scale": [0.3], "b": [0.3], "e": np.linspace(-1.0, 1.0, 28)}
        return effects.precision(np.concatenate([x[name] for name in names])).toarray()

    expected = precision_of(28, lambda e: e[4 * GROUP + ITEM])
    np.testing.assert_allclose(precision_of((7, 4), PAIRS[form]), expected)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("mean", "is_sparse"),
    [
        (lambda a, b: a[GROUP] + b[ITEM], {"a", "b"}),
        (lambda a, b: a[GROUP] + pt.constant(np.eye(4)[ITEM]) @ b, {"a"}),
        (lambda a, b: a[GROUP] + a.max() + b[ITEM], {"b"}),
    ],
    ids=["by index", "by product", "another use"],
)
def test_effects_that_sum_to_zero_are_found(mean, is_sparse):
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        a, b = (pm.ZeroSumNormal(name, scale, shape=n) for name, n in (("a", 7), ("b", 4)))
        pm.Normal("y", mean(a, b), 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert {each.name for each in effects.effects} == is_sparse
    precision = effects.precision(np.linspace(-0.5, 0.5, 10))
    assert precision.shape == (10 + len(is_sparse), 10 + len(is_sparse))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("size", "is_offset"), [(7, True), (10, False)])
def test_scales_of_groups_are_as_many_as_the_groups(size, is_offset):
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=size)
        pm.Normal("y", pm.Normal("z", shape=7)[GROUP] * scale[GROUP], 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert effects.is_offset.all() == is_offset


@pytest.mark.usefixtures("interpreted")
def test_products_of_different_scales_do_not_sum_to_zero():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=2)[np.arange(7) % 2]
        e = scale * pm.ZeroSumNormal("e", shape=7)
        pm.Normal("y", pm.HalfNormal("common") * e[GROUP], 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert not effects.is_offset.any()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize(
    "mean",
    [
        pytest.param(lambda a: np.vander(X, 7) @ a, id="covariates"),
        pytest.param(lambda a: a[GROUP] + a.sum(), id="sum"),
        pytest.param(lambda a: a[GROUP] - a[GROUP].mean(), id="mean of the rows"),
        pytest.param(lambda a: a[GROUP].cumsum(), id="random walk"),
        pytest.param(lambda a: a[GROUP] + a[GROUP][::-1], id="other order"),
    ],
)
def test_other_uses_are_those_of_coefficients(mean, centered):
    """Their precision matrix is that of effects, which is exact if the mean is linear."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        a = pm.Normal("a", 0.0, scale, shape=7) if centered else scale * pm.Normal("a", shape=7)
        pm.Normal("y", mean(a), 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert effects.others.tolist() == [0]
    jacobian = np.stack([mean(pt.constant(e)).eval(mode="FAST_COMPILE") for e in np.eye(7)], 1)
    expected = jacobian.T @ jacobian + np.exp(-0.6) * np.eye(7)
    precision = effects.precision(np.linspace(0.3, 2.0, 8)).toarray()
    np.testing.assert_allclose(precision[1:, 1:], expected, rtol=1e-9, atol=1e-9)


FACTORS = {
    "product": lambda z, tau, local: COVARIATES @ (z * tau * local),
    "one by one": lambda z, tau, local: COVARIATES @ (tau * (local * z)),
    "two uses": lambda z, tau, local: (
        COVARIATES[:, :2] @ (tau * local * z)[:2] + COVARIATES[:, 2] * (tau * local * z)[2]
    ),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("distribution", ["HalfNormal", "HalfCauchy", "Weibull"])
@pytest.mark.parametrize("size", [{"shape": 3}, {"dims": "covariate"}])
def test_scales_of_all_distributions(distribution, size):
    """PyMC knows the lengths of dims for some distributions only when they are evaluated."""
    parameters = {"HalfNormal": [1.0], "HalfCauchy": [1.0], "Weibull": [1.5, 1.0]}[distribution]
    with pm.Model(coords={"covariate": range(3)}) as model:
        local = getattr(pm, distribution)("local", *parameters, **size)
        mean = COVARIATES @ (local * pm.Normal("z", **size))
        pm.Normal("y", mean, 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert effects.is_offset.tolist() == [True, True, True]


@pytest.mark.usefixtures("interpreted")
def test_missing_observations_are_effects_of_the_mean():
    y = Y.copy()
    y[:5] = np.nan
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        with pytest.warns(UserWarning, match="imputed"):
            pm.Normal("y", a[GROUP], 0.5, observed=y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    rows = np.eye(7)[GROUP]
    # of a and the missing observations, at a scale of one
    design = np.block([[rows[5:], np.zeros((len(Y) - 5, 5))], [-rows[:5], np.eye(5)]])
    expected = 4.0 * design.T @ design + np.diag([1.0] * 7 + [0.0] * 5)
    precision = effects.precision(np.zeros(13)).toarray()
    np.testing.assert_allclose(precision[1:, 1:], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("form", FACTORS)
def test_forms_of_offsets_of_coefficients(form):
    """Precision and scale do not depend on how coefficients are written."""
    found = []
    for mean, is_offset in ((FACTORS[form], True), (lambda a, *_: COVARIATES @ a, False)):
        with pm.Model() as model:
            tau, local = pm.HalfNormal("tau"), pm.HalfNormal("local", shape=3)
            a = pm.Normal("a", 0.0, 1.0 if is_offset else tau * local, shape=3)
            pm.Poisson("y", pm.math.exp(0.1 * mean(a, tau, local)), observed=CLASS)
        effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
        assert effects.is_offset.tolist() == 3 * [is_offset]
        logs, z = np.array([0.2, -0.1, 0.3, 0.1]), np.array([1.0, 2.0, -1.0])
        values = z if is_offset else z * np.exp(logs[0] + logs[1:])
        found.append(effects.precision(np.concatenate([logs, values])).toarray())
    np.testing.assert_allclose(found[0][4:, 4:], found[1][4:, 4:], rtol=1e-9)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "mean",
    [
        pytest.param(lambda z, tau, _: COVARIATES @ (tau * z) + z.sum(), id="another use"),
        pytest.param(lambda z, _, loading: COVARIATES @ (loading * z), id="both signs"),
        pytest.param(lambda z, tau, _: tau * (COVARIATES @ z), id="after the product"),
        pytest.param(lambda z, *_: COVARIATES @ z, id="no scale"),
    ],
)
def test_other_vectors_are_no_effects(mean):
    with pm.Model() as model:
        tau, loading = pm.HalfNormal("tau"), pm.Normal("loading")
        pm.Normal("y", mean(pm.Normal("z", shape=3), tau, loading), 1.0, observed=Y)
    with pytest.raises(NoEffectsError, match="no variable with a normal prior"):
        find_effects(model, manifold_variables(model, None, None), INTERPRETED)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "observe",
    [
        pytest.param(
            lambda a: pm.OrderedLogistic("y", eta=a, cutpoints=[-1.0, 1.0], observed=CLASS),
            id="ordered",
        ),
        pytest.param(
            lambda a: pm.Categorical(
                "y", p=pm.math.softmax(pt.stack([a, 0.5 * a, 0.0 * a], 1), 1), observed=CLASS
            ),
            id="categorical",
        ),
        pytest.param(
            lambda a: pm.OrderedLogistic(
                "y", eta=a + X * pm.Normal("b"), cutpoints=[-1.0, 1.0], observed=CLASS
            ),
            id="ordered with a covariate",
        ),
        pytest.param(
            lambda a: pm.Potential("y", -0.5 * pt.sum((Y - a) ** 2)), id="potential of all rows"
        ),
    ],
)
def test_likelihoods_of_separate_rows(observe):
    with pm.Model():
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        observe(a[GROUP])
        step = pg.GMC()
    assert "sparse" in repr(step.adaptation)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    "mean",
    [
        pytest.param(lambda a, b: pt.stack([a, b])[0, GROUP], id="row of a stack"),
        pytest.param(lambda a, b: pt.stack([a, b])[::-1][0, GROUP], id="reversed"),
        pytest.param(lambda a, b: (a[:1] + b)[GROUP], id="broadcast"),
    ],
)
def test_unusual_indices_are_constructed(mean):
    with pm.Model():
        a, b = (pm.Normal(name, 0.0, pm.HalfNormal(f"{name}_sd"), shape=7) for name in "ab")
        pm.Normal("y", mean(a, b), 1.0, observed=Y)
        pg.GMC()


def test_precision_of_means_and_scales_is_positive():
    """Rows with a mean and a log scale by group have an indefinite Hessian."""
    with pm.Model() as model:
        a, b = (pm.Normal(name, 0.0, pm.HalfNormal(f"{name}_sd"), shape=7) for name in "ab")
        pm.Normal("y", a[GROUP], pm.math.exp(b[GROUP]), observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    precision = effects.precision(RNG.normal(size=16)).toarray()
    assert np.linalg.eigvalsh(precision).min() > -1e-9 * np.trace(precision)


def test_precision_of_priors_that_are_correlated_or_not():
    covariance = np.array([[2.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 0.5]])
    with pm.Model() as model:
        e = pm.Normal("e", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.MvNormal("b", np.zeros(3), cov=covariance)
        pm.Normal("c", 0.0, [0.5, 2.0])
        pm.Normal("y", e[GROUP], 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    precision = effects.precision(np.linspace(-1.0, 1.0, 13))
    of_b = np.diagonal(np.linalg.inv(covariance))
    np.testing.assert_allclose(precision.diagonal()[-5:], [*of_b, 4.0, 0.25])


@pytest.mark.usefixtures("interpreted")
def test_observations_of_different_lengths():
    """Each observed variable has its own rows; entries of one are not those of the other."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.Normal("y", a[GROUP], 1.0, observed=Y)
        pm.Poisson("n", pm.math.exp(0.1 * a[GROUP[:20]]), observed=np.arange(20) % 3)
        step = pg.GMC(metric="sparse")
    step.adaptation.metric.set_center(np.full(8, 0.1))
    weight = step.adaptation.metric.centering.parameters(np.full(8, 0.1))
    assert np.isfinite(weight).all()
    del model


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("centered", [True, False])
def test_likelihoods_without_second_derivatives_are_not_a_hierarchy(centered, caplog):
    with pm.Model():
        scale = pm.HalfNormal("scale")
        a = pm.Normal("a", 0.0, scale, shape=7) if centered else scale * pm.Normal("a", shape=7)
        pm.VonMises("y", a[GROUP], pm.HalfNormal("kappa", 5.0), observed=Y % np.pi)
        with caplog.at_level("INFO", "pymc"):
            assert "sparse" not in repr(pg.GMC().adaptation)
    assert "no partial centering of a" in caplog.text


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("field", "metric", "is_sparse"),
    [
        (lambda: pm.ICAR("f", W=RING)[GROUP], "auto", False),
        (lambda: pm.ICAR("f", W=RING)[GROUP], "sparse", True),
        (lambda: pm.GaussianRandomWalk("f", 0.5, init_dist=START, shape=7)[GROUP], "auto", False),
        (lambda: pm.GaussianRandomWalk("f", 0.5, init_dist=START, shape=4)[ITEM], "auto", True),
        (lambda: pm.StudentT("f", 4.0, shape=7)[GROUP], "auto", True),
    ],
    ids=["ICAR", "user-specified", "walk", "few entries", "independent"],
)
def test_random_fields_as_large_as_the_effects(field, metric, is_sparse):
    with pm.Model():
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.Normal("y", a[GROUP] + field(), 1.0, observed=Y)
        assert ("sparse" in repr(pg.GMC(metric=metric).adaptation)) == is_sparse


def test_means_of_other_priors_are_no_scales():
    with pm.Model() as model:
        mu, scale = pm.Normal("mu"), pm.HalfNormal("scale")
        a = pm.StudentT("a", 4.0, mu=mu, sigma=scale, shape=7)
        e = pm.Normal("e", 0.0, pm.HalfNormal("e_scale"), shape=4)
        pm.Normal("y", a[GROUP] + e[ITEM], 1.0, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    assert effects.scales_of_others.tolist() == [1]


def test_rows_with_kinks_have_their_expected_information():
    """The squared slope of a Laplace density is its Fisher information, 1 / b²."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.Laplace("y", a[GROUP] + COVARIATES @ pm.Normal("b", shape=3), 0.5, observed=Y)
    effects = find_effects(model, manifold_variables(model, None, None), INTERPRETED)
    design = np.column_stack([np.eye(7)[GROUP], COVARIATES])
    prior = np.repeat([np.exp(-0.6), 1.0], [7, 3])
    expected = 4.0 * design.T @ design + np.diag(prior)
    precision = effects.precision(np.linspace(0.3, 2.0, 11)).toarray()
    np.testing.assert_allclose(precision[1:, 1:], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("interpreted")
def test_kinks_of_a_sum_are_not_a_hierarchy(caplog):
    with pm.Model():
        a = pm.Normal("a", 0.0, pm.HalfNormal("scale"), shape=7)
        pm.Potential("y", -pt.sum(pt.abs(Y - a[GROUP])))
        with caplog.at_level("INFO", "pymc"):
            assert "sparse" not in repr(pg.GMC().adaptation)
    assert "a sum over rows has kinks" in caplog.text
