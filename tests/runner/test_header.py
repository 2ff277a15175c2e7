from __future__ import annotations

import uuid

import pytest

from manglecp.runner import RunHeader
from manglecp.runner.log import RunnerError


@pytest.mark.req("IPC-02")
def test_version_and_profile_have_the_defaults_of_the_contract() -> None:
    members = RunHeader.new().members()
    assert members["spec_version"] == "1.4.2"
    assert members["profile_id"] == "A"


@pytest.mark.req("IPC-03")
def test_a_new_run_has_a_uuid_and_no_request_id_unless_the_caller_gives_one() -> None:
    members = RunHeader.new().members()
    assert str(uuid.UUID(members["run_id"])) == members["run_id"]
    assert "request_id" not in members
    assert RunHeader.new("req-1").members()["request_id"] == "req-1"
    assert RunHeader.new() != RunHeader.new()


@pytest.mark.req("IPC-03")
@pytest.mark.parametrize("run_id", ["f" * 30, "0" * 32, "123e4567-e89b-12d3-a456-426614174000"])
def test_run_ids_of_upstream_are_taken(run_id: str) -> None:
    header = RunHeader(run_id, "r")
    assert RunHeader.read({**header.members(), "event": "noop"}) == header


@pytest.mark.req("IPC-03")
@pytest.mark.parametrize("members", [{}, {"run_id": 7}, {"run_id": ""}, {"run_id": "../x"}, {"run_id": "f" * 33}])
def test_a_run_id_is_required_and_looks_like_one(members: dict[str, object]) -> None:
    with pytest.raises(RunnerError):
        RunHeader.read(members)


@pytest.mark.parametrize("request_id", ["", "a\nb", "x" * 257, 5, "\ud800"])
def test_a_request_id_cannot_break_a_line_of_the_log(request_id: object) -> None:
    with pytest.raises(RunnerError):
        RunHeader.read({"run_id": "ff", "request_id": request_id})
