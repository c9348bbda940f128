"""Selection of Euclidean and curved components of a product of manifolds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pymc_geodesic.arguments import listed
from pymc_geodesic.manifolds import Euclidean, Product


def euclidean_names(product: Product) -> list[str]:
    """Name of the variable of each Euclidean coordinate."""
    return [
        name
        for name, manifold, rows in product.components
        if manifold.is_flat
        for _ in range(rows * manifold.size)
    ]


def curved_variables(product: Product) -> list[tuple[slice, int]]:
    """Slice and dimension of each variable that is not Euclidean."""
    return [
        (product.slices[name], rows * manifold.dim)
        for name, manifold, rows in product.components
        if not manifold.is_flat
    ]


def max_length_scales(product: Product) -> list[float]:
    """Upper bound on the length scale of each variable of `curved_variables`.

    It is infinite for manifolds that are not compact.
    """
    return [
        1.0 if manifold.is_compact else math.inf
        for _, manifold, _ in product.components
        if not manifold.is_flat
    ]


def curved_points(product: Product) -> list[tuple[slice, int]]:
    """Slice and dimension of each point that is not Euclidean; half lines have one per coordinate.

    Examples
    --------
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> from pymc_geodesic.adaptation.components import curved_points
    >>> curved_points(Product([("b", Euclidean(2), 1), ("mu", Sphere(3), 2)]))
    [(slice(2, 5, None), 2), (slice(5, 8, None), 2)]
    """
    points = []
    for name, manifold, _ in product.components:
        if manifold.is_flat:
            continue
        part = product.slices[name]
        width, dim = (manifold.size, manifold.dim) if manifold.is_constrained else (1, 1)
        points += [(slice(i, i + width), dim) for i in range(part.start, part.stop, width)]
    return points


def join_euclidean(product: Product) -> Product:
    """Join all Euclidean variables into one component.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.components import join_euclidean
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> both = Product([("a", Euclidean(2), 1), ("b", Euclidean(3), 1), ("mu", Sphere(3), 4)])
    >>> join_euclidean(both).names
    ('Euclidean coordinates', 'mu')
    """
    curved = [component for component in product.components if not component[1].is_flat]
    width = product.size - sum(rows * manifold.size for _, manifold, rows in curved)
    euclidean = [("Euclidean coordinates", Euclidean(width), 1)] if width else []
    return Product([*euclidean, *curved])


def describe_adaptation(
    adapted: Sequence[str], specified: Sequence[str], chosen: Sequence[str] = ()
) -> str:
    """Describe what is adapted, what is user-specified, and what the last warm-up chose.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.components import describe_adaptation
    >>> describe_adaptation(["step size", "friction"], ["n_steps=7"])
    'adapts step size and friction; n_steps=7 is user-specified.'
    """
    verb = "is" if len(specified) == 1 else "are"
    rest = f"; {listed(specified)} {verb} user-specified" if specified else ""
    choices = f" The last warm-up chose {listed(chosen)}." if chosen else ""
    return f"adapts {listed(adapted)}{rest}.{choices}"
