"""The addresses that a webhook may call and may not call: a private network is not reached from outside."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.webhooks.url_policy import WebhookUrl, choose_address
from planner.errors import InvalidRequest

HOOK = "/hook"
RIGHT = [
    ("https://hooks.example.com", WebhookUrl("hooks.example.com", 443, "/")),
    ("https://Hooks.Example.com:8443/a?b=c", WebhookUrl("hooks.example.com", 8443, "/a?b=c")),
    ("https://8.8.8.8/", WebhookUrl("8.8.8.8", 443, "/")),
    ("https://[2001:4860:4860::8888]/", WebhookUrl("2001:4860:4860::8888", 443, "/")),
    ("https://xn--bcher-kva.example/", WebhookUrl("xn--bcher-kva.example", 443, "/")),
]
HOSTS = [
    # this machine and its networks
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "203.0.113.9"),
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    # IPv4 as some resolvers read it
    *(
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "8.8.8.8.",
        "08.8.8.8",
    ),
    *("3232235777", "0xa9fea9fe", "134744072"),
    # IPv6
    *(
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[100::1]",
    ),
    *("[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::ffff:8.8.8.8]", "[::127.0.0.1]", "[::ffff:0:10.0.0.1]"),
    *("[64:ff9b::7f00:1]", "[64:ff9b:1::10.0.0.1]", "[2002:7f00:1::]", "[2002:a00:1::1]", "[fe80::1%25eth0]"),
    *("[2001:0:7f00:1::]", "[v1.x]", "[::1", "::1"),
    # names that are not full, or are not names
    *("localhost", "localhost.", "metadata", "hooks.example.com.", "-a.example.com", "a..example.com", ".example.com"),
    *(
        "a" * 64 + ".com",
        "bücher.example",
        "１２７.0.0.1",
        "127。0。0。1",
        "ex ample.com",
        "exam%70le.com",
        "",
        "a.0x7f",
    ),
]
URLS = [
    *("http://hooks.example.com/", "ftp://hooks.example.com/", "file:///etc/passwd", "gopher://hooks.example.com/"),
    *("//hooks.example.com/", "hooks.example.com", "https:hooks.example.com", "https:///hook", "https://", ""),
    *(
        "https://user@hooks.example.com/",
        "https://user:password@hooks.example.com/",
        "https://hooks.example.com@127.0.0.1/",
    ),
    *("https://127.0.0.1#@hooks.example.com/", "https://127.0.0.1\\@hooks.example.com/", "https://@hooks.example.com/"),
    *("https://hooks.example.com:80/", "https://hooks.example.com:22/", "https://hooks.example.com:0/"),
    *("https://hooks.example.com:65536/", "https://hooks.example.com:x/", "https://hooks.example.com:６443/"),
    *("https://hooks.example.com/#part", "https://hooks.example.com/\r\nHost: other", "https://hooks.example.com/\0"),
    *("https://hooks.example.com/" + "a" * 2048, " https://hooks.example.com/", "https://hooks.example.com/\x7f"),
]
PUBLIC = "93.184.215.14"
RESOLVED = [
    ["127.0.0.1"],
    ["::1"],
    ["10.1.2.3"],
    ["169.254.169.254"],
    ["::ffff:10.0.0.1"],
    ["64:ff9b::a00:1"],
    ["fe80::1%eth0"],
    ["0.0.0.0"],
    [PUBLIC, "127.0.0.1"],
    ["192.168.0.1", PUBLIC],
    ["not an address"],
]


@pytest.mark.parametrize(("url", "target"), RIGHT)
def test_a_public_address_may_be_called(url: str, target: WebhookUrl) -> None:
    assert WebhookUrl.parse(url) == target


@pytest.mark.parametrize("url", [*(f"https://{host}{HOOK}" for host in HOSTS), *URLS])
def test_a_private_address_may_not_be_called(url: str) -> None:
    with pytest.raises(InvalidRequest, match="webhook"):
        WebhookUrl.parse(url)


@pytest.mark.parametrize("addresses", RESOLVED)
def test_a_name_of_a_private_address_is_refused(addresses: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="public addresses only"):
        choose_address(WebhookUrl("hooks.example.com", 443, "/"), lambda _name, _port: addresses)


def test_a_name_is_resolved_once_and_its_first_address_taken() -> None:
    asked: list[tuple[str, int]] = []

    def resolve(name: str, port: int) -> list[str]:
        asked.append((name, port))
        return [PUBLIC, "2606:2800:220:1::1"] if len(asked) == 1 else ["127.0.0.1"]

    assert choose_address(WebhookUrl("hooks.example.com", 443, "/"), resolve) == PUBLIC
    assert asked == [("hooks.example.com", 443)]


def test_a_name_without_addresses_is_an_error_that_is_tried_again() -> None:
    with pytest.raises(OSError, match="no address"):
        choose_address(WebhookUrl("hooks.example.com", 443, "/"), lambda _name, _port: [])
