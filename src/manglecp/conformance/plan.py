"""A plan: what a server may be asked beyond what its manifest says, in TOML.

    [credentials]
    token = "…"                       # or token_env = "NAME"
    scheme = "bearer"                 # or "api_key"
    identity = "ada"                  # with secret or secret_env (hexadecimal): whoever confirms
    secret_env = "SECRET"

    [[intents]]
    label = "diagnosis"               # by default its name
    name = "diagnose_error"
    eval_time = "$now"
    expects = ["full_stack_diagnosis"]
    absent = ["apply_fix"]
    facts = [{ pred = "console_event", args = ["s1", "error", "it broke", "$now-10s"] }]

    [[invocations]]
    intent = "diagnosis"
    tool = "full_stack_diagnosis"
    args = {}
    wrong_args = { lines = "many" }

``$now``, ``$now-30s``, ``$now+2h`` stand for instants around the begin of the test. Only tools that a plan names are
ever invoked.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

_MOMENT: Final = re.compile(r"\$now(?:([+-])(\d{1,7})([smhd]))?")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class PlanError(Exception):
    """A plan that cannot be read."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity of the checks. ``secret`` signs confirmation tokens for ``identity``."""

    token: str | None = field(default=None, repr=False)
    scheme: str = "bearer"
    identity: str = "anonymous"
    secret: bytes | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        if self.token is None:
            return {}
        if self.scheme == "api_key":
            return {"X-MangleCP-API-Key": self.token}
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """An intent and its facts. ``rivals``: pairs of which one at most is offered; ``needs``: a tool and its need."""

    label: str
    name: str
    eval_time: str
    facts: tuple[Mapping[str, Any], ...] = ()
    params: Mapping[str, Any] | None = None
    expects: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    rivals: tuple[tuple[str, str], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    skills: tuple[str, ...] = ()
    no_skills: tuple[str, ...] = ()

    def payload(self, **changes: Any) -> dict[str, Any]:
        """Return the payload of an ``intent_request``; ``...`` leaves a member out."""
        intent: dict[str, Any] = {"name": self.name}
        if self.params is not None:
            intent["params"] = self.params
        made = {"intent": intent, "facts": list(self.facts), "eval_time": self.eval_time, **changes}
        return {name: value for name, value in made.items() if value is not ...}


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A tool that may be invoked. ``expired``: its window is over; ``confirm``: it needs consent; ``fails``: it cannot
    succeed; ``slow``: it takes long enough to be cancelled."""

    intent: Stated
    tool: str
    args: Mapping[str, Any]
    wrong_args: Mapping[str, Any] | None = None
    suggests: str | None = None
    expired: bool = False
    confirm: bool = False
    fails: bool = False
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A tool that is offered at ``inside`` and not at ``outside``, with the same facts."""

    intent: Stated
    tool: str
    inside: str
    outside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """An intent that policy refuses, for the plan's credentials or for this token."""

    intent: Stated
    code: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Without a file (``given`` is false) only what the manifest lists is requested."""

    credentials: Credentials = Credentials()
    intents: tuple[Stated, ...] = ()
    invocations: tuple[Invocation, ...] = ()
    windows: tuple[Window, ...] = ()
    denied: tuple[Denied, ...] = ()
    given: bool = False


def instant(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_plan(path: Path, now: float | None = None) -> Plan:
    """Read a plan. Raises :class:`PlanError`, which names the key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not TOML: {error}") from None
    try:
        return _plan(_timed(document, time.time() if now is None else now), time.time() if now is None else now)
    except (TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"{path}: {error}") from None


def _plan(document: dict[str, Any], now: float) -> Plan:
    unknown = sorted(set(document) - {"credentials", "intents", "invocations", "windows", "denied"})
    if unknown:
        raise PlanError(f"a plan has no table {unknown[0]}")
    stated: dict[str, Stated] = {}
    for one in document.get("intents", ()):
        made = Stated(
            **{
                "label": one.get("name"),
                "eval_time": instant(now),
                **one,
                **{name: tuple(one.get(name, ())) for name in ("facts", "expects", "absent", "skills", "no_skills")},
                **{name: tuple((a, b) for a, b in one.get(name, ())) for name in ("rivals", "needs")},
            }
        )
        if not isinstance(made.name, str):
            raise PlanError("an intent has a name")
        if made.label in stated:
            raise PlanError(f"the label {made.label} is there twice")
        stated[made.label] = made

    def about(one: dict[str, Any]) -> dict[str, Any]:
        if one.get("intent") not in stated:
            raise PlanError(f"there is no intent labelled {one.get('intent')}")
        return {**one, "intent": stated[one["intent"]]}

    return Plan(
        credentials=_credentials(document.get("credentials", {})),
        intents=tuple(stated.values()),
        invocations=tuple(Invocation(**{"args": {}, **about(one)}) for one in document.get("invocations", ())),
        windows=tuple(Window(**about(one)) for one in document.get("windows", ())),
        denied=tuple(Denied(**about(one)) for one in document.get("denied", ())),
        given=True,
    )


def _credentials(given: dict[str, Any]) -> Credentials:
    given = dict(given)
    for name in ("token", "secret"):
        variable = given.pop(f"{name}_env", None)
        if variable is not None:
            if variable not in os.environ:
                raise PlanError(f"the environment has no {variable}")
            given[name] = os.environ[variable]
    secret = given.pop("secret", None)
    if given.get("scheme", "bearer") not in ("bearer", "api_key", "oauth2"):
        raise PlanError("the scheme is bearer, api_key or oauth2")
    return Credentials(**given, secret=None if secret is None else bytes.fromhex(secret))


def _timed(node: Any, now: float) -> Any:
    if isinstance(node, dict):
        return {key: _timed(value, now) for key, value in node.items()}
    if isinstance(node, list):
        return [_timed(value, now) for value in node]
    if isinstance(node, str) and (found := _MOMENT.fullmatch(node)):
        sign, number, unit = found.groups()
        shift = 0 if sign is None else int(f"{sign}{number}") * _UNITS[unit]
        return instant(now + shift)
    if isinstance(node, datetime):
        return instant(node.timestamp())
    return node
