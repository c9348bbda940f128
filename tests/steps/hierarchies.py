"""Hierarchical models with a few rows, and their data."""

import numpy as np
import pymc as pm

RNG = np.random.default_rng(3)
N_ROWS = 60
GROUP = np.concatenate([[5], RNG.integers(0, 5, N_ROWS - 1)])  # one row in group 5, none in 6
ITEM = RNG.integers(0, 4, N_ROWS)
X = RNG.normal(size=N_ROWS)
Y = 0.5 + 0.3 * X + RNG.normal(size=7)[GROUP] + RNG.normal(size=N_ROWS)
CLASS = np.arange(N_ROWS) % 3
COVARIATES = RNG.normal(size=(N_ROWS, 3))


def crossed(*, centered):
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        scale, item_scale = pm.HalfNormal("scale"), pm.HalfNormal("item_scale")
        if centered:
            a = pm.Normal("a", b[0], scale, shape=7)[GROUP]
        else:
            a = b[0] + (pm.Normal("a", shape=7) * scale)[GROUP]
        c = pm.Normal("c", 0.0, item_scale, shape=4)
        pm.Normal("y", a + b[1] * X + c[ITEM], pm.HalfNormal("sigma"), observed=Y)
    return model


def nested():
    above = np.array([0, 0, 1, 1, 2, 2, 2])
    with pm.Model() as model:
        school = pm.Normal("school", pm.Normal("b"), pm.Exponential("between", 1.0), shape=3)
        room = pm.Normal("room", school[above], pm.HalfCauchy("within", 1.0), shape=7)
        pm.Poisson("y", pm.math.exp(0.3 * room[GROUP]), observed=np.abs(Y).astype(int))
    return model


def data_with_a_nameless_axis():
    with pm.Model(coords={"row": range(N_ROWS), "group": range(7)}) as model:
        x = pm.Data("x", np.column_stack([X, X**2]), dims=("row", None))
        z = pm.Normal("z", dims="group")
        mean = x @ pm.Normal("b", shape=2) + (pm.HalfNormal("scale") * z)[GROUP]
        pm.Normal("y", mean, 1.0, observed=Y, dims="row")
    return model


def cholesky(n=2):
    return pm.LKJCholeskyCov("chol", n=n, eta=2.0, sd_dist=pm.Gamma.dist(6.0, 6.0, shape=n))[0]


def slopes():
    with pm.Model() as model:
        chol = cholesky()
        s = pm.MvNormal("s", pm.Normal("b", shape=2), chol=chol, shape=(7, 2))
        pm.Bernoulli("y", logit_p=s[GROUP, 0] + s[GROUP][:, 1] * X, observed=Y > 0.5)
    return model


def slopes_of_offsets():
    with pm.Model() as model:
        s = pm.Normal("b", shape=2) + pm.Normal("z", shape=(7, 2)) @ cholesky().T
        pm.Bernoulli("y", logit_p=s[GROUP, 0] + s[GROUP][:, 1] * X, observed=Y > 0.5)
    return model


def columns_of_offsets():
    """Three correlated effects, with groups along the last axis."""
    with pm.Model(coords={"effect": range(3), "group": range(7)}) as model:
        z = pm.Normal("z", dims=("effect", "group"))
        item = pm.Gamma("scales", 6.0, 6.0, shape=(2, 1)) * pm.Normal("item", shape=(2, 4))
        s = pm.Deterministic("s", pm.math.dot(cholesky(3), z).T, dims=("group", "effect"))
        mean = s[GROUP, 0] + s[GROUP, 1] * X + s[GROUP, 2] * np.cos(np.arange(N_ROWS))
        mean += item[0, ITEM] + item[1][ITEM] * X
        pm.Normal("y", mean, 0.3, observed=Y)
    return model


def precision():
    with pm.Model() as model:
        tau = pm.Gamma("tau", 2.0, 2.0)
        e = pm.Normal("e", 0.0, tau=tau, shape=(7, 2))
        pm.StudentT("y", 4.0, mu=e[:, 0][GROUP] + X * e[:, 1][GROUP], sigma=1.0, observed=Y)
    return model


