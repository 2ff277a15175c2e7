"""Digests without OpenSSL are those of OpenSSL."""

import hashlib
import hmac

from hypothesis import given
from hypothesis import strategies as st

from manglecp.toolhost.hashing import Mac, hex_digest, same


@given(st.binary(max_size=200), st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_they_agree(key: bytes, messages: list[bytes]) -> None:
    mac = Mac(key)
    for message in messages:
        assert hex_digest(message) == hashlib.sha256(message).hexdigest()
        assert mac(message) == hmac.digest(key, message, "sha256")


def test_they_agree_over_many_bytes() -> None:
    for size in (1_024, 1_025, 100_000):
        assert hex_digest(b"x" * size) == hashlib.sha256(b"x" * size).hexdigest()


def test_same_is_same() -> None:
    assert same("abc", "abc")
    assert not same("abc", "abd")
