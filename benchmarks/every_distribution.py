"""Models that contain each distribution twice: free, and observed with inferred parameters.

Every case has a concentration ``k`` with a prior; locations and axes have uniform priors. A
mixture of two concentrations, with discrete labels, is built from the same cases.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_geodesic as pg
from pymc_geodesic.transforms import square_root_simplex, stiefel, unit_vector

N_ROWS = 4
"""Observed rows."""


@dataclass(frozen=True)
class Case:
    """A distribution and the priors of its parameters.

    Attributes
    ----------
    priors : callable
        Add the other variables to the model and return them.
    add : callable
        Add a variable: function of its name, the concentration, shape () or (rows,), the other
        variables and keyword arguments of the distribution.
    event : tuple of int
        Shape of one draw.
    has_labels : bool
        Whether the draws are labels, which are only observed.
    has_parameters : bool
        Whether the distribution has parameters to infer.
    is_of_rows : bool
        Whether there is one set of parameters for each row.
    """

    priors: Callable[[], Any]
    add: Callable[..., Any]
    event: tuple[int, ...]
    has_labels: bool = False
    has_parameters: bool = True
    is_of_rows: bool = False


def _around_direction(distribution: type, of_k: Callable[[Any], dict[str, Any]]) -> Case:
    """Return the case of a distribution with a direction as its location."""
    return Case(
        lambda: pg.UniformSphere("mu", shape=3),
        lambda name, k, mu, **kwargs: distribution(name, mu=mu, **of_k(k), **kwargs),
        (3,),
    )


def _around_angle(distribution: type, of_k: Callable[[Any], dict[str, Any]]) -> Case:
    return Case(
        lambda: pm.Normal("mu"),
        lambda name, k, mu, **kwargs: distribution(name, mu=mu, **of_k(k), **kwargs),
        (),
    )


def _matrix(k: Any, diagonal: tuple[float, ...], axes: Any) -> Any:
    """Return the symmetric matrix of these axes with eigenvalues proportional to k."""
    return k[..., None, None] * (axes @ np.diag(diagonal) @ axes.T)


def _axes() -> Any:
    return pg.UniformStiefel("axes", shape=(3, 3))


def _by_axes(add: Callable[..., Any], event: tuple[int, ...]) -> Case:
    return Case(_axes, add, event)


SCORES = np.random.default_rng(1).normal(size=(N_ROWS, 3))

CASES: dict[str, Case] = {
    "UniformSphere": Case(
        lambda: None,
        lambda name, k, _, shape=(3,), **kwargs: pg.UniformSphere(name, shape=shape, **kwargs),
        (3,),
        has_parameters=False,
    ),
    "VonMisesFisher": _around_direction(pg.VonMisesFisher, lambda k: {"kappa": k}),
    "PowerSpherical": _around_direction(pg.PowerSpherical, lambda k: {"kappa": k}),
    "SphericalCauchy": _around_direction(pg.SphericalCauchy, lambda k: {"rho": k / (1.0 + k)}),
    "Watson": _around_direction(pg.Watson, lambda k: {"kappa": k}),
    "Bingham": _by_axes(
        lambda name, k, axes, **kwargs: pg.Bingham(
            name, A=_matrix(k, (1.0, 0.0, -1.0), axes), **kwargs
        ),
        (3,),
    ),
    "Kent": _by_axes(
        lambda name, k, axes, **kwargs: pg.Kent(name, axes=axes, kappa=3.0 * k, beta=k, **kwargs),
        (3,),
    ),
    "FisherBingham": _by_axes(
        lambda name, k, axes, **kwargs: pg.FisherBingham(
            name, mu=axes[:, 0], kappa=k, A=_matrix(k, (1.0, 0.0, -1.0), axes), **kwargs
        ),
        (3,),
    ),
    "AngularCentralGaussian": _by_axes(
        lambda name, k, axes, **kwargs: pg.AngularCentralGaussian(
            name, cov=np.eye(3) + _matrix(k, (2.0, 1.0, 0.0), axes), **kwargs
        ),
        (3,),
    ),
    "ESAG": Case(
        lambda: (pg.UniformSphere("mu", shape=3), pm.Normal("gamma", 0.0, 0.5, shape=2)),
        lambda name, k, both, **kwargs: pg.ESAG(
            name, mu=k[..., None] * both[0], gamma=both[1], **kwargs
        ),
        (3,),
    ),
    "ProjectedNormal": Case(
        _axes,
        lambda name, k, axes, **kwargs: pg.ProjectedNormal(
            name,
            mu=k[..., None] * axes[:, 0],
            cov=np.eye(3) + _matrix(k, (0.0, 1.0, 0.0), axes),
            **kwargs,
        ),
        (3,),
    ),
    "PeriodicVonMises": _around_angle(pg.PeriodicVonMises, lambda k: {"kappa": k}),
    "WrappedCauchy": _around_angle(pg.WrappedCauchy, lambda k: {"rho": k / (1.0 + k)}),
    "SineBivariateVonMises": Case(
        lambda: (pm.Normal("mu", shape=2), pm.Normal("lam")),
        lambda name, k, both, **kwargs: pg.SineBivariateVonMises(
            name, mu=both[0], kappa=k[..., None] * np.array([1.0, 2.0]), lam=both[1], **kwargs
        ),
        (2,),
    ),
    "UniformStiefel": Case(
        lambda: None,
        lambda name, k, _, shape=(3, 2), **kwargs: pg.UniformStiefel(name, shape=shape, **kwargs),
        (3, 2),
        has_parameters=False,
    ),
    "MatrixVonMisesFisher": _by_axes(
        lambda name, k, axes, **kwargs: pg.MatrixVonMisesFisher(
            name, F=k[..., None, None] * axes[:, :2] * np.array([2.0, 1.0]), **kwargs
        ),
        (3, 2),
    ),
    "MatrixBingham": _by_axes(
        lambda name, k, axes, **kwargs: pg.MatrixBingham(
            name, A=_matrix(k, (1.0, 0.0, -1.0), axes), b=np.array([2.0, 1.0]), **kwargs
        ),
        (3, 2),
    ),
    "MatrixAngularCentralGaussian": _by_axes(
        lambda name, k, axes, shape=(3, 2), **kwargs: pg.MatrixAngularCentralGaussian(
            name, cov=np.eye(3) + _matrix(k, (2.0, 1.0, 0.0), axes), shape=shape, **kwargs
        ),
        (3, 2),
    ),
    "Hinge": Case(
        lambda: pm.Normal("w", shape=3),
        lambda name, k, w, **kwargs: pg.Hinge(name, score=k * (SCORES @ w), **kwargs),
        (),
        has_labels=True,
    ),
    "MulticlassHinge": Case(
        lambda: pm.Normal("w", shape=(3, 3)),
        lambda name, k, w, **kwargs: pg.MulticlassHinge(
            name, scores=k[..., None] * (SCORES @ w), **kwargs
        ),
        (),
        has_labels=True,
    ),
    "SphericalAdmixture": Case(
        lambda: (
            pm.Dirichlet("theta", np.ones(2), shape=(N_ROWS, 2)),
            pg.UniformSphere("beta", shape=(2, 3)),
        ),
        lambda name, k, both, **kwargs: pg.SphericalAdmixture(
            name, theta=both[0], beta=both[1], kappa=k, **kwargs
        ),
        (3,),
        is_of_rows=True,
    ),
}
"""Cases by the name of the distribution."""


def _transformed(name: str, base: str, transform: Any) -> Case:
    """Return the case of a transform that is given explicitly."""
    case = CASES[base]

    def add(variable: str, k: Any, _: Any, **kwargs: Any) -> Any:
        own = {} if "observed" in kwargs else {"default_transform": transform}
        return case.add(variable, k, None, **own, **kwargs)

    return Case(case.priors, add, case.event, has_parameters=False)


TRANSFORMS: dict[str, Case] = {
    "unit_vector": _transformed("unit_vector", "UniformSphere", unit_vector),
    "stiefel": _transformed("stiefel", "UniformStiefel", stiefel),
    "square_root_simplex": Case(
        lambda: None,
        lambda name, k, _, **kwargs: pm.Dirichlet(
            name,
            k[..., None] * np.ones(3),
            **({} if "observed" in kwargs else {"default_transform": square_root_simplex}),
            **kwargs,
        ),
        (3,),
    ),
}
"""Cases by the name of the transform."""

ROWS = CASES | TRANSFORMS


def _shape(name: str) -> tuple[int, ...]:
    return (N_ROWS, *ROWS[name].event)


@cache
def data(name: str) -> np.ndarray:
    """Return draws of a distribution with parameters from their priors."""
    case = ROWS[name]
    with pm.Model():
        k = pt.as_tensor(2.0)
        y = case.add("y", k, case.priors(), shape=_shape(name))
    return pm.draw(y, random_seed=1, mode="FAST_COMPILE")


def model_of(name: str, observed: bool = True) -> pm.Model:
    """Return a model with concentration ``k`` and variables ``x`` and ``y`` of a distribution.

    Parameters
    ----------
    name : str
        Key of `ROWS`.
    observed : bool
        Whether ``y`` is observed. ``x`` is always free; there is none of labels.
    """
    case = ROWS[name]
    kwargs = {"observed": data(name)} if observed else {}
    with pm.Model() as model:
        k = pm.Gamma("k", 4.0, 2.0)
        others = case.priors()
        if not case.has_labels:
            case.add("x", k, others, **({"shape": _shape(name)} if case.is_of_rows else {}))
        case.add("y", k, others, shape=_shape(name), **kwargs)
    return model


def mixture_of(name: str) -> pm.Model:
    """Return a model where discrete labels ``z`` choose between two concentrations of the rows."""
    case, observed = ROWS[name], data(name)
    with pm.Model() as model:
        k = pm.Gamma("k", 4.0, 2.0, shape=2)
        others = case.priors()
        z = pm.Bernoulli("z", 0.4, shape=N_ROWS)
        case.add(
            "y", pt.where(pt.eq(z, 1), k[1], k[0]), others, shape=_shape(name), observed=observed
        )
    return model
