"""The gate of one server: which tools are listed, and which calls are forwarded.

In shadow mode every call is forwarded; the decision log has the verdict that the rules derive. With ``enforce`` a
denied call and one that needs an approval are answered with a tool error. An approval is bound to the configuration,
the rules, the pins, the tool and the arguments, and is used once.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from manglecp.base.diagnostic import DiagnosticError
from manglecp.base.ids import random_id
from manglecp.base.text import escape_invisible
from manglecp.guard.domain import load_guard_domain
from manglecp.guard.frames import encode, find_variant
from manglecp.guard.host_config import GuardError
from manglecp.guard.lock import FILE, Lock, PinnedTool, definition_digest, definition_of, find_flaw, qualified_name
from manglecp.intent import Call, Decision, Domain, Identity, decide
from manglecp.invoke import ApprovalService, DecisionLog, PermitService
from manglecp.mangle import Fact
from manglecp.store import DecisionRecord, Store, StoreError, open_store
from manglecp.wire import WireError
from manglecp.wire.messages import DecidePayload, PermitReport

OPERATION: Final = "guard"
"""The ``operation`` of a record in the decision log whose decision was enforced."""
SHADOW_OPERATION: Final = "guard-shadow"
"""The ``operation`` of a record of shadow mode, in which every call is forwarded."""
_STORE: Final = Path(".manglecp") / "guard.db"
_REMEDY_SECONDS: Final = 0.03
_UNPINNED: Final = f"the tool is not pinned in {FILE}: an operator has to run `manglecp guard pin`"
_CHANGED: Final = f"its definition is not the one pinned in {FILE}: an operator has to run `manglecp guard pin --diff`"
_NEW_TEXT: Final = f"they are not those pinned in {FILE}; `manglecp guard pin` shows and accepts them"
_DUPLICATE: Final = "two tools of the server have this name"


def store_path(config: Path) -> Path:
    """Return the path of the store of the guards of a configuration."""
    return config.parent / _STORE


def principal_name(config: Path) -> str:
    """Return the name of the principal of all calls that the host of a configuration makes."""
    return f"mcp:{config.name}"


def warn(message: str) -> None:
    """Write a message on standard error, where hosts log what their servers report."""
    with suppress(OSError):
        sys.stderr.write(f"manglecp guard: {escape_invisible(message)}\n")
        sys.stderr.flush()


class Admission(NamedTuple):
    """The answer of the gate about a call."""

    refusal: str | None = None
    """The text for the model; None if the call is forwarded."""
    record: DecisionRecord | None = None
    """The decision about a call that is forwarded; :meth:`Gate.report` records the outcome of the call later."""


class _Listed(NamedTuple):
    """A tool as the server listed it."""

    digest: str
    flaw: str | None


class Gate:
    """Decides about the tools and the calls of one server of a configuration."""

    def __init__(self, config: Path, server: str, *, rules: Path | None, enforce: bool) -> None:
        self.enforce = enforce
        self._config = config
        self._server = server
        self._rules = rules
        files = rf"{re.escape(FILE)}|{re.escape(_STORE.parent.name)}|{re.escape(config.name)}|\.mg\b"
        self._own_files = re.compile(files.encode(), re.IGNORECASE)
        self._identity = Identity(principal_name(config), frozenset(), "local")
        self._id = random_id()
        self._numbers = count()
        self._domain: Domain | None = None
        self._pins: Mapping[str, PinnedTool] = {}
        self._instructions: str | None = None
        self._lock_stamp: object = None
        self._listed: dict[str, _Listed] = {}
        self._store: Store | None = None
        self._reports: set[asyncio.Task[None]] = set()
        try:
            path = store_path(config)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            (path.parent / ".gitignore").write_text("*\n")  # arguments of calls are private
            self._store = open_store(str(path))
            self._log = DecisionLog(self._store, time.time_ns)
            approvals = ApprovalService(self._store, time.time_ns)
            self._permits = PermitService(self._store, approvals, self._log, time.time_ns, OPERATION)
        except (OSError, StoreError) as error:
            warn(f"{path}: {error}; {self._consequence}")
        self._refresh()

    @property
    def _consequence(self) -> str:
        return "no call is forwarded" if self.enforce else "calls are forwarded, and no decision is made"

    def _refresh(self) -> None:
        """Read the lock and the rules again if the lock was replaced."""
        path = self._config.with_name(FILE)
        try:
            status = path.stat()
            stamp: object = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = ""
        if stamp == self._lock_stamp:
            return
        self._lock_stamp, self._domain, self._pins, self._instructions = stamp, None, {}, None
        try:
            lock = Lock(self._config)
            self._pins = lock.servers.get(self._server, {})
            self._instructions = lock.instructions.get(self._server)
            self._domain = load_guard_domain(self._config, lock.servers, self._rules)
        except GuardError as error:
            warn(f"{error}; {self._consequence}")
        except DiagnosticError as error:
            warn("\n".join([*(found.render() for found in error.diagnostics), f"{self._consequence}"]))

    def result_filter(self, request: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return the function that filters the result of a request; None if no filter applies.

        In shadow mode the relay calls the function for its warnings, and forwards the result as it is.
        """
        if request["method"] == "tools/list":
            params = request.get("params")
            return partial(self._filter_page, is_first_page=not (isinstance(params, dict) and params.get("cursor")))
        return self._filter_instructions if request["method"] in ("initialize", "server/discover") else None

    def _filter_page(self, result: dict[str, Any], *, is_first_page: bool) -> dict[str, Any]:
        tools = result.get("tools")
        passed = self._list_tools(tools if isinstance(tools, list) else [], is_first_page=is_first_page)
        return _without(result, "tools") | {"tools": passed}

    def _filter_instructions(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result without the instructions of the server, unless they are those that are pinned."""
        self._refresh()
        without_instructions = _without(result, "instructions")
        if result in (without_instructions, without_instructions | {"instructions": self._instructions}):
            return result
        warn(f"{self._server}: its instructions are {'not sent' if self.enforce else 'suspicious'}: {_NEW_TEXT}")
        return without_instructions

    def _list_tools(self, tools: Sequence[Any], *, is_first_page: bool) -> list[Any]:
        """Note the tools that the server lists on a page, and return those that are not quarantined."""
        self._refresh()
        if is_first_page:
            self._listed = {}
        before = dict(self._listed)
        named = [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
        counts = Counter(tool["name"] for tool in named)
        for tool in named:
            name, definition = tool["name"], definition_of(tool)
            listed = _Listed(definition_digest(definition), find_flaw(tool))
            # A page may arrive twice, and the pages of two listings may alternate: an equal definition is no duplicate.
            is_duplicate = counts[name] > 1 or before.get(name, listed) != listed
            self._listed[name] = listed._replace(flaw=_DUPLICATE) if is_duplicate else listed
            if (reason := self._quarantine(name)) is not None:
                warn(f"{self._server}.{name} is {'not listed' if self.enforce else 'suspicious'}: {reason}")
        return [tool for tool in named if self._quarantine(tool["name"]) is None]

    def _quarantine(self, tool: str) -> str | None:
        """Return why a tool is quarantined, or None. A tool that was not listed is taken for the pinned one."""
        pinned, listed = self._pins.get(tool), self._listed.get(tool)
        if listed is not None and listed.flaw is not None:
            return listed.flaw
        if pinned is None:
            return _UNPINNED
        return None if listed is None or listed.digest == pinned.digest else _CHANGED

    async def admit(self, tool: str, args: Mapping[str, Any]) -> Admission:
        """Decide about a call and record the decision; with ``enforce`` the answer may be a refusal."""
        self._refresh()
        try:
            decision = self._decide(tool, args)
            if self.enforce and decision.verdict == "deny":
                await self._log.record(decision, OPERATION)
                return Admission(self._denial(tool, decision))
            if self.enforce and decision.verdict == "ask":
                return await self._permit(tool, decision)
            operation = OPERATION if self.enforce else SHADOW_OPERATION
            record = self._log.build(decision, operation, f"c-{self._id}-{next(self._numbers)}")
            if self.enforce and self._store is not None:
                await self._store.writer.append((), [record])  # a call without a stored decision is not forwarded
            else:
                await self._log.add(record)
            return Admission(record=record)
        except WireError as error:
            problem = error.message
        except StoreError as error:
            problem = f"the decision log cannot be written: {error}"
        if self.enforce:
            return Admission(_not_executed(tool, problem))
        warn(f"{self._server}.{tool} is forwarded without a decision: {problem}")
        return Admission()

    def _decide(self, tool: str, args: Mapping[str, Any]) -> Decision:
        """Return the decision about a call. Raises :class:`.WireError`."""
        domain = self._domain
        if domain is None or self._store is None:
            raise WireError("internal_error", "the guard has no valid rules, lock or store; its log names the reason")
        name, pinned, reason = qualified_name(self._server, tool), self._pins.get(tool), self._quarantine(tool)
        call, unpinned_facts = Call(name, args), [] if pinned is not None else [Fact("macro", (name, ""))]
        if pinned is not None and reason is None:
            variant = find_variant(args, domain.pack.actions[name].input_schema["properties"])
            reason = variant and f"{variant}: a server may read either of the two"
        try:
            facts = [*call.facts(domain), *unpinned_facts]
            encoded = encode(args)
            # A tool that writes files could change the pins. One that takes URIs decodes %2E.
            if self._own_files.search(encoded) or self._own_files.search(unquote_to_bytes(encoded)):
                facts.append(Fact("guard_file", (name,)))
            if reason is None:
                return decide(domain, call, self._identity, time.time_ns(), facts)
        except WireError as error:  # the call was attempted, so it is recorded, as a denial
            problems = [found["message"] for found in (error.details or {}).get("schema_errors", ())]
            reason = f"the rules cannot decide: {'; '.join(problems) or error.message}"
            facts = [Fact("call", (name,)), *unpinned_facts]
        facts.append(Fact("quarantined", (name, reason)))
        return decide(domain, call, self._identity, time.time_ns(), facts)

    def _denial(self, tool: str, decision: Decision) -> str:
        reasons = "; ".join(decision.public_reasons) or "policy does not permit this call"
        remedies = [remedy.text for remedy in decision.find_remedies(_REMEDY_SECONDS)]
        end = "" if remedies else "A repetition of this call will be refused as well."
        return " ".join([_not_executed(tool, reasons), *remedies, end]).rstrip()

    async def _permit(self, tool: str, decision: Decision) -> Admission:
        """Record a permit for the call; if an approval is missing, return a refusal that states how to give it."""
        payload = DecidePayload(tool=decision.call.tool, args=dict(decision.call.args), permit=True)
        for is_last in (False, True):
            try:
                _, record = await self._permits.issue(payload, decision)
                return Admission(record=record)
            except WireError as error:
                if error.code != "confirmation_required":
                    raise
                approval_id = (error.details or {})["challenge"]["approval"]
                if is_last or not await self._is_approved(approval_id):
                    return Admission(self._request_text(tool, decision, approval_id))
                payload = msgspec.structs.replace(payload, approval=approval_id)
        raise AssertionError("the second attempt returns or raises")

    async def _is_approved(self, approval_id: str) -> bool:
        store = self._store
        assert store is not None
        approval = await store.writer.read(lambda tx: store.approvals.find(tx, approval_id))
        return approval is not None and approval.state == "approved"

    def _request_text(self, tool: str, decision: Decision, approval_id: str) -> str:
        reasons = "; ".join(decision.public_reasons) or "rules demand it"
        roles = " and ".join(decision.judgement.safety.approver_roles)
        approval = f"an approval by an approver with the role {roles}" if roles else "an approval"
        path = shlex.quote(str(store_path(self._config)))
        return (
            f"{_not_executed(tool, f'it needs {approval}, because {reasons}')} "
            f"Ask the user to run: manglecp approvals approve {approval_id} --store {path}\n"
            "Then repeat this call with exactly the same arguments. The approval holds for that call, once."
        )

    def report(self, admission: Admission, *, failed: bool) -> None:
        """Record the outcome of a forwarded call, in the background."""
        record = admission.record
        if record is None:
            return
        now_ns = time.time_ns()
        report = PermitReport(permit=str(record.run), outcome="failure" if failed else "success")
        task = asyncio.create_task(self._report(self._log.build_outcome(record, report, now_ns, now_ns)))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _report(self, outcome: DecisionRecord) -> None:
        try:
            await self._log.add(outcome)
        except StoreError as error:
            warn(f"the outcome of {outcome.run} was not recorded: {error}")

    async def close(self) -> None:
        """Commit what is queued, and close the store."""
        if self._store is not None:
            await asyncio.gather(*self._reports)
            await self._log.drain()
            self._store.close()


def _without(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the members without ``name`` in upper, lower or mixed case: some hosts ignore the case of names."""
    return {key: value for key, value in members.items() if key.casefold() != name}


def _not_executed(tool: str, reason: str) -> str:
    return f"The call of {tool} was not executed: {reason.rstrip('.')}."
