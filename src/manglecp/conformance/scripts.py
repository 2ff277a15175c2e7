"""Checks that are data: ``server_scripts/*.toml``. The ids (*rows*) are defined in ``docs/reference/requirements.md``.

A step sends a message for each of its cases, and has patterns of the answer (:mod:`.patterns`). In texts, ``<case>``
stands for the case, ``<null>`` for null, and ``<omitted>`` removes the member; see ``_names_of`` for the other names.
The patterns of a step without a message describe the payload of the manifest.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import msgspec

from manglecp.base.json import resolve_pointer
from manglecp.conformance.connections import (
    Endpoint,
    HttpConnection,
    ServerMessage,
    TransportName,
    comparable,
    get_path,
)
from manglecp.conformance.message_rules import CODE_ROWS
from manglecp.conformance.patterns import differences, fill, matches
from manglecp.conformance.server_test import (
    ALL_TRANSPORTS,
    Check,
    Request,
    ServerTest,
    Untested,
    encode,
    message,
    require,
)
from manglecp.wire.messages import VERSION

E = TypeVar("E")
_SCRIPTS: Final = Path(__file__).parent / "server_scripts"
_PROBE: Final = {"intent": {"name": "conformance_probe"}}  # a valid payload; it returns no tools
_SAMPLES: Final[Mapping[str, Any]] = {"string": "conformance", "number": 1, "boolean": True, "any": "conformance"}
_MAX_NAME_CHARS: Final = 128  # of the name of a predicate
_WRONG_SAMPLES: Final[Mapping[str, Any]] = {"string": 1, "number": "conformance", "boolean": "conformance"}


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Expectation(_Table, frozen=True, kw_only=True):
    """A pattern of the answer: of the members of its envelope, and of ``code``, ``status`` and ``text``."""

    rows: tuple[str, ...]
    answer: Any
    when: Any = {}  # the pattern of the answers to which the expectation applies
    expected: str = ""  # the pattern in words


class Step(_Table, frozen=True, kw_only=True):
    """One message, and its answer. ``send``, ``raw``, ``evaluate``, ``facts`` and ``invoke`` are kinds of messages."""

    each: tuple[Any, ...] = (None,)  # the cases
    send: dict[str, Any] | None = None  # members that are replaced in an intent request for an unknown intent
    raw: str | None = None  # bytes; ``<byte>`` stands for a byte that UTF-8 forbids
    evaluate: dict[str, Any] | None = None  # members that are replaced in the payload for an intent of the plan
    facts: tuple[Any, ...] | None = None  # facts that are added to the payload, as changes of the sample fact
    repeat: Any = 1  # how often the facts are sent
    each_fact: Any = None  # members that each fact of the payload gets
    argument: Any = "<argument>"  # the argument of the sample fact at <position>
    invoke: dict[str, Any] | None = None  # members that are replaced in an invocation of <macro_id> with <args>
    http: dict[str, str] | None = None  # method and URL of a request without a body
    look: Any = None  # a value that is compared with the patterns in place of an answer
    given: str = ""  # a name; if it stands for null, the step is skipped
    token: str | None = "<token>"  # the credential
    endpoint: Endpoint | None = None
    headers: Any = {}
    about: str = ""  # the request in words; by default the case
    code: str | tuple[str, ...] = ()  # the expected code of an error, or one of several
    rows: tuple[str, ...] = ()  # the rows that require this code, in addition to the row of a single code
    expect: tuple[Expectation, ...] = ()
    needs: Any = {}  # a pattern; the check ends if the answer does not match
    otherwise: str = ""  # the reason for the report if the check ends
    capture: dict[str, str] = {}  # the JSON pointer into the answer for each new name

    @property
    def request(self) -> Any:
        """The members or the bytes of the message; None for a step without a message."""
        kinds = (self.raw, self.send, self.facts, self.each_fact, self.evaluate, self.invoke, self.http)
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
    time_factor: float = 1
    manifest: Any = {}  # the pattern of manifests to which the check applies
    otherwise: str = ""  # the reason for the report if the manifest does not match
    predicate: dict[str, Any] | None = None  # the pattern of the predicate of the sample fact
    argument: tuple[str, ...] = ()  # types; the predicate has an argument of one of these types, at <position>
    planned: str = ""  # a table of the plan, or "runs": the steps are repeated for each entry
    where: dict[str, Any] = {}  # the pattern of the entries
    step: tuple[Step, ...]

    def as_check(self) -> Check:
        expectations = (expectation.rows for step in self.step for expectation in step.expect)
        rows = dict.fromkeys(row for rows in (*expectations, *(step.code_rows for step in self.step)) for row in rows)
        return Check(
            self.run, self.name, tuple(rows), self.level, self.transports, self.needs_credential, self.time_factor
        )

    async def run(self, test: ServerTest) -> None:
        """Run the steps. Raises :class:`.Untested` if the check does not apply to the server."""
        require(matches(self.manifest, test.manifest), self.otherwise)
        async for names in self._situations(test):
            for step in self.step:
                if not step.given or names[step.given] is not None:
                    for case in step.each:
                        names |= _names_of(case, test)
                        await _run_step(step, test, names)

    async def _situations(self, test: ServerTest) -> AsyncIterator[dict[str, Any]]:
        """Yield names for the steps: those of each entry of the plan, or those of the predicate."""
        if self.planned == "runs":
            for invocation, tool, answer in await test.runs():
                names = {"offer": tool, "output_schema": tool.get("output_schema"), "run": _view(answer)}
                yield msgspec.structs.asdict(invocation) | names
        elif self.planned == "intents":
            denied_labels = {denied.intent.label for denied in test.plan.denied if denied.token is None}
            for intent in self._planned(test.plan.intents or [await test.usable_intent()], "intent"):
                if intent.label not in denied_labels:
                    yield {"intent": intent, **msgspec.structs.asdict(intent)}
        elif self.planned == "windows":
            for window in self._planned(test.plan.windows, "window"):
                yield msgspec.structs.asdict(window)
        elif self.planned == "denied":
            for denied in self._planned(test.plan.denied, "intent that is refused"):
                names = {"caller": denied.token or test.plan.credentials.token}
                yield msgspec.structs.asdict(denied) | names
        elif self.planned == "invocations":
            for invocation in self._planned(test.plan.invocations, "tool"):
                tool = await test.offered_tool(invocation, options={"disclosure_preference": "full"})
                names = {"macro_id": tool["macro_id"], "offer": tool, "time": invocation.intent.eval_time}
                yield msgspec.structs.asdict(invocation) | names
        else:
            yield {} if self.predicate is None else self._names_of_predicate(self.predicate, test)

    def _planned(self, entries: Sequence[E], what: str) -> list[E]:
        """Return the entries of the plan that match ``where``. Raises :class:`.Untested` if no entry matches."""
        matching = [entry for entry in entries if matches(self.where, msgspec.to_builtins(entry))]
        return require(matching, f"the plan names no {what} for this check")

    def _names_of_predicate(self, pattern: dict[str, Any], test: ServerTest) -> dict[str, Any]:
        """Return the names for the first predicate that matches. Raises :class:`.Untested` if no predicate matches."""
        for schema in test.predicate_schemas:
            is_right_direction = "direction" in pattern or schema.get("direction", "both") != "output"
            has_argument = not self.argument or not set(self.argument).isdisjoint(schema.get("arg_types") or ())
            if is_right_direction and has_argument and matches(pattern, schema):
                break
        else:
            raise Untested("the manifest has no predicate for this check")
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


def _names_of(case: Any, test: ServerTest) -> dict[str, Any]:
    """Return the names of every step. If the case is a table, its members are names, too."""
    envelope = message("intent_request", _PROBE)
    text = json.dumps(envelope)
    credentials = test.plan.credentials
    names = {"null": None, "omitted": ..., "version": VERSION, "level": test.report.level, "manifest": test.manifest}
    names |= {"id": envelope["id"], "message": text, "half": text[: len(text) // 2], "name": "a" * _MAX_NAME_CHARS}
    names |= {"byte": "\udcff", "control": "\x01", "scheme": credentials.scheme, "token": credentials.token}
    names |= {"next_limit": int(get_path(test.manifest, "limits", "max_facts_per_request") or 0) + 1}
    names |= {"credentials": credentials.headers_of(credentials.token)}
    names |= {"approver_token": credentials.approver_token}
    if isinstance(connection := test.shared_connection, HttpConnection):
        urls = {endpoint: connection.endpoint_url(endpoint) for endpoint in get_args(Endpoint)}
        names |= {**urls, "manifest_url": connection.manifest_url, "folder": urls["evaluate"].rpartition("/")[0]}
    case = fill(case, names)
    members = {f"case.{name}": value for name, value in case.items()} if isinstance(case, dict) else {}
    return {**names, **members, "case": case}


async def _run_step(step: Step, test: ServerTest, names: dict[str, Any]) -> None:
    """Send the message of a step, and note the differences of the answer from its patterns."""
    about = fill(step.about, names) or ("" if step.request is None else _describe(fill(step.request, names)))
    if step.http is not None:
        headers = fill(step.headers, names)
        response = await (await test.http()).http_request(**fill(step.http, names), headers=headers)
        view = {"status": response.status_code, "headers": dict(response.headers), "text": response.text}
    elif step.request is None:
        view = fill("<manifest>" if step.look is None else step.look, names)
    else:
        answer = await _answer(step, test, names)
        view = _view(answer)
        if step.code:
            codes = (step.code,) if isinstance(step.code, str) else step.code
            test.note(step.code_rows, answer.code in codes, f"{' or '.join(codes)} for {about}", answer)
    for expectation in step.expect:
        if matches(fill(expectation.when, names), view):
            pattern = fill(expectation.answer, names)
            mismatch = "; ".join(differences(pattern, view))
            expected = fill(expectation.expected, names) or _describe(pattern)
            test.note(expectation.rows, not mismatch, f"{expected} for {about}" if about else expected, mismatch)
    require(matches(fill(step.needs, names), view), fill(step.otherwise, names))
    names |= {name: resolve_pointer(view, pointer) for name, pointer in step.capture.items()}


def _view(answer: ServerMessage) -> dict[str, Any]:
    """Return the object that patterns describe: the envelope of an answer, with additional members."""
    names = [tool.get("name") for tool in answer.tools]
    more = {"code": answer.code, "status": answer.status, "text": answer.data.decode(errors="replace")}
    return {**answer.envelope, **more, "tools": comparable(answer), "names": names}


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
        intent = names.get("intent") or await test.usable_intent()
        changes = fill(step.evaluate or {}, names)
        if step.each_fact is not None:
            changes["facts"] = [{**fact, **fill(step.each_fact, names)} for fact in intent.facts]
        if step.facts is not None:
            names |= {"index": len(intent.facts), "next_index": len(intent.facts) + 1}
            changes["facts"] = [*intent.facts, *(_fact(fact, step, names) for fact in step.facts)]
            changes["facts"] *= fill(step.repeat, names)
        request = message("intent_request", intent.payload(**changes))
    if step.headers:
        data = request if isinstance(request, bytes) else encode(request)
        token_headers = {} if step.token is None else test.plan.credentials.headers_of(fill(step.token, names))
        headers = fill(step.headers, names)
        connection = await test.http()
        return await connection.request(data, step.endpoint or "evaluate", headers=headers, credentials=token_headers)
    if step.token == "<token>":
        return await test.request(request, step.endpoint)
    assert not isinstance(request, bytes)
    return await test.request_as(fill(step.token, names), request, step.endpoint or "evaluate")


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
