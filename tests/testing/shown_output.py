"""Comparison of the output that a documentation page shows with what the command prints."""

from __future__ import annotations

import re
from typing import NamedTuple

FENCED = re.compile(r"```(sh|python)\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
PLAN_ID = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,64}\b")
LEFT_OUT = re.compile(r"^\.\.\.\n", re.MULTILINE)


class Example(NamedTuple):
    """Code of a documentation page, and the text block right after it, if any."""

    language: str
    code: str
    shown: str


def read_examples(page: str) -> list[Example]:
    return [Example(language, code, shown or "") for language, code, shown in FENCED.findall(page)]


def assert_shown(shown: str, printed: str) -> None:
    """Every line shown is printed, in this order; where a line `...` stands, and only there, lines are left out.

    Spaces at the ends of lines do not count, nor do empty lines, nor which id a plan has.
    """
    parts = [re.escape(_comparable(part)) for part in LEFT_OUT.split(shown)]
    same = re.fullmatch(r"(?:.*\n)*?".join(parts), _comparable(printed))
    assert same, f"the page shows\n{shown}\nbut printed is\n{printed}"


def _comparable(text: str) -> str:
    return "".join(f"{PLAN_ID.sub('ID', line.rstrip())}\n" for line in text.splitlines() if line.strip())
