"""The exception tree.

ShardplanError
├── InvalidDocument     JSON that cannot be read, or a key that is missing, unknown or of the wrong type
├── InvalidMesh         a mesh that no device set can have
├── InvalidSharding     a sharding that breaks a rule of the mesh dialect
├── InvalidRule         rule notation that does not parse, or does not fit the shapes it is bound to
├── InvalidGraph        a computation graph that contradicts itself
├── InvalidProgram      an SPMD program that breaks a rule of the mesh dialect
├── UnsupportedOp       an op that has neither a row in the op table nor a rule of its own
├── InvalidHardware     a hardware profile that lacks what the mesh or the graph needs
├── InvalidRequest      an option of the request that makes no sense
└── RunFailed           a program that could not be executed

Every message says what is wrong, where, what was got and what was wanted.
"""

from __future__ import annotations

from functools import partial
from typing import Any

MAX_VALUE_LENGTH = 300


def _clip(value: object) -> str:
    """Return a value as one line of printable text: control characters and line ends become escapes."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 1] + "…"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class ShardplanError(ValueError):
    """An error that says `where: what (got …; wanted …)`; the four parts stay readable as attributes.

    `pointer` is a JSON pointer (RFC 6901) to the fault in the document, where it is known.
    """

    def __init__(
        self, what: str, *, where: str = "", got: object = None, wanted: object = None, pointer: str | None = None
    ) -> None:
        self.pointer = pointer
        self.what, self.where = _clip(what), _clip(where)
        self.got = None if got is None else _clip(got)
        self.wanted = None if wanted is None else _clip(wanted)
        parts = [f"got {self.got}"] if self.got is not None else []
        parts += [f"wanted {self.wanted}"] if self.wanted is not None else []
        detail = f" ({'; '.join(parts)})" if parts else ""
        super().__init__(f"{self.where}: {self.what}{detail}" if where else f"{self.what}{detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parts: the message as a whole would be clipped as one part of another."""
        parts: dict[str, Any] = {"where": self.where, "got": self.got, "wanted": self.wanted, "pointer": self.pointer}
        return partial(type(self), self.what, **parts), ()

    def at(self, where: str) -> ShardplanError:
        """Return the same error with a further place in front."""
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, where=place, got=self.got, wanted=self.wanted, pointer=self.pointer)


class InvalidDocument(ShardplanError):
    """JSON that cannot be read, or a key that is missing, unknown or of the wrong type."""


class InvalidMesh(ShardplanError):
    """A mesh that no device set can have."""


class InvalidSharding(ShardplanError):
    """A sharding that breaks a rule of the mesh dialect."""


class InvalidRule(ShardplanError):
    """Rule notation that does not parse, or does not fit the shapes it is bound to."""


class InvalidGraph(ShardplanError):
    """A computation graph that contradicts itself."""


class InvalidProgram(ShardplanError):
    """An SPMD program that breaks a rule of the mesh dialect."""


class UnsupportedOp(ShardplanError):
    """An op that has neither a row in the op table nor a rule of its own."""


class InvalidHardware(ShardplanError):
    """A hardware profile that lacks what the mesh or the graph needs."""


class InvalidRequest(ShardplanError):
    """An option of the request that makes no sense."""


class RunFailed(ShardplanError):
    """A program that could not be executed."""
