"""Destinations of connections."""

from __future__ import annotations

import pytest

from manglecp.base.destination import MAX_DESTINATIONS, canonical_destinations, parse_destination


@pytest.mark.parametrize(
    ("text", "canonical", "is_address"),
    [
        ("api.github.com:443", "api.github.com:443", False),
        ("API.GitHub.com:443", "api.github.com:443", False),
        ("localhost:8000", "localhost:8000", False),
        ("my_service-1.internal:1", "my_service-1.internal:1", False),
        ("xn--bcher-kva.example:443", "xn--bcher-kva.example:443", False),
        ("1and1.com:443", "1and1.com:443", False),
        (f"{'a' * 63}.example:443", f"{'a' * 63}.example:443", False),
        ("10.0.0.7:65535", "10.0.0.7:65535", True),
        ("[2001:DB8:0::7]:443", "[2001:db8::7]:443", True),
        ("[::1]:443", "[::1]:443", True),
    ],
)
def test_a_destination_has_one_form(text: str, canonical: str, is_address: bool) -> None:
    destination = parse_destination(text)
    assert (str(destination), destination.is_address) == (canonical, is_address)
    assert parse_destination(canonical) == destination


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("api.github.com", "has no port: write api.github.com:443"),
        ("*.github.com:443", "has a wildcard: name each destination"),
        ("https://api.github.com:443", "leave out the scheme and the path"),
        ("api.github.com:443/repos", "leave out the scheme and the path"),
        ("bücher.example:443", "begins with xn--"),
        ("аpi.github.com:443", "begins with xn--"),
        ("api.github.com.:443", "leave out the dot at the end"),
        ("api.github.com:0", "is not HOST:PORT"),
        ("api.github.com:65536", "is not HOST:PORT"),
        ("api.github.com:https", "is not HOST:PORT"),
        ("api.github.com:+443", "is not HOST:PORT"),
        ("api.github.com:0443", "is not HOST:PORT"),
        (":443", "is not HOST:PORT"),
        ("::1:443", "is not HOST:PORT"),
        ("api..com:443", "is not the name of a host"),
        ("-api.com:443", "is not the name of a host"),
        ("api-.com:443", "is not the name of a host"),
        (" api.com:443", "is not the name of a host"),
        ("api.com\n:443", "is not the name of a host"),
        ("user@api.com:443", "is not the name of a host"),
        (f"{'a' * 64}.com:443", "is not the name of a host"),
        (f"{'a.' * 130}com:443", "is not the name of a host"),
        ("x" * 400, "is not HOST:PORT"),
        ("127.1:80", "is not an IP address in its usual form"),
        ("2130706433:80", "is not an IP address in its usual form"),
        ("0x7f000001:80", "is not an IP address in its usual form"),
        ("010.0.0.1:80", "is not an IP address in its usual form"),
        ("10.0.0.256:80", "is not an IP address in its usual form"),
        ("[fe80::1%eth0]:80", "is not HOST:PORT"),
        ("[::ffff:127.0.0.1]:80", "write the IPv4 address 127.0.0.1"),
        ("[10.0.0.1:80", "is not HOST:PORT"),
    ],
)
def test_what_is_no_destination_is_refused_with_the_fix(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_destination(text)
    assert problem in str(caught.value)


def test_a_list_is_sorted_without_repetition_and_bounded() -> None:
    assert canonical_destinations(["b.test:1", "A.test:1", "a.test:1"]) == ("a.test:1", "b.test:1")
    with pytest.raises(ValueError, match="65 destinations are named, and 64 are allowed"):
        canonical_destinations(f"a.test:{port}" for port in range(1, MAX_DESTINATIONS + 2))
