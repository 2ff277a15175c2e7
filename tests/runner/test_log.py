from __future__ import annotations

import hashlib
import io
import json
import stat
from pathlib import Path

import pytest

from manglecp.runner import BrokenLog, RunHeader, RunLog, verify
from manglecp.runner.log import END, GENESIS
from tests.runner.playing import COUNT, NOOP, ROLL, play

LINES = play(None, COUNT, ROLL, NOOP).lines


def chained(*records: str) -> list[bytes]:
    """Lines as upstream writes them."""
    lines, prev = [], GENESIS
    for record in records:
        digest = hashlib.sha256((prev + record).encode()).hexdigest()
        lines.append(f'{{"chain_hash":"{digest}","chain_prev":"{prev}",{record[1:]}\n'.encode())
        prev = digest
    return lines


def upstream(step: int, text: str = "") -> str:
    return (
        f'{{"event":"noop","payload":{{"p":"a\\/b{text}"}},"profile_id":"A","run_id":"abc123","spec_version":"1.4.2",'
        f'"step":{step},"ts":"2026-02-13T10:00:00Z"}}'
    )


@pytest.mark.req("IPC-01", "IPC-02", "IPC-03")
def test_a_record_has_the_members_of_upstream_and_the_header() -> None:
    record = json.loads(LINES[0])
    assert list(record) == sorted(record)
    assert set(record) == {
        "chain_hash", "chain_prev", "event", "payload", "profile_id",
        "request_id", "run_id", "spec_version", "step", "ts",
    }  # fmt: skip
    assert (record["ts"], record["chain_prev"], record["run_id"]) == ("2026-01-02T03:04:05Z", "0" * 64, "ab" * 16)


def test_the_chain_is_that_of_upstream() -> None:
    prev = GENESIS
    for line in LINES:
        record = json.loads(line)
        assert record.pop("chain_prev") == prev
        digest = record.pop("chain_hash")
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        prev = hashlib.sha256((prev + text).encode()).hexdigest()
        assert digest == prev


def test_a_log_of_upstream_verifies_though_it_writes_texts_in_its_own_way() -> None:
    lines = chained(upstream(0), upstream(1))
    assert len(verify(lines, end_required=False).records) == 2
    with pytest.raises(BrokenLog, match="end of the run is missing"):
        verify(lines)


@pytest.mark.no_cover
def test_every_changed_byte_shows() -> None:
    data = b"".join(LINES)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        with pytest.raises(BrokenLog):
            verify(io.BytesIO(changed))


def test_every_line_taken_out_repeated_or_moved_shows() -> None:
    for place in range(len(LINES)):
        with pytest.raises(BrokenLog):
            verify(LINES[:place] + LINES[place + 1 :])
        with pytest.raises(BrokenLog):
            verify(LINES[: place + 1] + LINES[place:])
        with pytest.raises(BrokenLog):
            verify(LINES[:place])
        for other in range(place):
            moved = list(LINES)
            moved[place], moved[other] = moved[other], moved[place]
            with pytest.raises(BrokenLog):
                verify(moved)


def test_half_a_line_shows(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_bytes(b"".join(LINES)[:-1])
    with pytest.raises(BrokenLog, match="the line is incomplete"):
        verify(file)
    file.write_bytes(b"".join(LINES))
    assert len(verify(file).records) == len(LINES)


@pytest.mark.parametrize(
    "record",
    [
        "{1}",
        '{"event":"x"}',
        upstream(-1),
        upstream(0).replace('"A"', '""'),
        upstream(0).replace('"step":0', '"step":true'),
        upstream(0).replace('"noop"', '"noop","event":"x"'),
    ],
)
def test_hashes_alone_make_no_record(record: str) -> None:
    with pytest.raises(BrokenLog):
        verify(chained(record), end_required=False)


def test_records_are_of_one_run_and_in_the_order_of_steps() -> None:
    for second in (upstream(0), upstream(2).replace("abc123", "abc124")):
        with pytest.raises(BrokenLog):
            verify(chained(upstream(1), second), end_required=False)


def test_a_forger_without_the_key_cannot_write_the_end() -> None:
    sealed = play(None, COUNT, NOOP, key=b"k" * 32).lines
    assert verify(sealed, key=b"k" * 32).records[-1].event == END
    for lines, key in ((sealed, b"x" * 32), (play(None, COUNT, NOOP).lines, b"k" * 32)):
        with pytest.raises(BrokenLog, match="seal"):
            verify(lines, key=key)
    with pytest.raises(BrokenLog, match="missing"):
        verify(sealed[:-1], key=b"k" * 32, end_required=False)


def test_a_hash_kept_elsewhere_anchors_the_log() -> None:
    played = play(None, COUNT, NOOP)
    assert verify(played.lines, head=played.head).head == played.head
    with pytest.raises(BrokenLog, match="expected head"):
        verify(play(None, ROLL, NOOP).lines, head=played.head)


def test_a_log_is_private_new_and_on_the_disk_when_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    file = tmp_path / "run.jsonl"
    with RunLog.create(file, RunHeader.new()) as log:
        log.write("noop", 0, {})
        assert file.read_bytes().endswith(b"}\n")
        log.write(END, 1, {})
        with pytest.raises(ValueError, match="ended"):
            log.write("noop", 1, {})
    log.close()
    assert len(synced) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        RunLog.create(file, RunHeader.new())
    assert len(verify(file).records) == 2


def test_what_cannot_be_written_leaves_the_chain_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with RunLog.create(file, RunHeader.new()) as log:
        with pytest.raises(ValueError, match="JSON"):
            log.write("noop", 0, {"a": object()})
        log.write(END, 0, {})
    assert len(verify(file).records) == 1


def test_nothing_is_no_log() -> None:
    with pytest.raises(BrokenLog):
        verify([])


@pytest.mark.parametrize("count", ["1", "3", "null", '"2"'])
def test_the_end_counts_the_records(count: str) -> None:
    end = upstream(1).replace('"noop"', f'"{END}"')
    assert len(verify(chained(upstream(0), end.replace('"p":"a\\/b"', '"records":2'))).records) == 2
    with pytest.raises(BrokenLog, match="number of records"):
        verify(chained(upstream(0), end.replace('"p":"a\\/b"', f'"records":{count}')))


def test_an_empty_key_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="key is empty"):
        RunLog(io.BytesIO(), RunHeader("ab" * 16), key=b"")
    with pytest.raises(ValueError, match="key is empty"):
        RunLog.create(tmp_path / "log", RunHeader("ab" * 16), key=b"")
    assert not (tmp_path / "log").exists()
    with pytest.raises(ValueError, match="key is empty"):
        verify(LINES, key=b"")
