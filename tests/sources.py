"""Hash of the tested sources, which names the cache of machine code."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pymc_geodesic"


@cache
def digest_of_package() -> str:
    """Return a hash of all modules of the package."""
    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        digest.update(source.relative_to(PACKAGE).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
