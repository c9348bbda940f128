"""Small models with exactly known posterior means and covariances.

Each kind of variable has its own data, N rows of little information, so that prior, Jacobian and
likelihood all show in the posterior, and so that the coordinates of all samplers have about the
same scale. Several kinds in one model are independent in the posterior: one run serves them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import sparse

import pymc_geodesic as pg

N_ROWS = 120
KAPPA = 0.8
EXPOSURE = 0.08
SHAPE = 0.25
CONCENTRATION = np.array([1.5, 1.0, 0.7])
NOISE = {"vector": 2.5, "pair": 2.2, "interval": 1.1, "lognormal": 2.2, "frame": 2.4, "child": 2.2}
PRIOR_SD = 1.5
CHILD_SD = 0.5


@dataclass(frozen=True)
class Exact:
    """Mean and covariance of a variable, raveled."""

    mean: np.ndarray
    covariance: np.ndarray


Rows = Mapping[str, Any]
"""Data of a model: arrays, containers or minibatches."""


class Kind:
    """A kind of variable with its data, part of a model, and posterior.

    Attributes
    ----------
    names : tuple of str
        Variables.
    sparse : tuple of str
        Data that may be sparse matrices.
    parent : str
        Variable that another step method samples; empty where there is none.
    """

    names: tuple[str, ...]
    parent: str = ""
    sparse: tuple[str, ...] = ()

    def data(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def add(self, rows: Rows, observed: Mapping[str, Any]) -> None:
        """Add variables and likelihood to the model of the context."""
        raise NotImplementedError

    def exact(self, data: Mapping[str, np.ndarray]) -> dict[str, Exact]:
        raise NotImplementedError


def by_quadrature(log_density: Any, grid: np.ndarray) -> Exact:
    """Moments of a density of one number on an even grid."""
    logarithm = log_density(grid)
    weight = np.exp(logarithm - logarithm.max())
    weight /= weight.sum()
    assert max(weight[0], weight[-1]) < 1e-12 or np.all(np.isfinite(logarithm))
    mean = weight @ grid
    return Exact(np.array([mean]), np.array([[weight @ (grid - mean) ** 2]]))


def regression(design: np.ndarray, y: np.ndarray, noise: float) -> Exact:
    """Coefficients with the prior N(0, PRIOR_SD²) in the model y ~ N(design @ w, noise²)."""
    precision = design.T @ design / noise**2 + np.eye(design.shape[1]) / PRIOR_SD**2
    covariance = np.linalg.inv(precision)
    return Exact(covariance @ design.T @ y / noise**2, covariance)


class Vector(Kind):
    """Regression coefficients with ``dims``."""

    names = ("w",)
    sparse = ("X",)

    def data(self, rng):
        X = rng.normal(size=(N_ROWS, 3)) @ [[1.0, 0.4, 0.0], [0.0, 0.9, 0.3], [0.0, 0.0, 0.9]]
        X[rng.random(X.shape) < 0.3] = 0.0
        return {"X": X, "y": rng.normal(X @ [1.0, -0.5, 0.3], NOISE["vector"])}

    def add(self, rows, observed):
        w = pm.Normal("w", 0.0, PRIOR_SD, dims="feature")
        pm.Normal("y_obs", rows["X"] @ w, NOISE["vector"], observed=rows["y"], **observed)

    def exact(self, data):
        return {"w": regression(data["X"], data["y"], NOISE["vector"])}


class Pair(Kind):
    """Two scalars that depend on each other."""

    names = ("a", "b")

    def data(self, rng):
        x = rng.normal(0.6, 0.8, N_ROWS)
        return {"x": x, "t": rng.normal(0.5 - 0.7 * x, NOISE["pair"])}

    def add(self, rows, observed):
        a = pm.Normal("a", 0.0, PRIOR_SD)
        b = pm.Normal("b", 0.0, PRIOR_SD)
        pm.Normal("t_obs", a + b * rows["x"], NOISE["pair"], observed=rows["t"], **observed)

    def exact(self, data):
        design = np.column_stack([np.ones(N_ROWS), data["x"]])
        both = regression(design, data["t"], NOISE["pair"])
        return {"a b": both}


class Positive(Kind):
    """A scale with a half-normal prior, of gamma data."""

    names = ("s",)

    def data(self, rng):
        return {"z": np.maximum(rng.gamma(SHAPE, 2.0, N_ROWS), 1e-8)}

    def add(self, rows, observed):
        s = pm.HalfNormal("s", 2.0)
        pm.Gamma("z_obs", SHAPE, 1.0 / s, observed=rows["z"], **observed)

    def exact(self, data):
        total = data["z"].sum()

        def log_density(s):
            return -(s**2) / 8.0 - N_ROWS * SHAPE * np.log(s) - total / s

        return {"s": by_quadrature(log_density, np.linspace(0.01, 12.0, 200_001))}


class Interval(Kind):
    """A bounded variable."""

    names = ("u",)

    def data(self, rng):
        return {"h": rng.normal(0.65, NOISE["interval"], N_ROWS)}

    def add(self, rows, observed):
        u = pm.Uniform("u", -1.0, 1.0)
        pm.Normal("h_obs", u, NOISE["interval"], observed=rows["h"], **observed)

    def exact(self, data):
        def log_density(u):
            return -0.5 * N_ROWS * (u - data["h"].mean()) ** 2 / NOISE["interval"] ** 2

        middles = (np.arange(200_000) + 0.5) / 100_000 - 1.0
        return {"u": by_quadrature(log_density, middles)}


class LogNormal(Kind):
    """The median of log-normal data."""

    names = ("m",)

    def data(self, rng):
        return {"q": np.exp(rng.normal(0.4, NOISE["lognormal"], N_ROWS))}

    def add(self, rows, observed):
        m = pm.LogNormal("m", 0.0, 1.0)
        pm.LogNormal("q_obs", pt.log(m), NOISE["lognormal"], observed=rows["q"], **observed)

    def exact(self, data):
        variance = 1.0 / (1.0 + N_ROWS / NOISE["lognormal"] ** 2)
        centre = variance * np.log(data["q"]).sum() / NOISE["lognormal"] ** 2
        mean = np.exp(centre + 0.5 * variance)
        return {"m": Exact(np.array([mean]), np.array([[mean**2 * np.expm1(variance)]]))}


class Rate(Kind):
    """The rate of Poisson counts."""

    names = ("r",)

    def data(self, rng):
        return {"c": rng.poisson(2.5 * EXPOSURE, N_ROWS).astype("int32")}

    def add(self, rows, observed):
        r = pm.Gamma("r", 2.0, 1.0)
        pm.Poisson("c_obs", EXPOSURE * r, observed=rows["c"], **observed)

    def exact(self, data):
        shape, rate = 2.0 + data["c"].sum(), 1.0 + N_ROWS * EXPOSURE
        return {"r": Exact(np.array([shape / rate]), np.array([[shape / rate**2]]))}


class UnitVector(Kind):
    """The mean direction of von Mises–Fisher data: conjugate with a uniform prior."""

    names = ("d",)
    sparse = ("V",)

    def data(self, rng):
        centre = np.array([0.0, 0.6, 0.8])
        V = rng.normal(size=(40 * N_ROWS, 3))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        kept = rng.random(len(V)) < np.exp(KAPPA * (V @ centre - 1.0))
        return {"V": V[kept][:N_ROWS]}

    def add(self, rows, observed):
        d = pg.UniformSphere("d", shape=3)
        if isinstance(rows["V"], pg.SparseData):
            pm.Potential("V_term", KAPPA * (rows["V"] @ d))
        else:
            pg.VonMisesFisher("V_obs", d, KAPPA, observed=rows["V"], **observed)

    def exact(self, data):
        total = KAPPA * data["V"].sum(axis=0)
        length = np.linalg.norm(total)
        m, resultant = total / length, 1.0 / np.tanh(length) - 1.0 / length
        second = resultant / length * np.eye(3)
        second += (1.0 - 3.0 * resultant / length) * np.outer(m, m)
        mean = resultant * m
        return {"d": Exact(mean, second - np.outer(mean, mean))}


class Probabilities(Kind):
    """Probabilities of three outcomes, seen in a quarter of the rows."""

    names = ("p",)
    sparse = ("counts",)

    def data(self, rng):
        counts = rng.multinomial(1, [0.55, 0.3, 0.15], N_ROWS).astype("int32")
        counts[rng.random(N_ROWS) < 0.75] = 0
        return {"counts": counts, "n": counts.sum(axis=1, dtype="int32")}

    def add(self, rows, observed):
        p = pm.Dirichlet("p", CONCENTRATION)
        if isinstance(rows["counts"], pg.SparseData):
            pm.Potential("counts_term", rows["counts"] @ pt.log(p))
        else:
            pm.Multinomial("counts_obs", rows["n"], p, observed=rows["counts"], **observed)

    def exact(self, data):
        alpha = CONCENTRATION + data["counts"].sum(axis=0)
        total = alpha.sum()
        mean = alpha / total
        return {"p": Exact(mean, (np.diag(mean) - np.outer(mean, mean)) / (total + 1.0))}


class Frame(Kind):
    """Two orthonormal vectors in three dimensions, of matrices with normal noise.

    The posterior ∝ exp(tr(AᵀX)), A = ΣY / σ². The cross product completes X to a rotation, over
    which Euler angles integrate: trapezoids for two of them, Gauss–Legendre for the cosine.
    """

    names = ("F",)

    def data(self, rng):
        truth = np.linalg.qr(rng.normal(size=(3, 2)))[0]
        return {"Y": rng.normal(truth, NOISE["frame"], size=(N_ROWS, 3, 2))}

    def add(self, rows, observed):
        F = pg.UniformStiefel("F", shape=(3, 2))
        pm.Normal("Y_obs", F, NOISE["frame"], observed=rows["Y"], **observed)

    def exact(self, data):
        A = data["Y"].sum(axis=0) / NOISE["frame"] ** 2
        n = 96
        cosine, weight = np.polynomial.legendre.leggauss(n)
        angle = 2.0 * np.pi * np.arange(n) / n
        first, tilt, last = np.meshgrid(angle, np.arccos(cosine), angle, indexing="ij")
        ca, sa, cb, sb = np.cos(first), np.sin(first), np.cos(tilt), np.sin(tilt)
        cc, sc = np.cos(last), np.sin(last)
        columns = np.stack(
            [
                ca * cb * cc - sa * sc,
                -ca * cb * sc - sa * cc,
                sa * cb * cc + ca * sc,
                -sa * cb * sc + ca * cc,
                -sb * cc,
                sb * sc,
            ]
        ).reshape(6, -1)
        logarithm = A.ravel() @ columns
        density = np.exp(logarithm - logarithm.max())
        density *= np.broadcast_to(weight[None, :, None], first.shape).ravel()
        density /= density.sum()
        mean = columns @ density
        centred = columns - mean[:, None]
        return {"F": Exact(mean, (centred * density) @ centred.T)}


class Child(Kind):
    """The mean of data, and the mean of its prior, which another step method samples."""

    names = ("child",)
    parent = "parent"

    def data(self, rng):
        return {"g": rng.normal(0.8, NOISE["child"], N_ROWS)}

    def add(self, rows, observed):
        parent = pm.Normal("parent", 0.0, 1.0)
        child = pm.Normal("child", parent, CHILD_SD)
        pm.Normal("g_obs", child, NOISE["child"], observed=rows["g"], **observed)

    def exact(self, data):
        information = N_ROWS / NOISE["child"] ** 2
        precision = np.array(
            [
                [1.0 + CHILD_SD**-2.0, -(CHILD_SD**-2.0)],
                [-(CHILD_SD**-2.0), CHILD_SD**-2.0 + information],
            ]
        )
        covariance = np.linalg.inv(precision)
        return {
            "parent child": Exact(covariance @ [0.0, information * data["g"].mean()], covariance)
        }


class Sibling(Pair):
    """The intercept of a regression, whose slope another step method samples."""

    names = ("a",)
    parent = "b"


class RateOfRate(Kind):
    """A Poisson rate, and the rate of its prior, which another step method samples."""

    names = ("rate",)
    parent = "scale"

    def data(self, rng):
        return {"k": rng.poisson(1.5 * EXPOSURE, N_ROWS).astype("int32")}

    def add(self, rows, observed):
        scale = pm.LogNormal("scale", 0.0, 0.5)
        rate = pm.Gamma("rate", 3.0, scale)
        pm.Poisson("k_obs", EXPOSURE * rate, observed=rows["k"], **observed)

    def exact(self, data):
        total, exposure = data["k"].sum(), N_ROWS * EXPOSURE
        # rate given scale is Gamma(3 + total, scale + exposure); scale by quadrature of its log
        log_scale = np.linspace(-5.0, 5.0, 200_001)
        scale = np.exp(log_scale)
        logarithm = -2.0 * log_scale**2 + 3.0 * log_scale
        logarithm -= (3.0 + total) * np.log(scale + exposure)
        weight = np.exp(logarithm - logarithm.max())
        weight /= weight.sum()
        given = (3.0 + total) / (scale + exposure)
        both = np.stack([scale, given])
        mean = both @ weight
        centred = both - mean[:, None]
        covariance = (centred * weight) @ centred.T
        covariance[1, 1] += weight @ (given / (scale + exposure))
        return {"scale rate": Exact(mean, covariance)}


FLAT: tuple[Kind, ...] = (Vector(), Pair(), Positive(), Interval(), LogNormal(), Rate())
COMPACT: tuple[Kind, ...] = (UnitVector(), Probabilities(), Frame())


def data_of(kinds: Sequence[Kind]) -> dict[str, np.ndarray]:
    """All data of some kinds, each drawn by itself."""
    data: dict[str, np.ndarray] = {}
    for kind in kinds:
        data |= kind.data(np.random.default_rng(1))
    return data


def placeholders(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Placeholders of data that are not in the model: a row of zeros or a unit vector."""
    rows = {name: np.zeros_like(array[:1]) for name, array in data.items()}
    if "V" in rows:
        rows["V"][0, 0] = 1.0
    return rows


def model_of(
    kinds: Sequence[Kind], rows: Mapping[str, np.ndarray], *, minibatch: int | None = None,
    as_sparse: bool = False,
) -> pm.Model:  # fmt: skip
    """Model of some kinds with these rows in containers, in `pymc.Minibatch` if a size is given."""
    may_be_sparse = {name for kind in kinds for name in kind.sparse} if as_sparse else set()
    with pm.Model(coords={"feature": ["first", "second", "third"]}) as model:
        if minibatch is None:
            tensors: dict[str, Any] = {
                name: pg.SparseData(name, sparse.csr_array(np.asarray(array, dtype=float)))
                if name in may_be_sparse
                else pm.Data(name, array)
                for name, array in rows.items()
            }
            observed: dict[str, Any] = {}
        else:
            tensors = dict(
                zip(rows, pm.Minibatch(*rows.values(), batch_size=minibatch), strict=True)
                if len(rows) > 1
                else [
                    (name, pm.Minibatch(array, batch_size=minibatch))
                    for name, array in rows.items()
                ]
            )
            observed = {"total_size": N_ROWS}
        for kind in kinds:
            kind.add(tensors, observed)
    return model
