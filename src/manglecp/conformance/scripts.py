"""Checks that are data: ``server_scripts/*.toml``. The ids (*rows*) are defined in ``docs/reference/requirements.md``.

A step sends one message, or one for each of its cases, and has patterns of the answer (:mod:`.patterns`). In texts,
``<case>`` stands for the case, ``<null>`` for null, and ``<absent>`` for a member that is left out; see ``_names_of``
for the other names. Without a message, the patterns describe the payload of the manifest.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from manglecp.conformance.connections import Endpoint, ServerMessage, TransportName
from manglecp.conformance.message_rules import CODE_ROWS
from manglecp.conformance.patterns import differences, fill, matches
from manglecp.conformance.server_test import (
    ALL_TRANSPORTS,
    Check,
    Request,
    ServerTest,
    encode,
    message,
    require,
)
from manglecp.wire.messages import VERSION

_SCRIPTS: Final = Path(__file__).parent / "server_scripts"
_PROBE: Final = {"intent": {"name": "conformance_probe"}}  # a valid payload; it returns no tools
_SAMPLES: Final[Mapping[str, Any]] = {"string": "conformance", "number": 1, "boolean": True, "any": "conformance"}
_MAX_NAME_CHARS: Final = 128  # of the name of a predicate
_WRONG_SAMPLES: Final[Mapping[str, Any]] = {"string": 1, "number": "conformance", "boolean": "conformance"}


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Expectation(_Table, frozen=True, kw_only=True):
    """A pattern of the answer, whose members are those of the envelope, and ``code``, ``status`` and ``text``."""

    rows: tuple[str, ...]
    answer: Any
    when: Any = {}  # the pattern of answers to which it applies
    expected: str = ""  # the pattern in words


class Step(_Table, frozen=True, kw_only=True):
    """One message, and its answer. ``send``, ``raw``, ``evaluate``, ``facts`` and ``invoke`` are kinds of messages."""

    each: tuple[Any, ...] = (None,)  # the cases
    send: dict[str, Any] | None = None  # members that are replaced in an intent request for an unknown intent
    raw: str | None = None  # bytes; ``<byte>`` is one that UTF-8 forbids
    evaluate: dict[str, Any] | None = None  # members that are replaced in the payload for an intent of the plan
    facts: tuple[Any, ...] | None = None  # facts that are added to this payload, as changes of the sample
    argument: Any = "<argument>"  # the argument of the sample at <position>
    invoke: dict[str, Any] | None = None  # members that are replaced in an invocation of <macro_id> with <args>
    given: str = ""  # a name that must not stand for null; otherwise the step is left out
    endpoint: Endpoint | None = None
    headers: dict[str, str] = {}
    about: str = ""  # the request in words; by default the case
    code: str | tuple[str, ...] = ()  # the expected code of an error, or one of several
    rows: tuple[str, ...] = ()  # the rows that demand this code, besides the row of a single code itself
    expect: tuple[Expectation, ...] = ()

    @property
    def request(self) -> Any:
        """The members of the message that are given, or its bytes; None without a message."""
        kinds = (self.raw, self.send, self.facts, self.evaluate, self.invoke)
        return next((kind for kind in kinds if kind is not None), None)

    @property
    def code_rows(self) -> tuple[str, ...]:
        return (*self.rows, CODE_ROWS[self.code]) if isinstance(self.code, str) else self.rows


class Script(_Table, frozen=True, kw_only=True):
    """A check."""

    name: str
    level: int = 1
    transports: tuple[TransportName, ...] = ALL_TRANSPORTS
    needs_credential: bool = True
    manifest: Any = {}  # the pattern of manifests to which the check applies
    otherwise: str = ""  # the reason why it does not apply to others
    predicate: dict[str, Any] | None = None  # the pattern of the predicate of which a sample fact is sent
    argument: tuple[str, ...] = ()  # types: the predicate has an argument of one of them, at <position>
    invocations: dict[str, Any] | None = None  # the pattern of the invocations of the plan for which the steps are done
    step: tuple[Step, ...]

    def as_check(self) -> Check:
        expectations = (expectation.rows for step in self.step for expectation in step.expect)
        rows = dict.fromkeys(row for rows in (*expectations, *(step.code_rows for step in self.step)) for row in rows)
        return Check(self.run, self.name, tuple(rows), self.level, self.transports, self.needs_credential, 1)

    async def run(self, test: ServerTest) -> None:
        """Do the steps. Raises :class:`.Untested` if the check does not apply to the server."""
        require(matches(self.manifest, test.manifest), self.otherwise)
        async for names in self._situations(test):
            for step in self.step:
                if not step.given or names[step.given] is not None:
                    for case in step.each:
                        await _run_step(step, test, {**names, **_names_of(case)})

    async def _situations(self, test: ServerTest) -> AsyncIterator[dict[str, Any]]:
        """Yield names for the steps: those of each invocation, or those of the predicate."""
        if self.invocations is not None:
            pattern = self.invocations
            for invocation in test.planned_invocations(lambda one: matches(pattern, msgspec.to_builtins(one))):
                names = {"macro_id": await test.macro_id(invocation), "time": invocation.intent.eval_time}
                yield msgspec.structs.asdict(invocation) | names
        else:
            yield {} if self.predicate is None else self._names_of_predicate(self.predicate, test)

    def _names_of_predicate(self, pattern: dict[str, Any], test: ServerTest) -> dict[str, Any]:
        """Return the names of the first predicate that fits. Raises :class:`.Untested` if there is none."""

        def fits(schema: dict[str, Any]) -> bool:
            types = schema.get("arg_types") or ()
            return matches(pattern, schema) and (not self.argument or not set(self.argument).isdisjoint(types))

        if "direction" in pattern:
            schema = require(list(filter(fits, test.predicate_schemas)), "no predicate has this direction")[0]
        else:
            schema = test.assertable_predicate(fits)
        types = schema.get("arg_types") or ["any"] * int(schema["arity"])
        position = next((position for position, type_ in enumerate(types) if type_ in self.argument), 0)
        args = [_SAMPLES.get(type_, "conformance") for type_ in types]
        names = {"predicate": schema["predicate"], "position": position, "args": args, "more_args": [*args, "one more"]}
        names |= {"arity": len(args), "next_arity": len(args) + 1, "argument": args[position] if args else None}
        return {**names, "wrong": _WRONG_SAMPLES.get(types[position]) if types else None}


def read_scripts() -> Iterator[Check]:
    """Yield the checks of all scripts, in the order of their files."""
    for file in sorted(_SCRIPTS.glob("*.toml")):
        for table in tomllib.loads(file.read_text("utf-8"))["check"]:
            yield msgspec.convert(table, Script).as_check()


def _names_of(case: Any) -> dict[str, Any]:
    """Return the names that every step has; the members of a case that is a table are names, too."""
    envelope = message("intent_request", _PROBE)
    text = json.dumps(envelope)
    names = {"null": None, "absent": ..., "version": VERSION, "byte": "\udcff", "control": "\x01"}
    names |= {"id": envelope["id"], "message": text, "half": text[: len(text) // 2], "name": "a" * _MAX_NAME_CHARS}
    case = fill(case, names)
    members = {f"case.{name}": value for name, value in case.items()} if isinstance(case, dict) else {}
    return {**names, **members, "case": case}


async def _run_step(step: Step, test: ServerTest, names: dict[str, Any]) -> None:
    """Send the message of a step, and note the differences of the answer from its patterns."""
    if step.request is None:
        view, about = test.manifest, "the manifest"
    else:
        answer = await _answer(step, test, names)
        text = answer.data.decode(errors="replace")
        view = {**answer.envelope, "code": answer.code, "status": answer.status, "text": text}
        about = fill(step.about, names) or _describe(fill(step.request, names))
        if step.code:
            test.note_error(answer, step.code, *step.rows, about=about)
    for expectation in step.expect:
        if matches(expectation.when, view):
            pattern = fill(expectation.answer, names)
            found = "; ".join(differences(pattern, view))
            expected = fill(expectation.expected, names) or _describe(pattern)
            test.note(expectation.rows, not found, f"{expected} for {about}", found)


async def _answer(step: Step, test: ServerTest, names: dict[str, Any]) -> ServerMessage:
    request: Request
    if step.raw is not None:
        request = fill(step.raw, names).encode("utf-8", "surrogateescape")
    elif step.send is not None:
        request = message("intent_request", _PROBE, **fill(step.send, names))
    elif step.invoke is not None:
        payload = {"macro_id": names.get("macro_id"), "args": names.get("args"), **fill(step.invoke, names)}
        request = message("invoke_request", payload)
    else:
        intent = await test.usable_intent()
        changes = fill(step.evaluate or {}, names)
        if step.facts is not None:
            names |= {"index": len(intent.facts), "next_index": len(intent.facts) + 1}
            changes["facts"] = [*intent.facts, *(_fact(fact, step, names) for fact in step.facts)]
        request = message("intent_request", intent.payload(**changes))
    if not step.headers:
        return await test.request(request, step.endpoint)
    data = request if isinstance(request, bytes) else encode(request)
    return await (await test.http()).request(data, step.endpoint or "evaluate", headers=step.headers)


def _fact(changes: dict[str, Any], step: Step, names: Mapping[str, Any]) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    if "predicate" in names:
        args = list(names["args"])
        if args:
            args[names["position"]] = fill(step.argument, names)
        sample = {"pred": names["predicate"], "args": args}
    fact = {**sample, **fill(changes, names)}
    return {name: value for name, value in fact.items() if value is not ...}


def _describe(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False, default=lambda _: 'absent'):.300}"
