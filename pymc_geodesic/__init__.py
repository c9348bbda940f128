"""Geodesic and stochastic-gradient Monte Carlo for PyMC.

Every name of ``__init__.pyi`` is imported when it is first used, so that importing the package
itself takes no time.
"""

import sys

import lazy_loader

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    if name == "__version__":
        from importlib.metadata import version  # slow to import

        return version(__name__)
    # With `name` and `obj`, Python's error message suggests similar names.
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
