"""Which addresses a webhook may call: public ones only, so that the service cannot be used to reach a private network
(server-side request forgery; OWASP's cheat sheet of that name).

A host name is resolved once per delivery. Every address it has must be public, and the connection goes to the checked
address, never to the name again. IPv6 forms that contain an IPv4 address are judged by that address too. Hosts that
only look like names (127.1, 0x7f000001, 2130706433) are refused before any resolver sees them, because resolvers read
them differently.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from planner.errors import InvalidRequest

PORTS = (443, 8443)
MAX_URL = 2048
NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
IPV4_COMPATIBLE = IPv6Network("::/96")
VISIBLE_ASCII = re.compile("[!-~]+", re.ASCII)
"""No spaces, control characters, or letters that look like others."""
HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)
"""A full name: at least two labels, the last starting with a letter, and no trailing dot."""

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], list[str]]
"""From a name and a port to addresses. Raises OSError."""


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """An https URL in parts; `host` in lower case, without brackets."""

    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> WebhookUrl:
        """Return the parts of a URL. Raises InvalidRequest for anything but a plain https URL with a public-looking
        host.
        """
        if len(url) > MAX_URL or not VISIBLE_ASCII.fullmatch(url) or "\\" in url:
            raise _invalid_url(url, f"at most {MAX_URL} visible ASCII characters, no backslash")
        try:
            parts, host = urlsplit(url), urlsplit(url).hostname or ""
            port = 443 if parts.port is None else parts.port
        except ValueError:
            raise _invalid_url(url, "https://host/path") from None
        if parts.scheme != "https" or "@" in parts.netloc or parts.fragment:
            raise _invalid_url(url, "https://host/path, without user, password or fragment")
        if port not in PORTS:
            raise _invalid_url(url, f"port {' or '.join(map(str, PORTS))}")
        is_valid = is_public(host) if _parse_address(host) or "[" in parts.netloc else HOST_NAME.fullmatch(host)
        if not is_valid:
            raise _invalid_url(url, "a full host name, or a public address")
        return cls(host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def resolve_host(name: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver gives."""
    return [str(info[4][0]) for info in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)]


def choose_address(
    target: WebhookUrl, resolve: Resolve = resolve_host, admits: Callable[[str], bool] | None = None
) -> str:
    """Return the address to connect to.

    `admits` decides which addresses are allowed (default: public ones). Raises InvalidRequest where any address of the
    host is not allowed, OSError where it has none.
    """
    addresses = [target.host] if _parse_address(target.host) else resolve(target.host, target.port)
    if not addresses:
        raise OSError(f"{target.host} has no address")
    for address in addresses:
        if not (admits or is_public)(address):
            raise InvalidRequest("webhook", got=f"{target.host} at {address}", wanted="public addresses only")
    return addresses[0]


def is_public(text: str) -> bool:
    """Return whether the whole internet can reach an address, and every address embedded in it."""
    address = _parse_address(text)
    return address is not None and all(_is_global(embedded) for embedded in _embedded_addresses(address))


def _is_global(address: Address) -> bool:
    unfit = address.is_multicast or address.is_reserved or address.is_loopback or address.is_link_local
    return address.is_global and not unfit and not getattr(address, "is_site_local", False)


def _embedded_addresses(address: Address) -> Iterator[Address]:
    """Yield an address and the IPv4 addresses that it contains."""
    embedded: list[IPv4Address] = []
    if isinstance(address, IPv6Address):
        embedded += [inner for inner in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())) if inner]
        if any(address in network for network in (*NAT64, IPV4_COMPATIBLE)):
            embedded.append(IPv4Address(int(address) & 0xFFFFFFFF))
    yield from (*embedded, address)


def _parse_address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _invalid_url(url: str, wanted: str) -> InvalidRequest:
    return InvalidRequest("webhook's URL", got=url[:200], wanted=wanted)
