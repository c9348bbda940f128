"""Links from warnings and errors to the page of the documentation on failure modes."""

from __future__ import annotations

import functools
from importlib import metadata

PAGE = "failure_modes.html"


@functools.cache
def documentation() -> str | None:
    """Address of the documentation, from the metadata of the package; None without metadata.

    Examples
    --------
    >>> from pymc_geodesic.failure_modes import documentation
    >>> address = documentation()
    >>> address is None or address.startswith("https://")
    True
    """
    try:
        addresses = metadata.metadata("pymc_geodesic").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # the package is not installed
        return None
    named = dict(each.split(", ", 1) for each in addresses)
    return named.get("Documentation")


def see(message: str, anchor: str) -> str:
    """Append the link to the section of the documentation that explains a message.

    Parameters
    ----------
    message : str
    anchor : str
        Section of the page on failure modes; a test checks that it exists.

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
