"""Work sessions: the work on an issue as a hash chain of events, with the turns that the gate judged.

An issue has one stream of events in the database of its memory. A session is active from a start, which takes the lease
of the issue, to a stop, which releases it and leaves a handoff; the next start resumes it. A turn is judged under the
policy package of the session: an accepted turn increases the turn number, a rejected turn is recorded with its failure
classes and the decision of the retry policy. If the policy decides an escalation, it is executed at once. A change of
the issue is one transaction with the turn that authorises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from manglecp.base.hash_chain import EMPTY, Head, row_hash
from manglecp.base.json import canonical
from manglecp.harness import InvalidEvidence, judge, replay_turn, verify, witness_of
from manglecp.harness.policy import HarnessCall, PolicyPackage, package_of, work_package
from manglecp.issues import model, transitions
from manglecp.issues.memory import IssueMemory
from manglecp.issues.model import GatedChange
from manglecp.issues.tables import IssueTables
from manglecp.store import ChangeRefused, Invalid, Unusable

JsonObject = dict[str, Any]

FEATURE_STATUSES: Final = ("pending", "in_progress", "blocked", "completed")
_ESCALATION_LABELS: Final = ("escalation",)  # marks an issue that an escalation added
_BASE_CLAIM: Final = "capabilities.change_morphisms"
_CHOSEN_FIELDS: Final = ("actionMode", "executionPattern", "toolChoice")  # package fields that a turn may override


@dataclass(slots=True)
class Session:
    """The state of the work on an issue, which follows from the events of its stream."""

    issue: str
    head: Head = EMPTY
    active: bool = False
    fence: int = 0
    started_at: model.Instant = ""
    updated_at: model.Instant = ""
    policy: JsonObject = field(default_factory=dict)
    handoff: JsonObject = field(default_factory=dict)
    turns: int = 0  # the number of accepted turns
    failures: int = 0  # failed steps since the last successful one
    retry: JsonObject | None = None  # the decision after the last step, if it failed
    features: dict[str, JsonObject] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"hs1_{self.issue}"

    @property
    def package(self) -> PolicyPackage:
        return package_of({"name": self.policy["name"], "version": self.policy["version"]}, self.policy["documents"])

    @property
    def next_feature(self) -> str | None:
        """The feature in progress, or the first pending one."""
        by_status = {self.features[name]["status"]: name for name in sorted(self.features, reverse=True)}
        return by_status.get("in_progress") or by_status.get("pending")

    @property
    def is_complete(self) -> bool:
        return bool(self.features) and all(row["status"] == "completed" for row in self.features.values())

    def apply(self, event: JsonObject) -> None:
        body = event["body"]
        self.head = Head(event["seq"], event["row_hash"])
        if event["kind"] == "feature":
            self.features[body["featureId"]] = body
            return
        self.updated_at = event["at"]
        match event["kind"]:
            case "start":
                self.active, self.fence = True, body["fence"]
                self.policy = body.get("policy", self.policy)
                self.started_at = self.started_at or event["at"]
            case "stop":
                self.active, self.handoff = False, body
            case _ if body["fence"] == self.fence:  # a step, unless its actor had lost the lease
                self.turns += "witness" in body and not body["witness"]["failureClasses"]
                self.retry = body.get("retry")
                self.failures = self.failures + 1 if self.retry else 0

    def as_json(self) -> JsonObject:
        """Return upstream's session document, and the state of lease, chain and features."""
        optional = self.handoff | {"stoppedAt": None if self.active else self.updated_at}
        return {
            "schema": 1,
            "sessionKind": "premath.harness.session.v1",
            "sessionId": self.id,
            "state": "active" if self.active else "stopped",
            "startedAt": self.started_at,
            "updatedAt": self.updated_at,
            "issueId": self.issue,
            **{name: value for name, value in optional.items() if value},
            "fence": self.fence,
            "turns": self.turns,
            "head": f"{self.head.seq}:{self.head.row_hash}",
            "retry": self.retry,
            "nextFeatureId": self.next_feature,
            "featureClosureComplete": self.is_complete,
        }

    def ledger(self) -> JsonObject:
        """Return upstream's feature ledger of the issue."""
        rows = [self.features[name] for name in sorted(self.features)]
        updated_at = max((row["updatedAt"] for row in rows), default=self.updated_at)
        kind = "premath.harness.feature_ledger.v1"
        return {"schema": 1, "ledgerKind": kind, "sessionRef": self.id, "updatedAt": updated_at, "features": rows}

    def bind(self, document: JsonObject) -> JsonObject:
        """Return the evidence of the next turn under the policy of the session. Raises :class:`.InvalidEvidence`."""
        evidence, documents = _member(document, "evidence"), _member(document, "policyDocuments")
        spec, state = _member(evidence, "callSpec"), _member(evidence, "protocolState")
        number, package = self.turns + 1, self.package
        overrides = {name: spec[name] for name in _CHOSEN_FIELDS if spec.get(name) is not None}
        model_ref, prompt = str(spec.get("modelRef") or ""), str(spec.get("promptDigest") or "")
        fields = package.call_spec(session_id=self.id, turn_index=number, model_ref=model_ref, prompt_digest=prompt)
        terms = package.terms(pinned=self.policy["pinned"])
        bound = {
            "callSpec": spec | fields | overrides,
            "protocolState": state | {"turnIndex": number},
            "sessionRefs": [f"session://{self.id}"],
            "trajectoryRefs": [f"trajectory://{self.id}/{number}"],
        }
        return {**terms, "policyDocuments": documents | terms["policyDocuments"], "evidence": evidence | bound}

    def turn_of_calls(self, calls: Sequence[HarnessCall], change: GatedChange | None) -> JsonObject:
        """Return the evidence of a turn of the harness itself; the result of the last call authorises ``change``."""
        evidence: JsonObject = {"callSpec": {"modelRef": "manglecp.harness.work"}}
        evidence["protocolState"] = {"stopReason": "end_turn", "continuationAllowed": False}
        if change is not None:
            (kind, action), subject = transitions.required_mutation(change), transitions.subject_ref(self.issue, change)
            calls = [*calls[:-1], calls[-1]._replace(ref=subject)]
            claims = [_BASE_CLAIM, f"{_BASE_CLAIM}.{action.replace('.', '_')}"]
            names = {"kind": kind, "action": action, "instructionRef": f"issue://{self.issue}"}
            evidence["mutation"] = {**names, "inputRefs": [subject], "capabilityClaims": claims}
        return {"evidence": evidence | self.package.rows_of_calls(calls, "work", self.issue)}


