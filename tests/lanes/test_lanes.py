"""Lanes are derived from what a test can call, and a test cannot leave the fast one unnoticed."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from manglecp.cli import cli
from manglecp.client import Client
from manglecp.pack import read_pack
from manglecp.store import open_store
from tests.docs.snippets import blocks
from tests.lanes import guard
from tests.lanes.marks import RESOURCES, mark_lanes
from tests.lanes.reach import DEPENDS, MARKED, Reach
from tests.store.postgres import empty_database

REACH = Reach()


def marks(function: Any, *params: object) -> set[str]:
    REACH.expand([function])
    return REACH.marks([function], params)


# --- what is derived -------------------------------------------------------------------------------------------------


def direct() -> None:
    subprocess.run(["true"], check=True)


def indirect() -> None:
    direct()


class Holder:
    def method(self) -> None:
        indirect()

    @staticmethod
    def quiet() -> Callable[[], None]:
        return lru_cache(direct)


class Heir(Holder):
    pass


def through_a_class() -> None:
    Heir().method()


def through_a_nested_function() -> None:
    def inner() -> None:
        direct()

    inner()


later = partial(direct)


def through_a_partial() -> None:
    later()


@lru_cache
def cached() -> None:
    direct()


def through_a_wrapper() -> None:
    cached()


def own_import() -> None:
    import subprocess as started

    started.Popen(["true"])


@given(st.none())
def generated(_: None) -> None:
    direct()


def page() -> None:
    exec(next(iter(blocks("README.md"))).body)


def listening() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler):
        pass


def connecting() -> None:
    socket.socket().connect(("127.0.0.1", 9))


def named() -> str:
    return socket.gethostname()


def stored() -> None:
    with empty_database() as url:
        open_store(url)


def in_a_file() -> None:
    open_store("store.sqlite3")


def with_actions() -> None:
    Path("pack/actions.py").touch()
    read_pack(Path("pack"))


def with_rules_only() -> None:
    read_pack(Path("pack"))


def program() -> None:
    Client([sys.executable, "-m", "manglecp"])


def server() -> None:
    Client("http://localhost:1")


def evaluating() -> None:
    CliRunner().invoke(cli, ["eval", "a.mg"])


def serving() -> None:
    CliRunner().invoke(cli, ["serve", "pack"])


PROCESSES = [direct, indirect, through_a_class, through_a_nested_function, through_a_partial, through_a_wrapper]


@pytest.mark.parametrize("function", [*PROCESSES, own_import, generated, with_actions, program])
def test_a_process_is_found(function: Callable[[], None]) -> None:
    assert marks(function) == {"process"}


@pytest.mark.parametrize("function", [listening, connecting])
def test_a_socket_is_found(function: Callable[[], None]) -> None:
    assert marks(function) == {"socket"}


@pytest.mark.parametrize("function", [named, in_a_file, with_rules_only, server, evaluating])
def test_what_only_could_use_a_resource_is_fast(function: Callable[[], None]) -> None:
    assert marks(function) == set()


def test_a_command_is_found_by_its_name() -> None:
    assert "socket" in marks(serving)


def test_postgresql_is_found_in_code_and_in_parameters() -> None:
    assert marks(stored) == {"postgres"}
    assert marks(in_a_file, "postgresql") == {"postgres"}
    assert marks(in_a_file, "file") == set()


def test_a_parameter_may_hold_what_leads_to_a_process() -> None:
    assert marks(with_rules_only, {"actions.py": ""}) == {"process"}


def test_pages_are_found() -> None:
    assert marks(page) == {"docs", "process"}


@pytest.mark.parametrize("name", [*DEPENDS, *MARKED])
def test_the_tables_name_what_is_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert callable(resolve_name(f"{module}:{attribute}"))


@pytest.fixture
def started() -> None:
    indirect()


def test_every_test_is_fast_or_uses_something(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        used = [mark for mark in RESOURCES if item.get_closest_marker(mark)]
        assert bool(used) != bool(item.get_closest_marker("fast")), item.nodeid


@pytest.mark.usefixtures("started")
def test_fixtures_count(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("process")


def test_what_is_no_function_has_no_lane(request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.UsageError, match="can derive the lane of functions only"):
        mark_lanes([request.session])  # type: ignore[list-item]


# --- what is enforced ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", sorted(guard.EVENTS))
def test_a_test_of_the_fast_lane_is_stopped(event: str, request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("fast")
    assert guard._running is not None
    with pytest.raises(guard.LaneError, match=f"is in the fast lane and uses {event}"):
        sys.audit(event)
    teardown = guard.pytest_runtest_teardown()
    next(teardown)
    with pytest.raises(pytest.fail.Exception, match=event):  # even if the code under test went on
        next(teardown)
    guard._running.wrong.clear()


def test_postgresql_is_guarded_too() -> None:
    with pytest.raises(guard.LaneError, match=r"PostgreSQL.*pytest\.mark\.postgres"):
        guard.uses("postgres", "PostgreSQL")
    assert guard._running is not None
    guard._running.wrong.clear()


@pytest.mark.process
def test_a_marked_test_may() -> None:
    sys.audit("os.fork")


def test_what_earlier_tests_left_behind_is_not_blamed_on_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert guard._running is not None
    monkeypatch.setattr(guard._running, "earlier", {threading.get_ident()})
    sys.audit("os.fork")
