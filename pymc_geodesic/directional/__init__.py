r"""Directional statistics: summaries, regions, tests and plots of directions, axes and angles.

Problem: means, quantiles and R-hat of coordinates are misleading for points on a circle or a
sphere. The functions of this module take the draws of `pymc.sample` and find unit vectors,
orthonormal frames and proportions by their values; angles are named with ``angles=``. Data are
summarized and plotted like draws, with ``group="observed_data"``.

1. `summary`: mean direction, dispersion, credible cap, highest-density region and convergence of
   every direction. `simplex_summary`: the same for proportions.
2. `plot_sphere`, `plot_rose`, `plot_circular_density`, `plot_ternary`: draws or data;
   `plot_trace`: convergence; `plot_ppc_dist`: predictive check.
3. `mean_direction`, `credible_cap`, `hdr`, `hdi`: means and regions for further computation;
   `from_lonlat`, `to_declination_inclination`: coordinates.
4. `uniformity_test`, `vmf_residual_test`, `stein_test`: tests of data, the last for every
   distribution of the package on a sphere or on frames.

The distributions themselves, such as `pymc_geodesic.VonMisesFisher`, are in the main namespace.

References
----------
Mardia, Jupp (2000), Directional statistics; Hyndman (1996), Computing and graphing highest density
regions; Hall, Watson, Cabrera (1987), Kernel density estimation with spherical data; Jupp (2001),
Modifications of the Rayleigh and Bingham tests for uniformity of directions; Prentice (1978), On
invariant tests of uniformity for directions and orientations; Fisher, Best (1984),
Goodness-of-fit tests for Fisher's distribution on the sphere; Xu, Matsuda (2021), Interpretable
Stein goodness-of-fit tests on Riemannian manifolds.

Examples
--------
>>> import arviz as az
>>> import numpy as np
>>> import pymc_geodesic as pg
>>> x = np.random.default_rng(1).normal([9.0, 0.0, 9.0], size=(2, 200, 3))
>>> idata = az.from_dict({"posterior": {"pole": x / np.linalg.norm(x, axis=-1, keepdims=True)}})
>>> pg.directional.summary(idata)[["lon", "lat", "cap89_radius"]].round()
      lon   lat  cap89_radius
pole  0.0  44.0          10.0
"""

from pymc_geodesic.directional.compositions import plot_ternary, simplex_summary
from pymc_geodesic.directional.coordinates import (
    from_declination_inclination,
    from_lonlat,
    to_declination_inclination,
    to_lonlat,
)
from pymc_geodesic.directional.direction_variables import direction_variables
from pymc_geodesic.directional.goodness_of_fit import (
    VonMisesFisherResidualTest,
    stein_test,
    vmf_residual_test,
)
from pymc_geodesic.directional.mean_direction import mean_direction
from pymc_geodesic.directional.plot_checks import plot_ppc_dist, plot_trace
from pymc_geodesic.directional.plot_circular import plot_circular_density, plot_rose
from pymc_geodesic.directional.plot_sphere import plot_sphere
from pymc_geodesic.directional.regions import HighestDensityRegion, credible_cap, hdi, hdr
from pymc_geodesic.directional.summary import summary
from pymc_geodesic.directional.uniformity import DirectionalTestResult, uniformity_test

__all__ = [
    "DirectionalTestResult",
    "HighestDensityRegion",
    "VonMisesFisherResidualTest",
    "credible_cap",
    "direction_variables",
    "from_declination_inclination",
    "from_lonlat",
    "hdi",
    "hdr",
    "mean_direction",
    "plot_circular_density",
    "plot_ppc_dist",
    "plot_rose",
    "plot_sphere",
    "plot_ternary",
    "plot_trace",
    "simplex_summary",
    "stein_test",
    "summary",
    "to_declination_inclination",
    "to_lonlat",
    "uniformity_test",
    "vmf_residual_test",
]
