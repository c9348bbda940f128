"""Arguments that PyMC ignores: unknown ones, and shapes that are inconsistent with parameters."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from tests.grids import by_default

NORTH = np.array([0.0, 0.0, 1.0])
EAST = np.array([1.0, 0.0, 0.0])

DIRECTIONS = {
    "VonMisesFisher": (NORTH, 2.0),
    "ProjectedNormal": (NORTH,),
    "ESAG": (NORTH, [1.0, 0.5]),
    "PowerSpherical": (NORTH, 2.0),
    "SphericalCauchy": (NORTH, 0.5),
    "Watson": (NORTH, 2.0),
    "Bingham": (np.diag(NORTH),),
    "Kent": (NORTH, EAST, 4.0, 1.0),
    "FisherBingham": (NORTH, 2.0, np.diag(EAST)),
    "AngularCentralGaussian": (np.eye(3),),
}
ANGLES = {
    "PeriodicVonMises": (0.0, 1.0),
    "WrappedCauchy": (0.0, 0.5),
    "SineBivariateVonMises": ([0.0, 1.0], [2.0, 3.0], 1.0),
}


OTHERS = {
    "UniformSphere": (3,),
    "UniformStiefel": ((3, 2),),
    "MatrixVonMisesFisher": (np.eye(3, 2),),
    "MatrixBingham": (np.diag(NORTH), [2.0, 1.0]),
    "MatrixAngularCentralGaussian": (np.eye(3), (3, 2)),
    "Hinge": (0.5,),
    "MulticlassHinge": ([0.5, -0.5],),
}


@pytest.mark.parametrize("name", [*DIRECTIONS, *ANGLES, *OTHERS])
def test_unknown_argument_raises(name):
    parameters = (DIRECTIONS | ANGLES | OTHERS)[name]
    with pytest.raises(TypeError, match=f"{name} has no argument 'precision'"):
        getattr(pg, name).dist(*parameters, precision=2.0)
    with pm.Model(), pytest.raises(TypeError, match=f"{name} has no argument 'precision'"):
        getattr(pg, name)("x", *parameters, precision=2.0)


@pytest.mark.parametrize("name", DIRECTIONS)
def test_inconsistent_shape_raises(name):
    distribution, parameters = getattr(pg, name), DIRECTIONS[name]
    for shape in (4, (2, 4), np.int64(4)):
        with pytest.raises(ValueError, match=f"the shape of {name}.* ends with 4.* 3 coordinates"):
            distribution.dist(*parameters, shape=shape)
    assert distribution.dist(*parameters, shape=3).type.shape == (3,)


@pytest.mark.parametrize("name", DIRECTIONS)
def test_inconsistent_dims_raise(name):
    distribution, parameters = getattr(pg, name), DIRECTIONS[name]
    with pm.Model(coords={"axis": list("xyz"), "row": range(2)}) as model:
        x = distribution("x", *parameters, dims=("row", "axis"))
        with pytest.raises(ValueError, match=r"dims, ends with 2, but .* has 3 coordinates"):
            distribution("y", *parameters, dims=("axis", "row"))
    assert model.initial_point()[model.rvs_to_values[x].name].shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "number"), {"PowerSpherical": "kappa", "SphericalCauchy": "rho"}.items()
)
def test_concentration_is_scalar_per_direction(name, number):
    distribution = getattr(pg, name)
    for arguments, more, message in (
        ((), {}, f"missing 1 required positional argument: '{number}'"),
        ((0.5, 0.6), {}, "positional arguments"),
        ((0.5,), {number: 0.6}, f"multiple values for argument '{number}'"),
    ):
        with pytest.raises(TypeError, match=message):
            distribution.dist(NORTH, *arguments, **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    by_default(
        ("VonMisesFisher", "MatrixVonMisesFisher"),
        of=[*DIRECTIONS, *(name for name in OTHERS if "Hinge" not in name)],
    ),
)
def test_new_log_density_tests_data_that_are_replaced(name):
    point = np.eye(3, 2) if "Matrix" in name or "Stiefel" in name else NORTH
    parameters = (DIRECTIONS | OTHERS)[name]
    if isinstance(parameters[-1], tuple):  # shape, which the data have
        parameters = parameters[:-1]
    with pm.Model() as model:
        getattr(pg, name)("x", *parameters, observed=pm.Data("data", point))
        assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")({}))
        pm.set_data({"data": 2.0 * point})
    assert model.compile_logp(mode="FAST_COMPILE")({}) == -np.inf
