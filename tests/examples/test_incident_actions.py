"""The actions of the incident pack do what they say, locked in, on what was recorded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.examples.hosts import Refused, call

PACK = Path(__file__).parents[2] / "examples" / "incident"
ROUTES = "app/routes.toml"
USERS = {"at": "2026-02-19T14:29:59.004Z", "method": "GET", "url": "https://shop.example/api/users", "status": 404}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The application as it was recorded, to be changed."""
    shutil.copytree(PACK / "recorded" / "app", tmp_path / "app")
    return tmp_path


def test_failed_requests_are_those_of_the_session(workspace: Path) -> None:
    found = call(PACK, "failed_requests", workspace, har="session.har")["requests"]
    assert [request["at"] for request in found] == ["2026-02-19T14:29:59.004Z", "2026-02-19T14:30:04.210Z"]
    assert found[0] == USERS
    assert call(PACK, "failed_requests", workspace, har="session.har", url_contains="/orders") == {"requests": []}


def test_the_workspace_goes_before_what_was_recorded(workspace: Path) -> None:
    (workspace / "session.har").write_text('{"log": {"entries": []}}')
    assert call(PACK, "failed_requests", workspace, har="session.har") == {"requests": []}


def test_errors_of_a_log_newest_last(workspace: Path) -> None:
    lines = call(PACK, "read_log", workspace, file="api.log")["lines"]
    assert [line["at"] for line in lines] == ["2026-02-19T14:29:59Z", "2026-02-19T14:30:04Z"]
    assert lines[0] == {"at": "2026-02-19T14:29:59Z", "level": "ERROR", "message": "no route for GET /api/users"}
    assert call(PACK, "read_log", workspace, file="api.log", lines=1)["lines"] == lines[1:]


def test_an_error_is_laid_to_the_last_failure_before_it(workspace: Path) -> None:
    earlier = {**USERS, "at": "2026-02-19T14:29:00Z", "status": 500}
    later = {**USERS, "at": "2026-02-19T14:31:00Z", "status": 500}
    error = {"at": "2026-02-19T14:30:00Z", "message": "TypeError"}
    first = {"at": "2026-02-19T14:00:00Z", "message": "RangeError"}
    chain = call(PACK, "correlate", workspace, requests=[earlier, USERS, later], errors=[error, first])["chain"]
    assert chain == [{"error": first, "request": None}, {"error": error, "request": USERS}]


@pytest.mark.parametrize(
    ("status", "cause", "fix"),
    [(404, "missing_route", "add_route /api/users"), (500, "server_error", ""), (0, "unreachable", "")],
)
def test_the_cause_goes_by_the_status(workspace: Path, status: int, cause: str, fix: str) -> None:
    error = {"at": "2026-02-19T14:30:00Z", "message": "TypeError"}
    chain: list[Any] = [{"error": error, "request": None}, {"error": error, "request": {**USERS, "status": status}}]
    found = call(PACK, "name_cause", workspace, chain=chain, log=[])
    assert (found["cause"], found["fix"], found["proven"]) == (cause, fix, False)
    logged = {"at": "2026-02-19T14:29:59Z", "level": "ERROR", "message": "no route for GET /api/users"}
    found = call(PACK, "name_cause", workspace, chain=chain, log=[logged])
    assert found["proven"]
    assert found["causal_chain"] == [f"GET /api/users was answered with {status}", logged["message"], "TypeError"]
    with pytest.raises(Refused, match="follows a failed request"):
        call(PACK, "name_cause", workspace, chain=chain[:1], log=[])


def test_a_change_is_shown_made_and_taken_back(workspace: Path) -> None:
    before = (workspace / ROUTES).read_text()
    patch = call(PACK, "propose_patch", workspace, file=ROUTES, fix="add_route /api/users")
    assert '+"/api/users" = "users.index"\n' in patch["diff"]
    assert (workspace / ROUTES).read_text() == before
    made = call(PACK, "replace_file", workspace, file=ROUTES, text=patch["after"], expected=patch["digest"])
    assert (workspace / ROUTES).read_text() == patch["after"]
    assert call(PACK, "check_routes", workspace, file=ROUTES) == {"routes": ["/", "/api/orders", "/api/users"]}
    with pytest.raises(Refused, match="already"):
        call(PACK, "propose_patch", workspace, file=ROUTES, fix="add_route /api/users")
    with pytest.raises(Refused, match="changed since it was read"):
        call(PACK, "replace_file", workspace, file=ROUTES, text="", expected=patch["digest"])
    call(PACK, "replace_file", workspace, file=ROUTES, text=made["previous"], expected=made["digest"])
    assert (workspace / ROUTES).read_text() == before


@pytest.mark.parametrize("file", ["../x", "/etc/hostname", "app/./routes.toml", "app//routes.toml", "app/../app/x"])
def test_other_spellings_of_a_path_are_refused(workspace: Path, file: str) -> None:
    """A policy that goes by the name of a file must not be got around by writing the name differently."""
    with pytest.raises(Refused, match="plain relative path"):
        call(PACK, "replace_file", workspace, file=file, text="", expected="")


def test_only_changes_that_are_known_are_made(workspace: Path) -> None:
    with pytest.raises(Refused, match="is not supported"):
        call(PACK, "propose_patch", workspace, file=ROUTES, fix="remove_route /api/orders")


def test_what_was_recorded_is_never_written(tmp_path: Path) -> None:
    before = (PACK / "recorded" / ROUTES).read_text()
    with pytest.raises(Refused, match="FileNotFoundError"):
        call(PACK, "replace_file", tmp_path, file=ROUTES, text="", expected="")
    assert (PACK / "recorded" / ROUTES).read_text() == before
