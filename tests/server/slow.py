"""Evaluations that take as long as a test wants: those of the intent ``slow`` wait in their thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from manglecp.intent import offers
from tests.server.desk import PATIENCE


class Gate:
    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.count = 0
        """How many evaluations have begun."""

    def pass_through(self) -> None:
        self.count += 1
        self.entered.release()
        assert self.open.wait(PATIENCE)


@contextmanager
def slow_evaluations(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    real: Callable[..., Any] = vars(offers)["respond"]

    def respond(domain: Any, request: Any, *more: Any) -> Any:
        if request.payload.intent.name == "slow":
            gate.pass_through()
        return real(domain, request, *more)

    monkeypatch.setattr(offers, "respond", respond)
    try:
        yield gate
    finally:
        gate.open.set()
