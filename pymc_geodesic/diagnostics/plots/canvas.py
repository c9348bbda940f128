"""What all plots share: a lazy matplotlib and draws as arrays."""

from types import ModuleType
from typing import Any


def pyplot() -> ModuleType:
    """Import matplotlib when a plot is asked for, not with the package.

    Returns
    -------
    module
        ``matplotlib.pyplot``.

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.plots.canvas import pyplot
    >>> pyplot().__name__
    'matplotlib.pyplot'
    """
    import matplotlib.pyplot as plt

    return plt


def new_axes(ax: Any | None, **options: Any) -> Any:
    """Return the given axes, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
        Axes to draw into.
    **options
        Passed to ``matplotlib.pyplot.subplots``.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.plots.canvas import new_axes
    >>> ax = new_axes(None, figsize=(3, 2))
    >>> new_axes(ax) is ax
    True
    """
    if ax is not None:
        return ax
    return pyplot().subplots(layout="constrained", **options)[1]
