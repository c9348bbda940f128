"""Where the documentation says more about a warning or an error."""

from __future__ import annotations

import functools
from importlib import metadata

PAGE = "failure_modes.html"


@functools.cache
def documentation() -> str | None:
    """Address of the documentation, as the package's metadata have it; None if they do not.

    Examples
    --------
    >>> from pymc_geodesic.failure_modes import documentation
    >>> address = documentation()
    >>> address is None or address.startswith("https://")
    True
    """
    try:
        addresses = metadata.metadata("pymc_geodesic").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return None
    named = dict(each.split(", ", 1) for each in addresses)
    return named.get("Documentation")


def see(message: str, anchor: str) -> str:
    """Append to a message where the documentation says what it means and what to do.

    Parameters
    ----------
    message : str
    anchor : str
        Part of the page on failure modes; a test reads them all from the sources.

    Examples
    --------
    >>> from pymc_geodesic.failure_modes import see
    >>> print(see("the draws are too wide", "temperature"))
    the draws are too wide...
    """
    address = documentation()
    if address is None:
        return message
    return f"{message.removesuffix('.')}. See {address}{PAGE}#{anchor}"
