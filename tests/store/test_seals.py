"""Sealed values: only with the key, only in their place."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from manglecp.store.errors import Invalid, Unusable
from manglecp.store.seals import Seals
from manglecp.store.store import open_store

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
PLACE = ("steps", "r1", "do/1/1", "input")
SECRET = b"the argument"


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("value", [b"", SECRET, bytes(256) * 300])
def test_what_was_sealed_opens(key: bytes | None, value: bytes) -> None:
    seals = Seals(key)
    assert seals.unseal(seals.seal(value, *PLACE), *PLACE) == value


def test_without_a_key_it_is_kept_as_it_is() -> None:
    assert Seals().seal(SECRET, *PLACE) == b"\0" + SECRET


def test_with_a_key_nothing_shows() -> None:
    seals = Seals(KEY)
    first, second = seals.seal(SECRET, *PLACE), seals.seal(SECRET, *PLACE)
    assert SECRET not in first
    assert KEY not in first
    assert first != second, "a nonce is never used twice"


@pytest.mark.parametrize(
    "place",
    [
        ("runs", "r1", "do/1/1", "input"),
        ("steps", "r2", "do/1/1", "input"),
        ("steps", "r1", "do/2/1", "input"),
        ("steps", "r1", "do/1/1", "output"),
        ("steps", "r1", "do/1/1"),
        ("stepsr1", "", "do/1/1", "input"),
        (),
    ],
)
def test_in_another_row_it_does_not_open(place: tuple[str, ...]) -> None:
    seals = Seals(KEY)
    with pytest.raises(Unusable, match="it was changed, or moved from another row"):
        seals.unseal(seals.seal(SECRET, *PLACE), *place)


def test_rows_that_were_swapped() -> None:
    seals = Seals(KEY)
    sealed = {place: seals.seal(place.encode(), "runs", place) for place in ("r1", "r2")}
    for place, other in (("r1", "r2"), ("r2", "r1")):
        with pytest.raises(Unusable):
            seals.unseal(sealed[other], "runs", place)


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    seals = Seals(KEY)
    sealed = bytearray(seals.seal(SECRET, *PLACE))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Unusable):
        seals.unseal(bytes(sealed), *PLACE)
    with pytest.raises(Unusable):
        seals.unseal(seals.seal(SECRET, *PLACE)[:place], *PLACE)


def test_the_wrong_key() -> None:
    sealed = Seals(KEY).seal(SECRET, *PLACE)
    with pytest.raises(Unusable, match="sealed with another store key than the one configured"):
        Seals(OTHER).unseal(sealed, *PLACE)
    with pytest.raises(Unusable, match="configure the store key"):
        Seals().unseal(sealed, *PLACE)


def test_a_store_with_a_key_takes_nothing_without() -> None:
    """Else somebody who writes to the database could forge a value."""
    with pytest.raises(Unusable, match="was stored without a key, and this store has one"):
        Seals(KEY).unseal(Seals().seal(b"forged", *PLACE), *PLACE)


@pytest.mark.parametrize("value", [b"", b"\2abc", b"\xff"])
def test_what_is_no_sealed_value(value: bytes) -> None:
    for seals in (Seals(), Seals(KEY)):
        with pytest.raises(Unusable, match="steps/r1/do/1/1/input is damaged"):
            seals.unseal(value, *PLACE)


@pytest.mark.parametrize("key", [b"", b"short", bytes(31), bytes(33)])
def test_a_key_of_the_wrong_length(key: bytes) -> None:
    with pytest.raises(Invalid, match=f"store key: it needs 32 random bytes, and this one has {len(key)}"):
        Seals(key)


def test_no_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str,
        globals_: Mapping[str, Any] | None = None,
        locals_: Mapping[str, Any] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, globals_, locals_, names, level)

    for module in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    assert Seals().seal(b"x") == b"\0x", "who needs no key needs no cryptography"
    with pytest.raises(Unusable, match=r"cryptography is not installed.*CHECKOUT\[encryption\]"):
        Seals(KEY)


def test_a_store_seals() -> None:
    store = open_store(":memory:", key=KEY)
    sealed = store.seals.seal(SECRET, *PLACE)
    assert sealed != b"\0" + SECRET
    assert store.seals.unseal(sealed, *PLACE) == SECRET
    store.close()
    with pytest.raises(Invalid):
        open_store(":memory:", key=b"password")
