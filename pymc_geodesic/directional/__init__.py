r"""Directional statistics: summaries, regions, tests and plots of unit vectors and angles.

Means and quantiles of coordinates do not describe points on a circle or a sphere. The functions
of this module take draws of unit vectors, axes, angles, orthonormal frames and proportions.

1. `directional_summary`: mean direction, spread, credible cap and convergence of every variable
   (`simplex_summary` for proportions).
2. `credible_cap`, `directional_hdi`, `directional_hdr`: regions; `to_lonlat` and
   `to_declination_inclination`: coordinates.
3. `plot_sphere`, `plot_rose`, `plot_circular_density`, `plot_ternary`, `plot_direction_trace`,
   `plot_directional_ppc`.
4. Of data: `uniformity_test`, `vmf_residual_test` and, for any distribution of the package,
   `stein_test`.

References
----------
Jupp (2001), Modifications of the Rayleigh and Bingham tests for uniformity of directions;
Prentice (1978), On invariant tests of uniformity for directions and orientations; Xu, Matsuda
(2021), Interpretable Stein goodness-of-fit tests on Riemannian manifolds.

Examples
--------
>>> import arviz as az
>>> import numpy as np
>>> import pymc_geodesic as pg
>>> x = np.random.default_rng(1).normal([9.0, 0.0, 0.0], size=(2, 200, 3))
>>> idata = az.from_dict({"posterior": {"pole": x / np.linalg.norm(x, axis=-1, keepdims=True)}})
>>> pg.directional.mean_direction(idata, "pole")["pole"].values.round(1) + 0.0
array([1., 0., 0.])
"""

from pymc_geodesic.directional.coordinates import (
    from_declination_inclination,
    from_lonlat,
    to_declination_inclination,
    to_lonlat,
)
from pymc_geodesic.directional.density import directional_density
from pymc_geodesic.directional.goodness_of_fit import stein_test
from pymc_geodesic.directional.kinds import direction_variables
from pymc_geodesic.directional.mean_direction import mean_direction
from pymc_geodesic.directional.plot_circular_density import (
    plot_circle_density,
    plot_circular_density,
)
from pymc_geodesic.directional.plot_direction_trace import plot_direction_trace
from pymc_geodesic.directional.plot_directional_ppc import plot_directional_ppc
from pymc_geodesic.directional.plot_rose import plot_rose
from pymc_geodesic.directional.plot_sphere import plot_sphere, plot_sphere_points
from pymc_geodesic.directional.plot_ternary import plot_ternary
from pymc_geodesic.directional.regions import credible_cap, directional_hdi, directional_hdr
from pymc_geodesic.directional.simplex import simplex_summary
from pymc_geodesic.directional.summary import directional_summary
from pymc_geodesic.directional.uniformity import DirectionalTestResult, uniformity_test
from pymc_geodesic.directional.vmf_residuals import VonMisesFisherResidualTest, vmf_residual_test

__all__ = [
    "DirectionalTestResult",
    "VonMisesFisherResidualTest",
    "credible_cap",
    "direction_variables",
    "directional_density",
    "directional_hdi",
    "directional_hdr",
    "directional_summary",
    "from_declination_inclination",
    "from_lonlat",
    "mean_direction",
    "plot_circle_density",
    "plot_circular_density",
    "plot_direction_trace",
    "plot_directional_ppc",
    "plot_rose",
    "plot_sphere",
    "plot_sphere_points",
    "plot_ternary",
    "simplex_summary",
    "stein_test",
    "to_declination_inclination",
    "to_lonlat",
    "uniformity_test",
    "vmf_residual_test",
]
