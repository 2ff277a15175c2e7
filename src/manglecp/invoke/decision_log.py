"""The decision log: a record of every verdict, from which the verdict can be explained later.

A record has the inputs of a decision (intent, arguments, facts, the caller's rights, the time), their digests, the
verdict, its reasons, and the places of the rules that decided. A log with the content ``digests`` omits the inputs.
The values of secret arguments are never recorded, nor are inputs of more than :data:`MAX_INPUT_BYTES`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec

from manglecp.base.cache import LruCache
from manglecp.base.digest import digest, digest_bytes
from manglecp.base.ids import ordered_id
from manglecp.base.json import Uncanonical
from manglecp.intent import Decision, PolicyRefusal, ProofInputs, Scope, make_redactor, refused_intent
from manglecp.invoke.calls import secret_names
from manglecp.mangle import instant_text, plain_json
from manglecp.store import DecisionRecord, Store, StoreError
from manglecp.wire import WireError
from manglecp.wire.messages import PermitReport

DecisionContent: TypeAlias = Literal["full", "digests"]
MAX_INPUT_BYTES: Final = 262_144
_MAX_QUEUED: Final = 1_024
_MAX_BATCH: Final = 256
_MAX_REVISIONS: Final = 16
_log = logging.getLogger(__name__)


class DecisionInputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs from which a decision can be made again."""

    args: dict[str, Any]
    """The arguments, with those defaults of the tool that were known."""
    proof: ProofInputs
    permissions: tuple[str, ...] = ()
    auto_confirm: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    """The facts about the call and its run."""


class DecisionDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sealed content of a record."""

    at_ns: int
    """The evaluation time."""
    intent: str | None = None
    trust: str
    facts_version: str = ""
    inputs_digest: str
    """The digest of the pack, the caller's rights, the intent, the session facts and the evaluation time."""
    facts_digest: str
    """The digest of the facts about the call and its run."""
    offered: str | None = None
    scope: Scope = "proof"
    reasons: tuple[str, ...] = ()
    """The reasons that operators see."""
    public_reasons: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    """The places, as ``file:line``, of the policy clauses that decided."""
    code: str | None = None
    """The error code that the client received."""
    inputs: DecisionInputs | None = None
    """None if the inputs are not recorded; ``left_out`` is the reason."""
    left_out: str | None = None
    outcome: dict[str, Any] | None = None
    """What the client reported about the call of a permit."""


