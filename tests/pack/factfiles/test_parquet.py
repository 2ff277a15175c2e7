from __future__ import annotations

import builtins
import io
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from tests.pack.factfiles.conftest import Read, Wrong


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def test_columns_as_in_csv(read: Read) -> None:
    data = parquet(line=[7, 8], caller=["a", "a"], callee_name=["b", "c"])
    assert read("calls.parquet", data) == ['calls("a","b",7)', 'calls("a","c",8)']
    assert read("export.parquet", data, "calls") == ['calls("a","b",7)', 'calls("a","c",8)']


def test_cells_are_themselves_or_what_json_would_be(read: Read) -> None:
    data = parquet(
        name=["/a"],
        float=[2],
        time=pyarrow.array([1_500_000_000_000_000_001], pyarrow.timestamp("ns", "UTC")),
        span=pyarrow.array([1], pyarrow.duration("s")),
        data=[b"\xff"],
        flag=[True],
    )
    assert read("kinds.parquet", data) == [
        'kinds(/a,2.0,fn:time:parse_rfc3339("2017-07-14T02:40:00.000000001Z"),fn:duration:parse("1s"),b"\\xff",/true)'
    ]
    assert read("nested.parquet", parquet(items=[[1, 2]], point=[{"x": 3}])) == ["nested([1, 2],{/x : 3})"]
    assert read("loose.parquet", parquet(x=[1], y=[1.5])) == ["loose(1,1.5)"]
    repeated = pyarrow.array(["a", "a"]).dictionary_encode()
    assert read("loose.parquet", parquet(x=repeated, y=[1, 1.0])) == ['loose("a",1.0)'] * 2


def test_time_columns(read: Read) -> None:
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    data = parquet(
        **{"service": ["a", "b"], "level": ["/up", "/up"], "@start": [new_year, None], "@end": ["_", "5000"]}
    )
    assert read("state.parquet", data) == [
        'state("a",/up)@[2026-01-01T00:00:00Z, _]',
        'state("b",/up)@[_, 1970-01-01T00:00:05Z]',
    ]
    data = parquet(**{"service": ["a"], "level": ["/up"], "@at": [new_year.date()]})
    assert read("state.parquet", data) == ['state("a",/up)@[2026-01-01T00:00:00Z]']


def test_every_error_with_row_and_column(wrong: Wrong) -> None:
    data = parquet(caller=["a", None, "c"], callee_name=["x", "y", "z"], line=[1.5, 1.0, 2.0])
    found = wrong("calls.parquet", data)
    assert [message.rpartition(": ")[0] for _, message in found] == [
        "row 2, column caller",
        "row 1, column line",
        "row 2, column line",
        "row 3, column line",
    ]
    data = parquet(**{"service": ["a"], "level": ["/up"], "@at": [1.5]})
    ((_, message),) = wrong("state.parquet", data)
    assert message.endswith("row 1, column @at: a time is a timestamp, RFC 3339 text or milliseconds since 1970")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a Parquet table"),
        (b"PAR1" * 10, "not a Parquet table"),
        (parquet(x=[1], y=[2])[:-20], "not a Parquet table"),
        (parquet(x=[1]), "loose takes 2 columns, not 1"),
    ],
)
def test_files_that_are_refused(wrong: Wrong, data: bytes, message: str) -> None:
    ((_, found),) = wrong("loose.parquet", data)
    assert message in found


def test_limits(wrong: Wrong) -> None:
    data = parquet(x=[1] * 100_000, y=[2] * 100_000)
    assert wrong("loose.parquet", data, facts=99_999)[0][1].endswith("more than 99,999 facts")
    bomb = parquet(x=["long" * 1_000] * 10_000, y=[2] * 10_000)
    assert len(bomb) < 20_000
    assert wrong("loose.parquet", bomb, bytes=1_000_000)[0][1].endswith("more than 1,000,000 bytes")


def test_without_pyarrow_the_message_says_what_to_install(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args)

    data = parquet(x=[1], y=[2])
    monkeypatch.setattr(builtins, "__import__", without)
    ((_, message),) = wrong("loose.parquet", data)
    assert message.endswith("reading Parquet needs pyarrow, which is not installed")
