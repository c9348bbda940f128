"""What the distributions on the unit sphere have in common."""

from typing import Any

from pymc.distributions.distribution import Continuous
from pymc.distributions.transforms import _default_transform
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.arguments import last_length, require_known_arguments
from pymc_geodesic.distributions.unit_rows import require_unit_rows
from pymc_geodesic.transforms.unit_vector import UnitVectorTransform, unit_vector


class Directional(Continuous):
    """Base class of distributions whose values are unit vectors along the last axis.

    Free variables get the unit-vector transform; observed data are checked when the model is
    built.

    Raises
    ------
    ValueError
        If observed data are known and hold a row that is not a unit vector.
    """

    def __new__(cls, name: str, *args: Any, observed: Any = None, **kwargs: Any) -> TensorVariable:
        """Check the observed data and add the variable to the model."""
        if observed is not None:
            require_unit_rows(name, observed)
        return super().__new__(cls, name, *args, observed=observed, **kwargs)

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model; an unknown argument raises ``TypeError``."""
        require_known_arguments(cls, kwargs)
        return super().dist(*parameters, **kwargs)

    @classmethod
    def require_last_axis(cls, shape: Any, length: int | None, parameter: str) -> None:
        """Raise ``ValueError`` if a shape, where known, ends with another number of coordinates."""
        last = last_length(shape)
        if None not in (last, length) and last != length:
            raise ValueError(
                f"the shape of {cls.__name__}, or of its observed data or dims, ends with {last}, "
                f"but {parameter} has {length} coordinates on its last axis"
            )


@_default_transform.register(Directional)
def directional_default_transform(op: Op, rv: TensorVariable) -> UnitVectorTransform:
    """Return the transform that a free variable on the sphere carries by default."""
    return unit_vector