def _member(document: Any, name: str) -> JsonObject:
    value = document.get(name, {}) if isinstance(document, dict) else None
    if not isinstance(value, dict):
        raise InvalidEvidence(f"/{name}", "an object is expected")
    return value


class SessionMemory(IssueMemory):
    """Issue memory with sessions. The operations raise :class:`.ChangeRefused`, and then change nothing."""

    def start(
        self, actor: str, issue: str | None, ttl: int, package: PolicyPackage | None = None, pinned: str | None = None
    ) -> Session | None:
        """Claim the issue, or the next one, and start or resume its session; None if no issue can be claimed.

        ``package`` replaces the package of an earlier start; ``pinned`` is the digest of the pinned package.
        """
        with self._store.write_transaction() as tables:
            if issue is None:
                claimable = next(iter(tables.frontier(self._now())), None)
                if claimable is None:
                    return None
                issue = claimable.id
            self._record(tables, actor, issue, model.Claim(ttl=ttl))
            fence = transitions.get_issue(tables, issue).fence
            stream = _Stream(self, tables, actor, _read(tables, issue))
            if package is None and not stream.session.policy:
                package = work_package()
            body: JsonObject = {"fence": fence}
            if package is not None:
                names = {"name": package.name, "version": package.version, "digest": package.digest}
                body["policy"] = names | {"pinned": pinned, "documents": package.contents}
            stream.append("start", body)
            return stream.session

    def stop(self, actor: str, issue: str, fence: int, handoff: JsonObject) -> Session:
        """Record the handoff, stop the session and release the lease, which may have expired."""
        with self._open_stream(actor, issue, fence, needs_live_lease=False) as stream:
            stream.stop(handoff)
        return stream.session

    def turn(self, actor: str, issue: str, fence: int, document: JsonObject, change: GatedChange | None) -> JsonObject:
        """Judge and record a turn, and make ``change`` if the turn is accepted. Raises :class:`.InvalidEvidence`."""
        with self._open_stream(actor, issue, fence) as stream:
            step = stream.turn("turn", document, change)
            if stream.escalate() or step["changed"]:  # the session ends, because the issue has a new state
                stream.stop({"summary": step["resultClass"]})
        return step | {"session": stream.session.as_json()}

    def finish_work(
        self, actor: str, issue: str, fence: int, calls: Sequence[HarnessCall], feature: str | None
    ) -> JsonObject:
        """Record calls of the harness as a turn, and close the issue, leave it for a retry, or escalate.

        The issue is closed if no call has an error and no other feature is left. One transaction checks the lease
        and writes all. If another actor has the lease, only the loss is recorded and :class:`.ChangeRefused` raised.
        """
        failure = next((call.error for call in calls if call.error is not None), None)
        try:
            with self._open_stream(actor, issue, fence) as stream:
                other_features = [row for name, row in stream.session.features.items() if name != feature]
                is_done = failure is None and all(row["status"] == "completed" for row in other_features)
                change = model.Close(fence=fence) if is_done else None
                step = stream.turn("work", stream.session.turn_of_calls(calls, change), change, failure)
                stream.escalate()
                if feature is not None and not step["failureClasses"]:
                    refs = [f"trajectory://{stream.session.id}/{stream.session.turns}"]
                    stream.set_feature(feature, status="completed", verificationRefs=refs)
                stream.stop({"summary": step["resultClass"]})
                status = transitions.get_issue(stream.tables, issue).status
        except ChangeRefused as refused:
            with self._store.write_transaction() as tables:
                _Stream(self, tables, actor, _read(tables, issue)).append_step("work", fence, [refused.code], {})
            raise
        return step | {"session": stream.session.as_json(), "status": status.value}

    def set_feature(self, actor: str, issue: str, name: str, **changes: Any) -> Session:
        """Add a feature of the issue, or change it; ``changes`` are members of its row, None for unchanged."""
        with self._store.write_transaction() as tables:
            transitions.get_issue(tables, issue)
            stream = _Stream(self, tables, actor, _read(tables, issue))
            stream.set_feature(name, **changes)
            return stream.session

    def sessions(self, issue: str | None = None) -> list[Session]:
        """Return the session of an issue (without events if it was never started), or of all issues with a session."""
        with self._store.read_transaction() as tables:
            issues = tables.streams() if issue is None else [transitions.get_issue(tables, issue).id]
            return [_read(tables, issue) for issue in issues]

    def trajectory(self, mode: str = "latest", limit: int | None = None) -> list[JsonObject]:
        """Return the steps of all sessions, the newest first; ``mode`` is latest, failed or retry-needed."""
        with self._store.read_transaction() as tables:
            bodies = [_decode(row)["body"] for row in tables.stream_rows(kind="step")]
        bodies.sort(key=lambda body: str(body["step"]["finishedAt"]), reverse=True)  # a stable sort
        failed_bodies = [body for body in bodies if body["failureClasses"]]
        retryable_bodies = [body for body in failed_bodies if body.get("retry", {}).get("escalation", "absent") is None]
        bodies_by_mode = {"latest": bodies, "failed": failed_bodies, "retry-needed": retryable_bodies}
        return [body["step"] for body in bodies_by_mode[mode][:limit]]

    @contextmanager
    def _open_stream(self, actor: str, issue: str, fence: int, *, needs_live_lease: bool = True) -> Iterator[_Stream]:
        """Yield the stream of an active session. Raises :class:`.ChangeRefused` without one, or for a wrong lease."""
        with self._store.write_transaction() as tables:
            session, lease = _read(tables, issue), tables.lease(issue)
            if not session.active:
                raise ChangeRefused("session_stopped", f"no session of {issue} is active; start one")
            if session.fence != fence or (lease is not None and (lease.fence, lease.owner) != (fence, actor)):
                raise ChangeRefused("lease_id_mismatch", f"{actor} has no lease on {issue} with the fence {fence}")
            if needs_live_lease and (lease is None or not lease.is_live(self._now())):
                raise ChangeRefused("lease_stale", f"the lease on {issue} has expired; start again")
            yield _Stream(self, tables, actor, session)


