"""The door: an invocation comes in, an answer goes out, and nothing between the two depends on who waits for it.

An invocation is *accepted* before it runs. With effects, accepting is one transaction: the run, the burnt confirmation
and the entry in the ledger are there, or none of them is; from then on the run is acknowledged and goes on even if
whoever asked is gone. A request key attaches a repeated request to the run it started the first time.

Runs that another process left behind are taken over from the journal (:meth:`Invoker.take_over`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets as chance
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

import msgspec

from manglecp.harness.canonical import digest, digest_text
from manglecp.harness.policy.package import PolicyPackage
from manglecp.intent.domain import Domain
from manglecp.intent.identity import Identity
from manglecp.intent.responding import respond
from manglecp.intent.secret_settings import hiding
from manglecp.invoke.admission import Admission
from manglecp.invoke.answering import Answering
from manglecp.invoke.answers import Answer, decoded, encoded
from manglecp.invoke.arguments import secret_names, with_defaults
from manglecp.invoke.checking import Checked, Checks, args_digest, invalid_confirmation
from manglecp.invoke.claims import Claims
from manglecp.invoke.confirmation import AutoConfirm, Secrets
from manglecp.invoke.dispatching import Dispatched
from manglecp.invoke.documents import Documents, Proven, question_digest
from manglecp.invoke.history import history_of
from manglecp.invoke.journal import Durable, EndState, Journal, Unrecorded
from manglecp.invoke.observing import event_rows
from manglecp.invoke.outcomes import states_of
from manglecp.invoke.parties import Ended, History, Watch
from manglecp.invoke.plan import Plan
from manglecp.invoke.refusals import Told, gate_refused
from manglecp.invoke.run_rules import RunRules, Spoken
from manglecp.invoke.running import Execution
from manglecp.invoke.settings import InvokeSettings
from manglecp.invoke.trial import refuse_unusable
from manglecp.invoke.turns import GateRefused, RunTerms, Turns
from manglecp.mangle.errors import MangleError
from manglecp.pack.model import Profile
from manglecp.store.ledger import Kind
from manglecp.store.opening import Store
from manglecp.store.registry import Kept
from manglecp.store.runs.errors import Fenced, KeyTaken
from manglecp.store.runs.model import Claimed, NewRun, Run, RunState, Values
from manglecp.store.runs.waiting import pauses
from manglecp.toolhost.dispatch import Dispatcher
from manglecp.wire.errors import WireError, malformed
from manglecp.wire.messages.intent import IntentRequest, IntentResponse
from manglecp.wire.messages.invocation import (
    InvokeRequest,
    InvokeResponse,
    InvokeResult,
    ProgressPayload,
    StateDelta,
)
from manglecp.wire.texts import instant_of_milliseconds, read_instant

__all__ = ["Invoker"]

T = TypeVar("T")
OnProgress = Callable[[ProgressPayload], None]
_LONGEST_KEY = 128
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """A run that is to be carried out here."""

    admission: Admission
    proven: Proven
    plan: Plan
    args: dict[str, Any]
    """With their defaults."""
    identity: Identity
    now_ns: int
    """What rules take for now."""
    journal: Journal
    history: History | None = None
    first: list[KeyTaken] = field(default_factory=list)
    """Whose answer to the same request is the one that is kept."""


class Invoker:
    """One edition of a pack, ready to be asked and invoked. An async context manager."""

    def __init__(
        self,
        domain: Domain,
        store: Store,
        dispatcher: Dispatcher,
        *,
        secrets: Secrets | None = None,
        auto_confirm: AutoConfirm | None = None,
        settings: InvokeSettings | None = None,
        sandbox: Profile = "strict",
        policies: Callable[[], PolicyPackage] | None = None,
        clock: Callable[[], int] = time.time_ns,
        point: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``sandbox`` is the profile that the hosts run in; ``policies`` gives the policy package that is loaded at
        that moment; ``point`` is told of the moments at which a crash would matter.

        :class:`manglecp.pack.problems.PackError` if no run could ever end well under the policies.
        """
        self.domain = domain
        self._store = store
        self._dispatcher = dispatcher
        self._settings = settings or InvokeSettings()
        self._limits = domain.pack.settings.invocation
        self._policies = policies or (lambda: domain.pack.governance)
        self._sandbox: Profile = sandbox
        refuse_unusable(domain.pack, self._policies(), sandbox)
        self._clock = clock
        self._spoken = Spoken.of(domain)
        self._point = point
        self._documents = Documents(domain.pack)
        self._checks = Checks(
            pack_digest=domain.digest,
            actions=domain.pack.actions,
            secrets=secrets or Secrets(),
            auto_confirm=auto_confirm or AutoConfirm(),
            hide=hiding(domain.pack),
            documents=self._documents,
        )
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="manglecp-store")
        self._claims = Claims(store, self._settings.claim_ms)
        self._under_way: dict[tuple[str, str], tuple[str, asyncio.Task[Answer]]] = {}
        """By identity and request key: what was asked, and who answers it."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._claims.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Runs that are under way end first."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._claims.end()
        self._threads.shutdown()

    # --- intents -----------------------------------------------------------------------------------------------------

    async def evaluate(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        """The answer to an intent. Its tools can be invoked by this identity from now on."""
        return await self._in_thread(self._evaluate, request, identity)

    def _evaluate(self, request: IntentRequest, identity: Identity) -> IntentResponse:
        now_ns = self._clock()
        answer = respond(self.domain, request, identity, lambda: now_ns)
        if answer.definitions:
            proof = question_digest(request, identity, self.domain.digest, now_ns)
            kept = [
                Kept(
                    macro_id=one.macro_id,
                    pack_digest=self.domain.digest,
                    document=self._documents.write(Proven(one, proof)),
                    not_before_ms=None if one.not_before is None else -(-one.not_before // 1_000_000),
                    expires_at_ms=None if one.expires_at is None else one.expires_at // 1_000_000,
                )
                for one in answer.definitions
            ]
            with self._store.writing() as tx:
                self._store.registry.keep(
                    tx,
                    identity.name,
                    kept,
                    retention_ms=self._limits.retention_ms,
                    now_ms=self._now_ms(),
                )
        return answer.response

    # --- invocations -------------------------------------------------------------------------------------------------

    async def invoke(
        self,
        request: InvokeRequest,
        identity: Identity,
        *,
        progress: OnProgress | None = None,
        cancel: asyncio.Event | None = None,
    ) -> InvokeResponse:
        """The answer to an invocation; a :class:`WireError` if there is none.

        ``progress`` is told how far it is. ``cancel`` asks to stop, which happens between steps.
        """
        key = _request_key(request)
        asked = digest({"macro_id": request.payload.macro_id, "args": args_digest(request.payload.args)})
        # Nothing is awaited between looking and registering: of two at the same time the second finds the first.
        known = None if key is None else self._under_way.get((identity.name, key))
        if known is not None and known[0] != asked:
            raise _conflict()
        if known is not None:
            task = known[1]
        else:
            watch = Watch(cancelled=cancel or asyncio.Event(), progress=_telling(progress), point=self._point)
            task = asyncio.create_task(self._answer(request, identity, key, asked, watch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if key is not None:
                self._under_way[identity.name, key] = (asked, task)
                task.add_done_callback(lambda _: self._under_way.pop((identity.name, key), None))
        # Whoever asked may go away; what was accepted goes on.
        answer = await asyncio.shield(task)
        if isinstance(answer, WireError):
            raise answer
        return InvokeResponse(id=request.id, payload=answer)

    async def _answer(
        self, request: InvokeRequest, identity: Identity, key: str | None, asked: str, watch: Watch
    ) -> Answer:
        if key is not None:
            run = await self._in_thread(self._by_key, identity, key)
            if run is not None:
                return await self._of_another(run.run_id, run.request_digest, asked)
        try:
            kept = await self._in_thread(self._find, identity, request.payload.macro_id)
            checked = self._checks.check(kept, request.payload, identity, self._now_ms())
            now_ns = _eval_time(request, self._clock)
            accepted = await self._accept(checked, identity, key, asked, now_ns)
        except KeyTaken as taken:  # by the same request, at another server, a moment ago
            return await self._of_another(taken.run_id, taken.request_digest, asked)
        except WireError as error:
            return error
        self._point("accepted")
        answer = await self._carry_out(accepted, watch)
        if accepted.first:  # a chain without effects that ran twice has one answer all the same
            return await self._of_another(accepted.first[0].run_id, accepted.first[0].request_digest, asked)
        return answer

    def _find(self, identity: Identity, macro_id: str) -> Kept | None:
        with self._store.reading() as tx:
            return self._store.registry.find(tx, identity.name, macro_id, self._now_ms())

    # --- accepting ---------------------------------------------------------------------------------------------------

    async def _accept(
        self, checked: Checked, identity: Identity, key: str | None, asked: str, now_ns: int
    ) -> _Accepted:
        run = f"r-{chance.token_hex(16)}"
        admission = Admission(
            run=run,
            identity=identity.name,
            macro_id=checked.definition.macro_id,
            tool=checked.definition.tool,
            pack_digest=self.domain.digest,
            policy_digest=self._policies().digest,
            proof_digest=checked.proven.proof_digest,
            chain_digest=checked.proven.chain_digest,
            args_digest=checked.args_digest,
            eval_time=str(now_ns),
            approval=checked.approval,
            request_key_digest=None if key is None else digest_text(key),
        )
        durable = checked.plan.has_effects
        new = self._new_run(admission, checked, identity, key, asked) if durable or key is not None else None
        since = time.monotonic()
        if durable or checked.consent is not None:
            await self._in_thread(self._write_acceptance, admission, checked, new if durable else None)
        journal: Journal
        first: list[KeyTaken] = []
        if durable:
            self._claims.hold(run, 1, since)
            journal = Durable(self._store, self._threads, run, identity.name, 1)
        else:
            journal = Unrecorded(self._store, self._threads, admission, self._keeping(new, first))
        return _Accepted(
            admission=admission,
            proven=checked.proven,
            plan=checked.plan,
            args=with_defaults(checked.args, checked.definition.input_schema),
            identity=identity,
            now_ns=now_ns,
            journal=journal,
            first=first,
        )

    def _new_run(
        self, admission: Admission, checked: Checked, identity: Identity, key: str | None, asked: str
    ) -> NewRun:
        hidden = secret_names(checked.definition.input_schema)
        stored = {name: value for name, value in checked.args.items() if name not in hidden}
        who = {"permissions": sorted(identity.permissions), "trust": identity.trust}
        return NewRun(
            run_id=admission.run,
            identity=identity.name,
            macro_id=admission.macro_id,
            pack_digest=admission.pack_digest,
            request_digest=asked,
            request_key=key,
            admission=msgspec.json.encode(admission.record(), order="sorted"),
            values=Values(
                plan=self._documents.write(checked.proven),
                args=msgspec.json.encode({"args": stored, "identity": who}),
            ),
            owner=self._claims.owner,
            claim_ms=self._settings.claim_ms,
        )

    def _write_acceptance(self, admission: Admission, checked: Checked, new: NewRun | None) -> None:
        """One transaction: the run, the consent that is used up, and the entry."""
        with self._store.writing() as tx:
            if new is not None:
                self._store.runs.accept(tx, new)
            consent = checked.consent
            if consent and not self._store.nonces.burn(tx, admission.identity, consent.nonce, consent.expires_ms):
                raise invalid_confirmation()
            kind: Kind = "admission" if new is not None else "confirmation"
            self._store.ledger.append(tx, kind, admission.record(), run=admission.run, identity=admission.identity)

    def _keeping(self, new: NewRun | None, first: list[KeyTaken]) -> Callable[[Any, EndState, bytes], None]:
        """Keep the answer of a run without effects for whoever repeats its request key. ``first`` gets whoever did so
        before, at another server."""

        def keep(tx: Any, end: EndState, answer: bytes) -> None:
            if new is None:  # nobody can repeat it
                return
            try:
                self._store.runs.accept(tx, new)
            except KeyTaken as taken:
                first.append(taken)
                return
            self._store.runs.end(tx, new.run_id, 1, RunState(end), answer)

        return keep

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, accepted: _Accepted, watch: Watch) -> Answer:
        started = time.monotonic()
        run = accepted.admission.run
        try:
            return await self._conclude(accepted, watch, started)
        except Fenced:
            _log.warning("run %s was taken over by another process", run)
            return await self._end_of(run)
        except Exception:
            _log.exception("run %s failed in the server itself", run)
            return WireError("internal_error", "The server failed on this invocation", {"run_id": run})
        finally:
            self._claims.drop(run)

    async def _conclude(self, accepted: _Accepted, watch: Watch, started: float) -> Answer:
        definition, journal = accepted.proven.definition, accepted.journal
        rules, answering = self._told_by(accepted)
        nothing = Told(run_id=accepted.admission.run, state_delta=msgspec.to_builtins(StateDelta()))
        try:
            ended = await self._execution(accepted, rules, watch).go()
        except GateRefused as refused:
            return await self._over(journal, "failed", None, gate_refused(refused, nothing))
        except MangleError:
            _log.exception("the rules of %s failed during run %s", self.domain.pack.name, accepted.admission.run)
            failure = WireError("evaluation_failed", "The rules of this server failed on this run")
            return await self._over(journal, "failed", None, failure)
        watch.progress("", len(definition.steps), len(definition.steps))
        answer = answering.answer(ended, round((time.monotonic() - started) * 1_000))
        self._point("closing")
        return await self._close(ended, answering, answer, journal)

    def _told_by(self, accepted: _Accepted) -> tuple[RunRules, Answering]:
        """What rules say about the run, and what is said to whoever asked for it."""
        definition = accepted.proven.definition
        rules = RunRules(self.domain, self._spoken, accepted.identity, definition.tool, accepted.args, accepted.now_ns)
        return rules, Answering(
            run=accepted.admission.run,
            domain=self.domain,
            definition=definition,
            args=accepted.args,
            rules=rules,
        )

    def _execution(self, accepted: _Accepted, rules: RunRules, watch: Watch) -> Execution:
        pack, plan = self.domain.pack, accepted.plan
        package = self._policies()
        terms = RunTerms(
            run=accepted.admission.run,
            model_ref=f"rules:{pack.name}@{pack.settings.version}+{self.domain.digest}",
            package=package,
            pinned=pack.settings.governance_digest or package.digest,
            actions=plan.actions,
            admission_digest=accepted.admission.digest,
            plugin_digest=f"sha256:{pack.plugin_sha256}",
            gates=plan.gates,
            risk_tier=plan.risk_tier,
            approval=accepted.admission.approval,
            sandbox=self._sandbox,
            pattern=plan.pattern,
        )
        return Execution(
            run=accepted.admission.run,
            plan=plan,
            args=accepted.args,
            turns=Turns(terms),
            policies=self._policies,
            actions=Dispatched(self._dispatcher, accepted.identity.name, self._claims.of(accepted.admission.run)),
            rules=rules,
            journal=accepted.journal,
            watch=watch,
            deadline=asyncio.get_running_loop().time() + self._limits.max_execution_ms / 1_000,
            history=accepted.history,
            events=lambda outcomes: event_rows(outcomes, self._limits.max_events),
        )

    async def _close(self, ended: Ended, answering: Answering, answer: Answer, journal: Journal) -> Answer:
        """Close the last turn, then write the end down, then it may be told."""
        undecided = ended.reason == "needs_decision"
        try:
            witness = ended.turn.finish(
                reads=ended.reads,
                events=event_rows(ended.outcomes, self._limits.max_events),
                states=states_of(ended.outcomes),
                paused=undecided,
            )
        except GateRefused as refused:
            if not ended.effects:
                return await self._over(journal, "failed", None, gate_refused(refused, answering.told(ended)))
            undecided, witness = True, None
            ended = ended.undecided(refused)
            answer = answering.answer(ended, 0)
        if undecided:
            assert ended.culprit is not None
            await journal.undecided(ended.culprit, witness, encoded(answer))
            return answer
        return await self._over(journal, _end_state(ended, answer), witness, answer)

    async def _over(self, journal: Journal, end: EndState, witness: Any, answer: Answer) -> Answer:
        lasting = not (isinstance(answer, WireError) and answer.row.recoverable)
        await journal.ended(end, witness, encoded(answer), lasting=lasting)
        self._point("ended")
        return answer

    # --- runs of others ----------------------------------------------------------------------------------------------

    def _by_key(self, identity: Identity, key: str) -> Run | None:
        with self._store.reading() as tx:
            return self._store.runs.by_key(tx, identity.name, key)

    async def _of_another(self, run: str, its: str, asked: str) -> Answer:
        return await self._end_of(run) if its == asked else _conflict()

    async def _end_of(self, run: str) -> Answer:
        """Wait for the end of a run that somebody else carries out."""
        for pause in pauses():
            # Looked at without waiting in a thread: there are few of them, and many may wait.
            if (found := await self._in_thread(self._store.runs.wait, run, 0.0)).state != RunState.RUNNING:
                break
            await asyncio.sleep(pause)
        kept = await self._in_thread(self._kept_answer, run)
        if kept is None and found.state == RunState.NEEDS_DECISION and found.pack_digest == self.domain.digest:
            return await self._left(found)
        if kept is None:
            return WireError("execution_failed", "The run is over, and its answer is kept no longer", {"run_id": run})
        return decoded(kept)

    async def _left(self, run: Run) -> Answer:
        """What is to be said of a run that was set aside because whoever takes it dies: none of them could say it."""
        accepted = await self._in_thread(lambda: self._accepted_before(self._loaded(run.run_id)))
        rules, answering = self._told_by(accepted)
        return answering.answer(self._execution(accepted, rules, Watch()).left(run.code or "poisoned"), 0)

    def _loaded(self, run: str) -> Claimed:
        with self._store.reading() as tx:
            return self._store.runs.load(tx, run)

    def _kept_answer(self, run: str) -> bytes | None:
        with self._store.reading() as tx:
            return self._store.runs.answer(tx, run)

    async def take_over(self, run: str | None = None) -> str | None:
        """Claim a run that nobody carries out any more (or this one), and carry it out; its id, or None."""
        since = time.monotonic()
        claimed = await self._in_thread(self._claims.take, [self.domain.digest], self._settings.most_takeovers, run)
        if claimed is None:
            return None
        self._claims.hold(claimed.run.run_id, claimed.run.fence, since)
        self._point("claimed")
        await self._carry_out(await self._in_thread(self._accepted_before, claimed), Watch(point=self._point))
        return claimed.run.run_id

    def _accepted_before(self, claimed: Claimed) -> _Accepted:
        assert claimed.values.plan is not None  # it has not ended
        assert claimed.values.args is not None
        proven = self._documents.read(claimed.values.plan)
        plan = Plan.of(proven.definition, self.domain.pack.actions)
        stored = msgspec.json.decode(claimed.values.args)
        identity = Identity(
            claimed.run.identity, frozenset(stored["identity"]["permissions"]), stored["identity"]["trust"]
        )
        admission = Admission(**msgspec.json.decode(claimed.admission))
        with self._store.reading() as tx:
            turns = self._store.ledger.rows(tx, kind="turn", run=claimed.run.run_id)
            witnesses = [str(entry.body["id"]) for entry in turns]
        return _Accepted(
            admission=admission,
            proven=proven,
            plan=plan,
            args=with_defaults(stored["args"], proven.definition.input_schema),
            identity=identity,
            now_ns=int(admission.eval_time or self._clock()),
            journal=Durable(self._store, self._threads, admission.run, identity.name, claimed.run.fence),
            history=history_of(claimed, plan, witnesses),
        )

    # --- small things ------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000

    async def _in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)


def _end_state(ended: Ended, answer: Answer) -> EndState:
    if ended.reason == "cancelled":
        return "cancelled"
    return "succeeded" if isinstance(answer, InvokeResult) else "failed"


def _conflict() -> WireError:
    return WireError("x-request_key_conflict", "The request key was used for another macro-tool or other arguments")


def _request_key(request: InvokeRequest) -> str | None:
    key = request.payload.request_key
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise malformed(f"x-request_key has 1 to {_LONGEST_KEY} characters", "$.payload.x-request_key")
    return key


def _eval_time(request: InvokeRequest, clock: Callable[[], int]) -> int:
    """INVK-03: what rules take for now. Whether the tool is still valid is another question."""
    given = request.payload.eval_time
    if given is None:
        return clock()
    return read_instant(given) if isinstance(given, str) else instant_of_milliseconds(given)


def _telling(progress: OnProgress | None) -> Callable[[str, int, int], None]:
    if progress is None:
        return lambda *_: None
    begun = False

    def tell(action: str, settled: int, steps: int) -> None:
        nonlocal begun
        status: Literal["started", "running", "finalizing"]
        status = "finalizing" if not action else "running" if begun else "started"
        begun = True
        # Taking steps back settles more than there are.
        percent = min(round(100 * settled / max(steps, 1)), 100)
        try:
            progress(ProgressPayload(status=status, detail=action or None, percent=percent))
        except Exception:  # a run does not fail because nobody can be told of it
            _log.exception("progress could not be told")

    return tell
