"""The sources under test, by which machine code on disk is named."""

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pymc_geodesic"


@cache
def digest_of_package() -> str:
    """Name the text of all modules of the package."""
    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        digest.update(source.relative_to(PACKAGE).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