class _Stream(NamedTuple):
    """The stream of an issue in a transaction."""

    memory: SessionMemory
    tables: IssueTables
    actor: str
    session: Session

    def append(self, kind: str, body: JsonObject) -> None:
        head, at = self.session.head, self.memory._now()
        event = {"stream": self.session.issue, "seq": head.seq + 1, "kind": kind, "at": at, "actor": self.actor}
        event |= {"body": body, "prev_hash": head.row_hash}
        event["row_hash"] = row_hash(event)
        row = canonical(event).decode()
        self.tables.append_to_stream(self.session.issue, head.seq + 1, kind, str(event["row_hash"]), row)
        self.session.apply(_decode(row))

    def append_step(self, action: str, fence: int, classes: Sequence[str], more_members: JsonObject) -> JsonObject:
        """Append a step, and return its row in upstream's format."""
        session = self.session
        step = {
            "schema": 1,
            "stepKind": "premath.harness.step.v1",
            "stepId": f"{session.id}/{session.head.seq + 1}",
            "issueId": session.issue,
            "action": action,
            "resultClass": more_members.get("retry", {}).get("decided_by", classes[0]) if classes else "accepted",
            "witnessRefs": [more_members["witness"]["id"]] if more_members else [],
            "finishedAt": self.memory._now(),
        }
        self.append("step", {"step": step, "fence": fence, "failureClasses": list(classes), **more_members})
        return step

    def turn(
        self, action: str, document: JsonObject, change: GatedChange | None, failure: str | None = None
    ) -> JsonObject:
        """Judge a turn, make its change and append it; ``failure`` is the class of a failed command."""
        package, bound = self.session.package, self.session.bind(document)
        judgement = judge(bound)
        classes = judgement.failure_classes or ((failure,) if failure else ())
        more_members: JsonObject = {"witness": dict(witness_of(judgement))}
        changed_issue = None
        if classes:
            decision = asdict(package.retry.decide(classes, self.session.failures + 1))
            more_members["retry"] = {name: getattr(value, "value", value) for name, value in decision.items()}
        elif change is not None:
            if not judgement.mutation_ready:
                raise ChangeRefused("mutation_missing", "the turn has no mutation")
            replayed_turn = replay_turn(bound, package.digests["mutation"])
            issue = None if isinstance(change, model.Discover) else self.session.issue
            record = transitions.read_authorisation(replayed_turn)
            event = self.memory._record(self.tables, self.actor, issue, change, record)
            changed_issue = event.issue
            transitions.spend_authorisation(replayed_turn, change)
        findings = [finding.as_json() for finding in judgement.findings]
        verdict = {"result": judgement.result, "failureClasses": list(classes), "findings": findings}
        step = self.append_step(action, self.session.fence, classes, more_members)
        return step | verdict | {"retry": self.session.retry, "changed": changed_issue}

    def escalate(self) -> bool:
        """Execute the escalation that the last step decided; return whether there is one."""
        session, decision = self.session, self.session.retry
        if decision is None or decision["escalation"] is None:
            return False
        issue, escalation = transitions.get_issue(self.tables, session.issue), decision["escalation"]
        if escalation == "issue_discover" and _ESCALATION_LABELS[0] in issue.labels:
            escalation = "mark_blocked"  # otherwise work that never succeeds would add issues without end
        call = HarnessCall("harness.escalate", escalation, input=decision)

        def make_change(change: GatedChange) -> Any:
            """Make a change in a separate turn; return the id of the changed issue, or None if the turn is refused."""
            return self.turn(escalation, session.turn_of_calls([call], change), change)["changed"]

        if escalation == "mark_blocked":
            make_change(model.Update(status="blocked", note=f"blocked: {decision['decided_by']}", fence=session.fence))
        elif escalation == "issue_discover":
            title = f"{decision['decided_by']}: {issue.title}"[: model.MAX_TITLE_LENGTH]
            child = make_change(
                model.Discover(parent=issue.id, title=title, priority=issue.priority, labels=_ESCALATION_LABELS)
            )
            if child is not None:  # without this dependency, the issue would be claimed again at once
                make_change(model.AddDependency(edge="waits-for", depends_on=child, fence=session.fence))
        return True

    def stop(self, handoff: JsonObject) -> None:
        """Release the lease and append the handoff; texts that are absent keep their value of the last handoff."""
        if self.tables.lease(self.session.issue) is not None:  # a closed or blocked issue has no lease
            self.memory._record(self.tables, self.actor, self.session.issue, model.Release(fence=self.session.fence))
        texts = {name: handoff.get(name, self.session.handoff.get(name)) for name in ("summary", "nextStep")}
        self.append("stop", texts | {"witnessRefs": _clean_refs(handoff.get("witnessRefs", ()))})

    def set_feature(self, name: str, **changes: Any) -> None:
        model.check_id(name, "feature")
        features, issue = self.session.features, self.session.issue
        changed_members = {key: value for key, value in changes.items() if value not in (None, ())}
        new_feature = {"featureId": name, "status": "pending", "issueId": issue}
        row = new_feature | features.get(name, {}) | changed_members | {"updatedAt": self.memory._now()}
        row["verificationRefs"] = _clean_refs(row.get("verificationRefs", ()))
        if row["status"] == "completed" and not row["verificationRefs"]:
            raise Invalid("feature", "a completed feature needs a verification reference")
        for other in features.values():
            if row["status"] == other["status"] == "in_progress" and other["featureId"] != name:
                raise ChangeRefused("feature_in_progress", f"{other['featureId']} of {issue} is in progress")
        self.append("feature", row)


