"""Constructors whose arguments stand in a dataclass: one place for name, type, default and text.

``Unpack`` of a typed dictionary would name the arguments without their defaults, so that a
dataclass would have to name them again. The constructor of the dataclass has both, and `takes`
gives its parameters to a step: type checkers, ``help()`` and completion see them as its own. The
step keeps the options, and whatever it is built of reads what is its own from there.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, dataclass, fields
from functools import wraps
from typing import Any, Concatenate

__all__ = ["LAST", "Options", "after", "by_rule", "explain", "part", "takes"]

_SECTION = re.compile(r"^(?P<title>[A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """Arguments that users pass to a step, checked when they are put together.

    A group of them is a dataclass that describes its own in a section ``Parameters``. A rule for
    one argument stands with it, by `by_rule`. All else a group checks in ``__post_init__``, which
    calls that of ``super()`` first, so that groups can be joined.
    """

    def __post_init__(self) -> None:
        """Check each argument by its own rule."""
        for each in fields(self):
            if "rule" in each.metadata:
                each.metadata["rule"](each.name, getattr(self, each.name))


LAST = {"last": True}
"""Metadata of an argument that is shown behind all others."""


def after(name: str) -> dict[str, str]:
    """Metadata of an argument that is shown after another one, if that is there."""
    return {"after": name}


def by_rule(rule: Callable[[str, Any], None]) -> dict[str, Any]:
    """Metadata of an argument that a function of its name and value refuses if it is wrong.

    Examples
    --------
    >>> from dataclasses import dataclass, field
    >>> from pymc_geodesic.arguments import check_count
    >>> from pymc_geodesic.steps.base.signature import Options, by_rule
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Given(Options):
    ...     n_steps: int | None = field(default=None, metadata=by_rule(check_count))
    >>> Given(n_steps=0)
    Traceback (most recent call last):
    ValueError: n_steps must be a positive integer, got 0
    """
    return {"rule": rule}


def part[O: Options](kind: type[O], options: Options, **others: Any) -> O:
    """Make options of a kind from those of the same names, and from others."""
    given = {each.name for each in fields(options)}
    same = {each.name: getattr(options, each.name) for each in fields(kind) if each.name in given}
    return kind(**(same | others))


def takes[S, O: Options, **P](
    options: Callable[P, O],
) -> Callable[[Callable[[S], None]], Callable[Concatenate[S, P], None]]:
    """Turn a constructor into one that takes the arguments of options, and keeps these first.

    Parameters
    ----------
    options : subclass of Options
        Called with the arguments; the step has the result as ``self.options``.

    Raises
    ------
    TypeError
        By the constructor: for an unknown argument, whose message names it and the nearest one, or
        an argument without its name.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from pymc_geodesic.steps.base.signature import Options, takes
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Given(Options):
    ...     step_size: float | None = None
    >>> class Step:
    ...     @takes(Given)
    ...     def __init__(self):
    ...         self.step_size = self.options.step_size
    >>> Step(step_size=0.1).step_size
    0.1
    >>> Step(stepsize=0.1)
    Traceback (most recent call last):
    TypeError: Step() has no argument stepsize=; did you mean step_size=?
    """
    kind: Any = options
    parameters = list(_parameters(kind))

    def decorate(begin: Callable[[S], None]) -> Callable[Concatenate[S, P], None]:
        @wraps(begin)
        def construct(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
            step: Any = self
            _check_names(type(step).__name__, parameters, args, kwargs)
            step.options = options(*args, **kwargs)
            begin(self)

        shown: Any = construct
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        shown.__signature__ = inspect.Signature([own, *parameters])
        shown.options = options
        return construct

    return decorate


def _check_names(
    step: str, parameters: Sequence[inspect.Parameter], args: Sequence[Any], given: dict[str, Any]
) -> None:
    names = [parameter.name for parameter in parameters]
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            remedy = f"did you mean {near[0]}=?" if near else f"it takes {', '.join(names)}"
            raise TypeError(f"{step}() has no argument {name}=; {remedy}")
    free = sum(parameter.kind is not inspect.Parameter.KEYWORD_ONLY for parameter in parameters)
    if len(args) > free:
        raise TypeError(
            f"{step}() takes {' and '.join(names[:free]) or 'nothing'} without a name, but "
            f"{len(args)} arguments came without one; name the others, as in {names[free]}=..."
        )


def _in_order(kind: type) -> Iterator[str]:
    """Names of the arguments as the groups are written down, base after base."""
    for base in kind.__bases__:
        yield from _in_order(base)
    yield from inspect.get_annotations(kind)


def _parameters(kind: Any) -> Iterator[inspect.Parameter]:
    """Parameters of a step in the order in which they are shown."""
    known: dict[str, Field] = {each.name: each for each in fields(kind)}
    names = [name for name in dict.fromkeys(_in_order(kind)) if name in known]
    for name in list(names):
        after = known[name].metadata.get("after")
        if known[name].metadata.get("last"):
            names.append(names.pop(names.index(name)))
        elif after in known:
            names.remove(name)
            names.insert(names.index(after) + 1, name)
    for name in names:
        one = known[name]
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY
            if one.kw_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=one.default,
            annotation=one.type,
        )


def _entries(docstring: str) -> Iterator[tuple[list[str], str, str]]:
    """Names, type and text of the entries of the section ``Parameters``."""
    text = inspect.cleandoc(docstring)
    sections = list(_SECTION.finditer(text))
    for i, section in enumerate(sections):
        if section["title"] != "Parameters":
            continue
        end = sections[i + 1].start() if i + 1 < len(sections) else len(text)
        for entry in re.split(r"\n(?=\S)", text[section.end() : end].rstrip()):
            head, _, body = entry.partition("\n")
            names, _, kind = head.partition(" : ")
            yield names.split(", "), kind, body


def explain(docstring: str, kind: Any) -> str:
    """Put the section ``Parameters`` of options into the docstring of the step that takes them.

    It stands before the first of the other sections. A group that stands nearer to `kind` describes
    an argument instead of one further away. A docstring with such a section is left alone.
    """
    text = inspect.cleandoc(docstring)
    sections = list(_SECTION.finditer(text))
    if any(section["title"] == "Parameters" for section in sections):
        return text
    order = [parameter.name for parameter in _parameters(kind)]
    told: dict[str, str] = {}
    described: set[str] = set()
    for group in kind.__mro__:
        for names, of_type, body in _entries(group.__dict__.get("__doc__") or ""):
            own = [name for name in names if name in order and name not in described]
            described.update(own)
            if own:
                head = ", ".join(own) + (f" : {of_type}" if of_type else "")
                told[own[0]] = f"{head}\n{body}".rstrip()
    parameters = "\n".join(told[name] for name in order if name in told)
    where = sections[0].start() if sections else len(text)
    pieces = (text[:where], f"Parameters\n----------\n{parameters}", text[where:])
    return "\n\n".join(piece.strip() for piece in pieces).strip()
