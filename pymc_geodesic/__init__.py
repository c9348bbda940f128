"""Geodesic and stochastic-gradient Monte Carlo for PyMC.

Every name is imported when it is first used, so that importing the package itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymc_geodesic import datasets, diagnostics, manifolds, models, transforms
    from pymc_geodesic.distributions import (
        Hinge,
        MatrixVonMisesFisher,
        MulticlassHinge,
        SphericalAdmixture,
        UniformSphere,
        UniformStiefel,
        VonMisesFisher,
    )
    from pymc_geodesic.schedules import PolynomialDecay
    from pymc_geodesic.sparse import SparseData
    from pymc_geodesic.steps import (
        GMC,
        SCIR,
        SGGMC,
        SGLD,
        SGRLD,
        SSGLD,
        SSGNHT,
        SubgradientHMC,
        gSGNHT,
    )

__all__ = [
    "GMC",
    "SCIR",
    "SGGMC",
    "SGLD",
    "SGRLD",
    "SSGLD",
    "SSGNHT",
    "Hinge",
    "MatrixVonMisesFisher",
    "MulticlassHinge",
    "PolynomialDecay",
    "SparseData",
    "SphericalAdmixture",
    "SubgradientHMC",
    "UniformSphere",
    "UniformStiefel",
    "VonMisesFisher",
    "datasets",
    "diagnostics",
    "gSGNHT",
    "manifolds",
    "models",
    "transforms",
]

_HOMES = {
    "GMC": "steps",
    "SCIR": "steps",
    "SGGMC": "steps",
    "SGLD": "steps",
    "SGRLD": "steps",
    "SSGLD": "steps",
    "SSGNHT": "steps",
    "Hinge": "distributions",
    "MatrixVonMisesFisher": "distributions",
    "MulticlassHinge": "distributions",
    "PolynomialDecay": "schedules",
    "SparseData": "sparse",
    "SphericalAdmixture": "distributions",
    "SubgradientHMC": "steps",
    "UniformSphere": "distributions",
    "UniformStiefel": "distributions",
    "VonMisesFisher": "distributions",
    "gSGNHT": "steps",
}
"""Module of every public name that is not a module itself."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    value = getattr(module, name) if name in _HOMES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