def verify_streams(tables: IssueTables) -> Iterator[str]:
    """Yield the problems of the streams: of the hash chains, and of turns whose verdict cannot be reproduced."""
    heads: dict[str, Head] = {}
    for event in map(_decode, tables.stream_rows()):
        issue, seq = event["stream"], event["seq"]
        head = heads.get(issue, EMPTY)
        heads[issue] = Head(seq, event["row_hash"])
        if (seq, event["prev_hash"]) != (head.seq + 1, head.row_hash):
            yield f"session event {issue} {seq}: does not follow the event before it"
        if event["row_hash"] != row_hash(event):
            yield f"session event {issue} {seq}: its hash does not match its contents"
        elif "witness" in event["body"] and not verify(event["body"]["witness"]).holds:
            yield f"session event {issue} {seq}: judging its rows again gives another verdict"


def _read(tables: IssueTables, issue: str) -> Session:
    session = Session(issue)
    for row in tables.stream_rows(stream=issue):
        session.apply(_decode(row))
    return session


def _decode(row: str) -> JsonObject:
    try:
        event: JsonObject = msgspec.json.decode(row)
    except ValueError:
        raise Unusable("an event of a session is damaged: it cannot be decoded") from None
    return event


def _clean_refs(refs: Iterable[str]) -> list[str]:
    return sorted({ref.strip() for ref in refs} - {""})
