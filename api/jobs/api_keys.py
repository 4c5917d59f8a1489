"""API keys: `sp_<id>_<secret>`. The secret has 256 random bits; only its SHA-256 is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import bindparam, func, insert, select, update

from api.jobs.database import Database
from api.jobs.tables import keys
from planner.errors import InvalidRequest

Scope = Literal["read", "plan", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""In rising order: each scope includes those before it."""

_KEY_PATTERN = re.compile(r"sp_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_ANY_KEY = select(keys.c.id).limit(1)
_FIND_KEY = select(keys).where(keys.c.id == bindparam("id"))
_TENANT_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. Times are seconds since 1970."""

    id: str
    tenant: str
    scope: Scope
    created_at: float
    revoked_at: float | None = None

    def allows(self, scope: Scope) -> bool:
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


class ApiKeys:
    """The keys in a database."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self._any_exist = False  # cached once true: keys are never deleted

    def add(self, tenant: str, scope: Scope) -> str:
        """Create a key and return its text, which cannot be read again. Raises InvalidRequest for an invalid tenant."""
        if not _TENANT_PATTERN.fullmatch(tenant):
            raise InvalidRequest("tenant", got=tenant, wanted="1-64 letters, digits, '_', '.', '-'")
        name, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        values = {"id": name, "tenant": tenant, "scope": scope, "digest": _digest(secret), "created_at": time.time()}
        with self.store.begin() as connection:
            connection.execute(insert(keys).values(values))
        return f"sp_{name}_{secret}"

    def list_all(self) -> list[ApiKey]:
        """Return all keys that were ever created, oldest first."""
        columns = keys.c
        query = select(columns.id, columns.tenant, columns.scope, columns.created_at, columns.revoked_at)
        with self.store.connect() as connection:
            return [ApiKey(*row) for row in connection.execute(query.order_by(columns.created_at, columns.id))]

    def revoke(self, name: str) -> None:
        """Revoke a key. Raises InvalidRequest where no valid key has this id."""
        revocation = update(keys).where(keys.c.id == name, keys.c.revoked_at.is_(None))
        with self.store.begin() as connection:
            if connection.execute(revocation.values(revoked_at=time.time())).rowcount == 0:
                raise InvalidRequest("no such key, or revoked already", got=name, wanted="an id that `keys list` shows")

    @property
    def any_exist(self) -> bool:
        """Return whether any key exists, revoked ones included, so that revoking the last key does not open the
        service.
        """
        if not self._any_exist:
            with self.store.connect() as connection:
                self._any_exist = connection.execute(_ANY_KEY).first() is not None
        return self._any_exist

    @property
    def any_valid(self) -> bool:
        valid_count = select(func.count()).select_from(keys).where(keys.c.revoked_at.is_(None))
        with self.store.connect() as connection:
            return connection.execute(valid_count).scalar_one() > 0

    def authenticate(self, text: str) -> ApiKey | None:
        """Return the valid key of a text, or None. Secrets are compared in constant time."""
        match = _KEY_PATTERN.fullmatch(text)
        if match is None:
            return None
        with self.store.connect() as connection:
            row = connection.execute(_FIND_KEY, {"id": match[1]}).first()
        # An unknown id is compared too, so that the time of an answer does not tell which ids exist.
        stored_digest = _digest("") if row is None else row.digest
        if not hmac.compare_digest(stored_digest, _digest(match[2])) or row is None or row.revoked_at is not None:
            return None
        return ApiKey(row.id, row.tenant, row.scope, row.created_at)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
