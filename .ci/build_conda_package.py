"""Build and test the conda package of ``conda-recipe`` from an sdist on this machine.

The sdist and its version take the place of those of the release. The arguments are the path of the
sdist and channels, conda-forge by default.
"""

import argparse
import hashlib
from pathlib import Path

import yaml
from rattler_build import Stage0Recipe, ToolConfiguration
from rattler_build.progress import SimpleProgressCallback

RECIPE = Path(__file__).parents[1] / "conda-recipe" / "recipe.yaml"


def local_recipe(sdist: Path) -> dict:
    """Read the recipe and replace its source by an sdist."""
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    recipe["context"]["version"] = sdist.name.removesuffix(".tar.gz").rpartition("-")[2]
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    print(f"sha256 of {sdist.name}: {digest}")
    recipe["source"] = {"url": sdist.resolve().as_uri(), "sha256": digest}
    return recipe


def main() -> None:
    """Build, test and name the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sdist", type=Path)
    parser.add_argument("channels", nargs="*", default=["conda-forge"])
    chosen = parser.parse_args()
    recipe = Stage0Recipe.from_dict(local_recipe(chosen.sdist))
    for result in recipe.run_build(
        tool_config=ToolConfiguration(test_strategy="native"),
        output_dir=chosen.sdist.parent / "conda",
        channels=chosen.channels,
        progress_callback=SimpleProgressCallback(),
    ):
        print(*result.packages, sep="\n")


if __name__ == "__main__":
    main()
