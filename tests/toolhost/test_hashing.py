"""Digests are those of OpenSSL, whether a process has loaded it or not."""

import hashlib
import hmac
import importlib.util
import sys
from types import ModuleType
from unittest.mock import patch

from hypothesis import given, strategies as st

from manglecp.toolhost import hashing


def loaded(*, openssl: bool) -> ModuleType:
    """The module, as a process loads it that has OpenSSL or has not."""
    spec = importlib.util.spec_from_file_location("hashing_again", hashing.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules):
        if not openssl:
            sys.modules.pop("_hashlib", None)
        spec.loader.exec_module(module)
    return module


BOTH = [loaded(openssl=True), loaded(openssl=False)]


def test_a_process_without_openssl_does_not_load_it_for_a_few_bytes() -> None:
    assert [module.sha256 is hashlib.sha256 for module in BOTH] == [True, False]


@given(st.binary(max_size=200), st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_they_agree(key: bytes, messages: list[bytes]) -> None:
    for module in BOTH:
        mac = module.Mac(key)
        for message in messages:
            assert module.hex_digest(message) == hashlib.sha256(message).hexdigest()
            assert mac(message) == hmac.digest(key, message, "sha256")


def test_they_agree_over_many_bytes() -> None:
    for module in BOTH:
        for size in (1_024, 1_025, 100_000):
            assert module.hex_digest(b"x" * size) == hashlib.sha256(b"x" * size).hexdigest()


def test_same_is_same() -> None:
    assert hashing.same("abc", "abc")
    assert not hashing.same("abc", "abd")
