"""Test plans in TOML: intents, facts, credentials and invocations that the manifest does not supply.

``docs/reference/conformance.md`` has an example with all tables. In texts, ``$now``, ``$now-30s`` and ``$now+2h`` stand
for timestamps relative to the start of the test. Only tools that the plan names are invoked. The parameter ``now`` of
functions is a Unix time in seconds.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

_RELATIVE_TIME: Final = re.compile(r"\$now(?:([+-])(\d{1,7})([smhd]))?")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class PlanError(Exception):
    """A plan is unreadable or invalid."""


class PlanTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of the tables of a plan."""


class Credentials(PlanTable, frozen=True, kw_only=True):
    """The token of the client, and the token of an approver (extension ``x-approvals``), with their scheme."""

    token: str | None = None
    approver_token: str | None = None
    scheme: str = "bearer"

    def __repr__(self) -> str:  # hides the tokens
        return f"Credentials(scheme={self.scheme!r})"

    def headers_of(self, token: str | None) -> dict[str, str]:
        """Return the HTTP headers that carry a token in this scheme."""
        if token is None:
            return {}
        if self.scheme == "api_key":
            return {"X-MangleCP-API-Key": token}
        return {"Authorization": f"Bearer {token}"}


class PlannedIntent(PlanTable, frozen=True, kw_only=True):
    """An intent with its facts, and with the tools and skills that its evaluation must and must not return."""

    label: str
    name: str
    eval_time: str
    facts: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] | None = None
    expects: tuple[str, ...] = ()  # tools that must be offered
    absent: tuple[str, ...] = ()  # tools that must not be offered
    rivals: tuple[tuple[str, str], ...] = ()  # pairs of tools of which at most one is offered
    needs: tuple[tuple[str, str], ...] = ()  # pairs: a tool, and a second tool without which the first is not offered
    skills: tuple[str, ...] = ()  # ids of skills that must come with the tools
    no_skills: tuple[str, ...] = ()  # ids of skills that must not come with the tools

    def payload(self, **changes: Any) -> dict[str, Any]:
        """Return the payload of an ``intent_request``; ``changes`` replace members, the value ``...`` removes one."""
        intent: dict[str, Any] = {"name": self.name}
        if self.params is not None:
            intent["params"] = self.params
        payload = {"intent": intent, "facts": list(self.facts), "eval_time": self.eval_time, **changes}
        return {name: value for name, value in payload.items() if value is not ...}


class Invocation(PlanTable, frozen=True, kw_only=True):
    """A tool that may be invoked."""

    intent: PlannedIntent
    tool: str
    args: Mapping[str, Any] = {}
    wrong_args: Mapping[str, Any] | None = None  # arguments that violate the schema of the tool
    suggests: str | None = None  # the intent that the result suggests
    expired: bool = False  # whether the validity of the tool has ended, by the server's clock
    confirm: bool = False  # whether the tool needs an approval
    fails: bool = False  # whether the run fails
    slow: bool = False  # whether the run takes long enough to be cancelled

    def is_plain(self) -> bool:
        """Return whether the invocation can succeed at once: it needs no approval, has not expired, and is fast."""
        return not (self.confirm or self.expired or self.fails or self.slow)


class Window(PlanTable, frozen=True, kw_only=True):
    """A tool that is offered at the evaluation time ``inside`` and not at ``outside``, with the same facts."""

    intent: PlannedIntent
    tool: str
    inside: str
    outside: str


class DeniedIntent(PlanTable, frozen=True, kw_only=True):
    """An intent that policy refuses."""

    intent: PlannedIntent
    code: str  # the expected code of the error
    token: str | None = None  # by default the token of the plan's credentials


class Plan(PlanTable, frozen=True, kw_only=True):
    """A test plan. With the empty plan, only intents of the manifest are evaluated, and no tool is invoked."""

    credentials: Credentials = Credentials()
    intents: tuple[PlannedIntent, ...] = ()
    invocations: tuple[Invocation, ...] = ()
    windows: tuple[Window, ...] = ()
    denied: tuple[DeniedIntent, ...] = ()
    from_file: bool = False  # False for the empty plan


def format_instant(seconds: float) -> str:
    """Return the RFC 3339 timestamp of a Unix time."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_plan(path: Path, now: float | None = None) -> Plan:
    """Read a plan; ``now`` is by default the current time. Raises :class:`PlanError`."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not TOML: {error}") from None
    try:
        now = time.time() if now is None else now
        return _convert_plan(_expand_times(document, now), now)
    except (TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"{path}: {error}") from None


def _convert_plan(document: dict[str, Any], now: float) -> Plan:
    intents: dict[Any, dict[str, Any]] = {}  # the tables of intents, by label
    for table in document.get("intents", ()):
        intent = {"label": table.get("name"), "eval_time": format_instant(now), **table}
        if intent["label"] in intents:
            raise PlanError(f"the label {intent['label']} occurs twice")
        intents[intent["label"]] = intent
    for table in (table for name in ("invocations", "windows", "denied") for table in document.get(name, ())):
        if table.get("intent") not in intents:
            raise PlanError(f"there is no intent labelled {table.get('intent')}")
        table["intent"] = intents[table["intent"]]
    credentials = document.get("credentials", {})
    for name in ("token", "approver_token"):
        variable = credentials.pop(f"{name}_env", None)
        if variable is not None:
            if variable not in os.environ:
                raise PlanError(f"the environment has no {variable}")
            credentials[name] = os.environ[variable]
    if credentials.get("scheme", "bearer") not in ("bearer", "api_key", "oauth2"):
        raise PlanError("the scheme is bearer, api_key or oauth2")
    return msgspec.convert({**document, "intents": list(intents.values()), "from_file": True}, Plan)


def _expand_times(node: Any, now: float) -> Any:
    """Return the value with RFC 3339 timestamps for ``$now…`` and TOML date-times."""
    if isinstance(node, dict):
        return {key: _expand_times(value, now) for key, value in node.items()}
    if isinstance(node, list):
        return [_expand_times(value, now) for value in node]
    if isinstance(node, str) and (match := _RELATIVE_TIME.fullmatch(node)):
        sign, number, unit = match.groups()
        offset_seconds = 0 if sign is None else int(f"{sign}{number}") * _UNIT_SECONDS[unit]
        return format_instant(now + offset_seconds)
    if isinstance(node, datetime):
        return format_instant(node.timestamp())
    return node
