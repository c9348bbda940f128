"""Directions."""

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
