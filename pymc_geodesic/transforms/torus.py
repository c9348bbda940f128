"""Angles that turn round, one by one or as a point of a torus."""

import pytensor.tensor as pt
from pymc.logprob.transforms import CircularTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable


class TorusTransform(CircularTransform):
    """Points of a torus, angles along the last axis, each of which turns round.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.transforms.torus import torus
    >>> torus.backward(np.array([1.0, 2.0 * np.pi + 1.0])).eval().round(6).tolist()
    [1.0, 1.0]
    """

    name = "torus"
    ndim_supp = 1

    def log_jac_det(self, value: TensorVariable, *inputs: Variable) -> TensorVariable:
        """Return zero for each point: turning changes no area.

        Parameters
        ----------
        value : TensorVariable, shape (..., n)
        *inputs : Variable
            Inputs of the random variable; not used.

        Returns
        -------
        TensorVariable, shape (...)
        """
        return pt.zeros_like(value[..., 0])


torus = TorusTransform()
