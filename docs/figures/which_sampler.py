"""Decision chart of the samplers: ``python docs/figures/which_sampler.py`` writes the SVG.

Questions are in one column, each with its answer for yes, so that the drawing fits on a phone. It
uses the colors of the page, light or dark. Its text can be read by screen readers, and names of
samplers are links.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

WIDTH, LEFT, INDENT, LINE, PAD, GAP = 380, 4, 58, 18, 9, 12

QUESTIONS: tuple[tuple[str, str, str], ...] = (
    ("start", "You have a PyMC model of continuous variables", ""),
    (
        "speed",
        "Is plain pm.sample() fast enough?",
        "Keep it: *NUTS* has no bias from the step size, on unit vectors and simplices too",
    ),
    (
        "sums",
        "Does the likelihood have a sufficient statistic?",
        "Use it in the model: *NUTS* or {GMC}",
    ),
    (
        "counts",
        "Are the variables probability vectors with components near zero and a Dirichlet prior?",
        "{SCIR}; for words in documents with local=",
    ),
    (
        "few",
        "Are gradients of all rows affordable, and is the density smooth?",
        "{GMC}: no bias from the step size, partial centering of group effects, geodesics of "
        "spheres and simplices",
    ),
    (
        "kinks",
        "Affordable, but with kinks: hinge loss, Laplace prior, quantiles?",
        "{SubgradientHMC}: no bias from the step size",
    ),
    (
        "local",
        "Many rows, and variables that belong to single rows or documents?",
        "{SGGMC} with batch_size= and local=",
    ),
    ("many", "Many rows, and kinks?", "{SSGNHT} or {gSGNHT} with batch_size="),
    (
        "noise",
        "Is the variance of the gradient noise known?",
        "{SGGMC} with gradient_noise=",
    ),
    (
        "hard",
        "Is the gradient noise hard to estimate: rows on disk, heavy tails?",
        "{gSGNHT}; rows on disk by batches=",
    ),
    ("rest", "Otherwise", "{SGGMC} with batch_size=100"),
)
"""Name, question and answer; ``{X}`` is a sampler of the package, ``*X*`` one of PyMC."""

STYLE = """
.which { max-width: 27rem; width: 100%; height: auto; font-family: inherit; font-size: 14px; }
.which text { fill: var(--color-foreground-primary, #1c1e21); }
.which .ask { fill: var(--color-background-secondary, #f4f6f8);
  stroke: var(--color-foreground-border, #8a9299); }
.which .take { fill: none; stroke: var(--color-brand-content, #2757dd); stroke-width: 1.6; }
.which .line { fill: none; stroke: var(--color-foreground-muted, #6b6f76); stroke-width: 1.4; }
.which .head { fill: var(--color-foreground-muted, #6b6f76); }
.which .word { fill: var(--color-foreground-muted, #5c6066); font-size: 12px; }
.which .name { fill: var(--color-brand-content, #2757dd); font-weight: 600; }
.which a { text-decoration-color: var(--color-brand-content, #2757dd); }
"""


def _lines(text: str, width: float) -> list[str]:
    """Break a text into lines; a letter of 14 px is some 7 wide."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(re.sub(r"[{}*]", "", longer)) * 7.0 > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _marked(line: str) -> str:
    """Make names of samplers bold, and those of the package links."""
    line = escape(line)
    line = re.sub(r"\*(\w+)\*", r'<tspan class="name">\1</tspan>', line)
    link = r'<a href="api/generated/pymc_geodesic.\1.html"><tspan class="name">\1</tspan></a>'
    return re.sub(r"\{(\w+)\}", link, line)


def _box(kind: str, x: float, y: float, lines: list[str]) -> tuple[str, float]:
    """Return a rectangle with lines of text, and its height."""
    height = len(lines) * LINE + 2 * PAD
    words = "".join(
        f'<text x="{x + 10}" y="{y + PAD + 13 + i * LINE}">{_marked(line)}</text>'
        for i, line in enumerate(lines)
    )
    radius = 4 if kind == "ask" else 14
    rectangle = (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{WIDTH - x - 4}" height="{height}" '
        f'rx="{radius}"/>'
    )
    return rectangle + words, height


def _arrow(points: str, head: str) -> str:
    return f'<path class="line" d="{points}"/><path class="head" d="{head}"/>'


def drawing() -> str:
    """Return the SVG as text."""
    y, parts = 4.0, []
    for name, question, answer in QUESTIONS:
        lines = _lines(question, WIDTH - LEFT - 28)
        box, height = _box("ask", LEFT, y, lines)
        rows = [box]
        down = y + height
        if answer:
            at = down + GAP
            reply, tall = _box("take", INDENT, at, _lines(answer, WIDTH - INDENT - 28))
            middle = at + tall / 2
            word = (
                "" if name == "rest" else f'<text class="word" x="30" y="{middle - 5}">yes</text>'
            )
            arrow = _arrow(
                f"M18 {down}V{middle}H{INDENT - 7}",
                f"M{INDENT} {middle}l-8 -4v8z",
            )
            rows += [arrow, word, reply]
            down = at + tall
        if name not in ("start", "rest"):
            y_next = down + GAP
            rows.append(f'<path class="line" d="M18 {middle}V{y_next - 7}"/>')
            rows.append(f'<path class="head" d="M18 {y_next}l-4 -8h8z"/>')
            rows.append(f'<text class="word" x="30" y="{down + 8}">no</text>')
        elif name == "start":
            rows.append(f'<path class="line" d="M18 {down}V{down + GAP - 7}"/>')
            rows.append(f'<path class="head" d="M18 {down + GAP}l-4 -8h8z"/>')
        parts.append(f"<g>{''.join(rows)}</g>")
        y = down + GAP
    return (
        f'<svg class="which" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 4:g}" '
        'role="group" aria-labelledby="which-title which-text">\n'
        '<title id="which-title">Which sampler to use</title>\n'
        '<desc id="which-text">Questions from top to bottom. Yes leads to the sampler on the '
        f"right, no to the next question.</desc>\n<style>{STYLE}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawing())
