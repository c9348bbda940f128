"""Check the pages that Sphinx has written: ``python docs/check_pages.py docs/_build/html``.

Every link within the documentation leads to a page, every ``#part`` of one to a part of it, and no
page needs another server to look as it should: scripts, styles, fonts and pictures are its own.
No formula holds a sentence, as it does where dollars were paired wrongly.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "object": "data"}
"""What a browser fetches with the page, and where a tag says so; ``link`` is looked at apart."""

FETCHED_LINKS = {"stylesheet", "preload", "icon", "shortcut icon", "modulepreload"}

NO_PROSE = re.compile(r"\\(text|mathrm|operatorname|begin|end)\*?\{[^}]*\}|\\[A-Za-z]+")
"""Letters of a formula that may stand side by side."""

PROSE = re.compile(r"[A-Za-z]{3,} [A-Za-z]{3,}")


class Page(HTMLParser):
    """Links, parts and resources of a page.

    Attributes
    ----------
    links, parts, loaded, formulas : list of str
        Targets of links, names that links may lead to, what is fetched with the page, and TeX.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.parts: list[str] = []
        self.loaded: list[str] = []
        self.formulas: list[str] = []
        self._in_formula = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag refers to, and its name."""
        values = {name: value for name, value in attrs if value}
        self.parts += [values[name] for name in ("id", "name") if name in values]
        if tag in ("div", "span") and "math" in values.get("class", "").split():
            self._in_formula = True
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in FETCHED_LINKS:
            self.loaded.append(values["href"])
        elif tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])

    def handle_data(self, data: str) -> None:
        """Keep the text of a formula, which is all that its tag holds."""
        if self._in_formula:
            self.formulas.append(data)
            self._in_formula = False


def _dead(path: Path, link: str, pages: dict[Path, Page]) -> str:
    """Say what is wrong with a link within the documentation, or nothing."""
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "there is no such file"
    part = unquote(parts.fragment)
    if part and target in pages and part not in pages[target].parts:
        return "that page has no such part"
    return ""


def _faults_of(page: Page, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    for link in page.loaded:
        if urlsplit(link).netloc:
            yield f"loads {link} from another server"
    for link in (*page.links, *page.loaded):
        address = urlsplit(link)
        if not (address.scheme or address.netloc) and (reason := _dead(path, link, pages)):
            yield f"links to {link}, and {reason}"
    for formula in page.formulas:
        if prose := PROSE.search(NO_PROSE.sub("", formula)):
            yield f"has words in a formula: {prose[0]}"


def faults(folder: Path) -> list[str]:
    """Say which links of the pages in a folder are dead, and what else is wrong with a page."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    return [
        f"{path.relative_to(folder.resolve())} {fault}"
        for path, page in pages.items()
        for fault in _faults_of(page, path, pages)
    ]


def main() -> int:
    """Print the faults, and return how the command ends."""
    folder = Path(sys.argv[1])
    found = faults(folder)
    print(*found, f"{len(found)} faults in {len(list(folder.rglob('*.html')))} pages", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