class DecisionLog:
    """Records decisions in the store. Used from one event loop; :meth:`build` from any thread.

    For a decision that precedes an effect, pass the result of :meth:`build` to the transaction that records the effect
    (:meth:`.Writer.write`). For any other decision, await :meth:`record`::

        decision = decide(domain, call, identity, now_ns, call.facts(domain))
        decision_id = await log.record(decision, "guard")

    ``operation`` names the purpose of the decision in one word. Both methods add the id of the record to
    ``decision.error`` as the member ``x-decision`` of its details.
    """

    def __init__(
        self, store: Store, clock: Callable[[], int], content: DecisionContent = "full", *, emit: bool = False
    ) -> None:
        """``clock`` returns nanoseconds since 1970. ``emit`` also logs each record, without inputs and reasons."""
        self._store = store
        self._clock = clock
        self._content = content
        self._emit = emit
        self._secrets: LruCache[str, dict[str, frozenset[str]]] = LruCache(_MAX_REVISIONS)
        """The secret parameters of each action, by digest of the pack."""
        self._queue: deque[DecisionRecord] = deque()
        self._flush_task: asyncio.Task[None] | None = None
        self._batch: list[DecisionRecord] = []
        """Records that left the queue and are not known to be stored."""
        self._has_failed = False
        """Whether sending ``_batch`` has failed; the store may have committed the records nevertheless."""

    def build(self, decision: Decision, operation: str, run: str | None = None) -> DecisionRecord:
        """Return the record of a decision, with a new id."""
        call, domain = decision.call, decision.domain
        details, args_digest = self._details(decision)
        content = msgspec.json.encode(details)
        if details.inputs is not None and len(content) > MAX_INPUT_BYTES:
            left_out = f"they have more than {MAX_INPUT_BYTES:,} bytes"
            content = msgspec.json.encode(msgspec.structs.replace(details, inputs=None, left_out=left_out))
        record = DecisionRecord(
            id=f"d-{ordered_id()}",
            at_ms=self._clock() // 1_000_000,
            operation=operation,
            principal=decision.identity.name.replace("\0", "�"),  # PostgreSQL cannot store the character NUL
            tool=call.tool.replace("\0", "�"),
            verdict=decision.verdict,
            run=run,
            revision=domain.digest,
            args_digest=args_digest,
            content=content,
        )
        if decision.error is not None:
            add_decision_id(decision.error, record.id)
        if self._emit:
            _log.info("decision", extra={"decision": describe_publicly(record, details)})
        return record

    def build_outcome(self, issued: DecisionRecord, report: PermitReport, now_ns: int, end_ms: int) -> DecisionRecord:
        """Return the record of the outcome of a permit, with the same id for every report about the permit."""
        now_ms, report_members = now_ns // 1_000_000, msgspec.to_builtins(report)
        outcome = {"late": now_ms > end_ms, **report_members}
        if self._content == "digests" or len(msgspec.json.encode(outcome)) > MAX_INPUT_BYTES:
            outcome.pop("result", None)
        left_out = "it is the outcome of a permit"
        details = DecisionDetails(
            at_ns=now_ns, trust="", inputs_digest="", facts_digest="", left_out=left_out, outcome=outcome
        )
        names = ("principal", "tool", "run", "revision")
        return DecisionRecord(
            id=f"d-{issued.run}",
            at_ms=now_ms,
            operation="outcome",
            verdict=report.outcome,
            args_digest=_digest(report_members),
            content=msgspec.json.encode(details),
            **{name: getattr(issued, name) for name in names},
        )

    async def record(self, decision: Decision, operation: str, run: str | None = None) -> str:
        """Queue a decision for the next group commit, and return the id of its record.

        Waits while the queue is full. Raises :class:`.StoreError` if the store does not accept records.
        """
        record = self.build(decision, operation, run)
        await self.add(record)
        return record.id

    async def add(self, record: DecisionRecord) -> None:
        """Queue a record for the next group commit. Waits and raises like :meth:`record`."""
        while len(self._queue) >= _MAX_QUEUED:
            await asyncio.shield(self._flush_soon())
        self._queue.append(record)
        _ = self._flush_soon()

    async def record_refusal(self, refusal: PolicyRefusal) -> str:
        """Record that policy refused an intent or its facts; return the id of the record."""
        return await self.record(refused_intent(refusal), "evaluate")

    async def drain(self) -> None:
        """Commit all queued records."""
        while self._batch or self._queue:
            try:
                await asyncio.shield(self._flush_soon())
            except StoreError as error:
                _log.error("%d decisions were not recorded: %s", len(self._batch) + len(self._queue), error)
                return

    def _flush_soon(self) -> asyncio.Task[None]:
        """Return the task that commits the queue. If a commit fails, it raises the error; the queue is kept."""
        task = self._flush_task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._flush_task = asyncio.create_task(self._flush())
            task.add_done_callback(_log_failure)
        return task

    async def _flush(self) -> None:
        decisions, writer = self._store.decisions, self._store.writer
        while self._batch or self._queue:
            if not self._batch:
                self._batch = [self._queue.popleft() for _ in range(min(_MAX_BATCH, len(self._queue)))]
            is_stored = partial(decisions.exists, decision_id=self._batch[0].id)
            if not (self._has_failed and await writer.read(is_stored)):
                self._has_failed = True
                await writer.append((), self._batch)
            self._has_failed = False
            self._batch = []

    def _details(self, decision: Decision) -> tuple[DecisionDetails, str]:
        """Return the content of a record, and the digest of the arguments."""
        call, domain, identity = decision.call, decision.domain, decision.identity
        args, facts = dict(call.args), tuple([fact.text for fact in decision.facts])
        inputs = left_out = None
        secrets = self.secret_args(decision)
        reasons, public_reasons = decision.reasons, decision.public_reasons
        if secrets:  # reasons may quote secret arguments
            redact = make_redactor([str(args[name]) for name in secrets if args.get(name)])
            reasons, public_reasons = tuple(redact(reasons)), tuple(redact(public_reasons))
        if self._content == "digests":
            left_out = "the server is configured to record digests only"
        elif secrets:
            left_out = "the tool takes secret arguments"
        else:
            permissions = tuple(sorted(identity.permissions))
            inputs = DecisionInputs(
                args=args,
                proof=call.inputs,
                permissions=permissions,
                auto_confirm=identity.auto_confirm_effects,
                facts=facts,
            )
        details = DecisionDetails(
            at_ns=decision.at_ns,
            intent=None if call.inputs.intent is None else call.inputs.intent.name,
            trust=identity.trust,
            facts_version=domain.facts_version,
            inputs_digest=decision.digest,
            facts_digest=digest_bytes("\n".join(facts).encode()),
            offered=decision.offered,
            scope=decision.scope,
            reasons=reasons,
            public_reasons=public_reasons,
            rules=decision.rules if decision.deciding else (),
            code=None if decision.error is None else decision.error.code,
            inputs=inputs,
            left_out=left_out,
        )
        return details, _digest(args)

    def secret_args(self, decision: Decision) -> frozenset[str]:
        """Return the names of the secret arguments: of the tool, and of the actions that it may run."""
        rows, domain = decision.judgement.rows, decision.domain
        secrets = self._secrets.get(domain.digest)
        if secrets is None:
            secrets = {name: secret_names(action.input_schema) for name, action in domain.pack.actions.items()}
            self._secrets.put(domain.digest, secrets)
        names = [secrets.get(str(action), frozenset()) for _, action in rows.get("kernel.may_run", ())]
        if "macro_param" in rows:
            declared_params = {str(name): plain_json(schema) for _, name, schema in rows["macro_param"]}
            names.append(secret_names({"properties": declared_params}))
        return frozenset[str]().union(*names)


def add_decision_id(error: WireError, decision_id: str) -> WireError:
    """Add the id of the decision to the details of its error, and return the error."""
    error.details = {**(error.details or {}), "x-decision": decision_id}
    return error


def explain_approval(error: WireError, decision: Decision) -> WireError:
    """Add the public reasons of the decision to an error that demands an approval, and return the error."""
    if error.code == "confirmation_required" and decision.public_reasons:
        error.message = f"{error.message}. It is needed because {'; '.join(decision.public_reasons)}"
        error.details = {**(error.details or {}), "reasons": list(decision.public_reasons)}
    return error


def describe_publicly(record: DecisionRecord, details: DecisionDetails) -> dict[str, Any]:
    """Return a record without values of arguments and facts, and without reasons, which may quote such values."""
    members = {name: getattr(record, name) for name in record.__struct_fields__ if name not in ("at_ms", "content")}
    members |= {name: getattr(details, name) for name in ("intent", "code", "facts_digest", "inputs_digest", "rules")}
    return {"at": instant_text(record.at_ms * 1_000_000), **members}


def _digest(args: Mapping[str, Any]) -> str:
    try:
        return digest(args)
    except Uncanonical:
        return digest_bytes(msgspec.json.encode(args, order="sorted"))


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("decisions could not be recorded, and are retried with the next one: %s", error)