def sums_to_zero():
    """Next to sparse effects, and as the parent of nested ones."""
    with pm.Model(coords={"item": range(4)}) as model:
        a = pm.HalfNormal("scale") * pm.ZeroSumNormal("a", shape=3)
        c = pm.ZeroSumNormal("c", pm.HalfNormal("item_scale"), dims="item")
        e = pm.Normal("e", 0.0, pm.HalfNormal("within"), shape=7)
        room = pm.Normal("room", c[np.arange(6) % 4], 0.5, shape=6)
        mean = pm.Normal("b") + X * room[np.arange(N_ROWS) % 6] + a[CLASS] + c[ITEM] + e[GROUP]
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y)
    return model


def only_sums_to_zero():
    with pm.Model() as model:
        a = pm.ZeroSumNormal("a", pm.HalfNormal("scale"), shape=7)
        pm.Poisson("y", pm.math.exp(0.3 * a[GROUP]), observed=np.abs(Y).astype(int))
    return model


def interactions():
    """Effects of pairs of groups, centered with scales of their own and non-centered."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", shape=4)
        a = pm.Normal("a", 0.0, pm.HalfNormal("a_scale"), shape=7)
        e = pm.Normal("e", a[:, None] + pm.Normal("b", shape=4), scale, shape=(7, 4))
        d = pm.Gamma("d_scale", 6.0, 6.0) * pm.Normal("d", shape=(3, 4))
        pm.Bernoulli("y", logit_p=e[GROUP, ITEM] + d[CLASS, ITEM], observed=Y > 0.5)
    return model


def coefficients():
    """Coefficients with scales of their own, of rows and of the prior mean of effects."""
    with pm.Model() as model:
        local = pm.Gamma("local", 6.0, 6.0, shape=3)
        a = pm.Normal("a", 0.0, pm.HalfNormal("tau") * local, shape=3)
        e = pm.Normal("e", COVARIATES[:7] @ a, pm.HalfNormal("scale"), shape=7)
        b = pm.Normal("b", pm.Normal("b_mean"), pm.Exponential("b_scale", 1.0), shape=3)
        mean = e[GROUP] + COVARIATES @ b
        pm.Poisson("y", pm.math.exp(0.3 * mean), observed=np.abs(Y).astype(int))
    return model


def coefficients_of_offsets():
    """The same in non-centered form, without group effects."""
    with pm.Model() as model:
        local = pm.Gamma("local", 6.0, 6.0, shape=(3, 1))
        b = pm.HalfNormal("tau") * local * pm.Normal("b", shape=(3, 2))
        mean = pm.Normal("mean") + COVARIATES @ b[:, 0] + X * (COVARIATES @ b[:, 1])
        pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=Y)
    return model


def scales_of_effects():
    """Log scales of offsets that are effects themselves."""
    with pm.Model() as model:
        log_scale = pm.Normal("log_scale", 0.0, pm.HalfNormal("tau"), shape=3)
        b = pm.math.exp(log_scale) * pm.Normal("b", shape=3)
        e = pm.math.exp(0.3 * log_scale.sum()) * pm.Normal("e", shape=7)
        pm.Normal("y", COVARIATES @ b + e[GROUP], 1.0, observed=Y)
    return model


def scales_of_groups():
    """Offsets with a scale for each class of groups, before and after the index."""
    with pm.Model() as model:
        kind = np.arange(7) % 3
        scale = pm.Gamma("scale", 6.0, 6.0, shape=3)[kind]
        e = pm.HalfNormal("tau") * scale * pm.Normal("e", shape=7)
        d = pm.Normal("d", shape=4)[ITEM] * pm.Gamma("own", 6.0, 6.0, shape=4)[ITEM]
        pair = pm.Gamma("by_item", 6.0, 6.0, shape=4) * pm.Normal("pair", shape=(3, 4))
        mean = pm.Normal("b") + e[GROUP] + d * X + pair[CLASS, ITEM]
        pm.Normal("y", mean, 1.0, observed=Y)
    return model


MODELS = {
    "crossed": lambda: crossed(centered=True),
    "not centered": lambda: crossed(centered=False),
    "nested": nested,
    "slopes": slopes,
    "slopes of offsets": slopes_of_offsets,
    "columns of offsets": columns_of_offsets,
    "nameless axis": data_with_a_nameless_axis,
    "interactions": interactions,
    "precision": precision,
    "sums to zero": sums_to_zero,
    "only sums to zero": only_sums_to_zero,
    "coefficients": coefficients,
    "coefficients of offsets": coefficients_of_offsets,
    "scales of effects": scales_of_effects,
    "scales of groups": scales_of_groups,
}
