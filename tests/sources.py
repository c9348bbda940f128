"""The sources under test, by which machine code on disk is named."""

import hashlib
import os
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


def folder_of_tests() -> Path:
    """Return where machine code of tests is kept, beside what Numba keeps of the package."""
    return Path(os.environ["NUMBA_CACHE_DIR"], "tests", digest_of_package())
