"""What of a gradient has mean zero, by the law alone, along the manifolds of a model."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import project

__all__ = ["Tangents"]


class Tangents:
    """Gradients along the manifolds, less what they are by curvature alone.

    Parameters
    ----------
    product : Product
        The variables of the model.

    Examples
    --------
    On the sphere E[P ∇log π − (d − 1) x] = 0; with no gradient, the second term is left:

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> from pymc_geodesic.tuning.tangents import Tangents
    >>> product = Product([("b", Euclidean(1), 1), ("u", Sphere(3), 1)])
    >>> x, gradient = np.array([7.0, 0.0, 0.0, 1.0]), np.array([0.5, 0.0, 0.0, 3.0])
    >>> Tangents(product).excess(product.blocks, x, gradient).tolist()
    [0.5, 0.0, 0.0, -2.0]
    """

    def __init__(self, product: Product) -> None:
        self._curved = [
            (product.slices[name], manifold, rows)
            for name, manifold, rows in product.components
            if not manifold.is_flat
        ]

    @property
    def n_curved(self) -> int:
        """How many numbers of a position are no Euclidean ones."""
        return sum(part.stop - part.start for part, _, _ in self._curved)

    def excess(
        self,
        blocks: np.ndarray,
        position: np.ndarray,
        gradient: np.ndarray,
        lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Project a gradient, and take off the mean that it has under any law.

        Parameters
        ----------
        blocks : ndarray
            The manifolds, as compiled loops know them.
        position, gradient : ndarray, shape (size,)
        lengths : ndarray, optional
            Unit of length of each variable on a manifold; 1 by default.

        Returns
        -------
        ndarray, shape (size,)
            Zero for manifolds of which no mean is known.
        """
        tangent = gradient.copy()
        project(blocks, position, tangent)
        for place, (part, manifold, rows) in enumerate(self._curved):
            mean = manifold.mean_gradient(position[part].reshape(rows, *manifold.shape))
            if mean is None:
                tangent[part] = 0.0
            else:
                length = 1.0 if lengths is None else lengths[place]
                tangent[part] -= length * mean.ravel()
        return tangent
