"""A position in MLIR text: tokens read from there, and errors with line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from planner.errors import InvalidDocument, ShardplanError

_BLANK = re.compile(r"(?:\s+|//[^\n]*)*")
_ESCAPE = re.compile(r'\\(n|t|["\\]|[0-9A-Fa-f]{2})')
_NAMED = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
STRING = r'"(?:[^"\\\n]|\\.)*"'
NAME = r"(?:[0-9]+|[A-Za-z$._-][\w$.-]*)"
WORD = r"[A-Za-z_][\w$.]*"
Item = TypeVar("Item")


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


class Scanner:
    """A reader of text from left to right, which skips white space and comments before every token."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source, self.at = text, source, 0
        self.aliases: dict[str, Any] = {}
        self._skip()

    def _skip(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def accept(self, pattern: str) -> str | None:
        """Read the text that matches a pattern here; return None, and read nothing, if none does."""
        match = _compile(pattern).match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        self._skip()
        return match[0]

    def peek(self, pattern: str) -> bool:
        return _compile(pattern).match(self.text, self.at) is not None

    def expect(self, pattern: str, wanted: str) -> str:
        """Read the text that matches a pattern here. Raises InvalidDocument."""
        text = self.accept(pattern)
        if text is None:
            raise self.error("syntax", wanted=wanted)
        return text

    def mark(self, mark: str) -> bool:
        """Read a punctuation mark if it is here; return whether it was."""
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        self._skip()
        return True

    def word(self, word: str) -> bool:
        """Read a word if it is here (and not the start of a longer one); return whether it was."""
        return self.accept(re.escape(word) + r"(?![\w$.])") is not None

    def need(self, mark: str) -> None:
        if not self.mark(mark):
            raise self.error("syntax", wanted=repr(mark))

    def parse_list(self, start: str, item: Callable[[], Item], end: str) -> list[Item]:
        """Parse `start item, item end`; an empty `start` has been read already. Raises InvalidDocument."""
        if start:
            self.need(start)
        items: list[Item] = []
        while not self.mark(end):
            if items and not self.mark(","):
                raise self.error("syntax", wanted=f"',' or {end!r}")
            items.append(item())
        return items

    def symbol(self) -> str:
        """Read `@name` or `@"any name"`. Raises InvalidDocument for a nested symbol."""
        name = self.expect("@" + f"(?:{NAME}|{STRING})", "a symbol: @name")[1:]
        if self.peek("::"):
            raise self.error("nested symbol", wanted="one @name")
        return unescape(name) if name[0] == '"' else name

    def value(self) -> str:
        """Read `%name` or `%name#1`; return it without `%` and without `#0`."""
        return self.expect(f"%{NAME}(?:#[0-9]+)?", "a value: %name")[1:].removesuffix("#0")

    def integer(self) -> int:
        text = self.expect(r"-?[0-9]{1,19}(?![\w.])", "a whole number")
        return int(text)

    def place(self, at: int | None = None) -> str:
        """Return a position as `file.mlir: line 3 column 7`."""
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1) + 1
        return f"{self.source}: line {line} column {column}"

    def error(
        self,
        what: str,
        *,
        wanted: str,
        got: object = None,
        at: int | None = None,
        error: type[ShardplanError] = InvalidDocument,
    ) -> ShardplanError:
        """Return an error at a position; `at` defaults to the current one, `got` to the text there."""
        here = self.at if at is None else at
        token = re.match(r"->|[\w$.%@#!^-]+|.", self.text[here : here + 80], re.DOTALL)
        shown = got if got is not None else (token[0] if token else "the end of the text")
        return error(what, where=self.place(here), got=shown, wanted=wanted)


def unescape(quoted: str) -> str:
    """Return the text of an MLIR string literal; hexadecimal escapes are bytes of UTF-8."""
    raw = bytearray()
    inner, end = quoted[1:-1], 0
    for escape in _ESCAPE.finditer(inner):
        raw += inner[end : escape.start()].encode()
        code = escape[1]
        raw += _NAMED[code].encode() if code in _NAMED else bytes([int(code, 16)])
        end = escape.end()
    return (raw + inner[end:].encode()).decode(errors="replace")
