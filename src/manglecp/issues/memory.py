"""Operations on issue memory. Other code does not change the tables.

An operation applies a change and appends its event; :meth:`IssueMemory.mutate` also spends the authorisation of the
change. :func:`replay` applies the change of an event of the log again. If the result is the same event, with the same
hashes and snapshots, the event of the log follows from the events before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, get_args

from msgspec.structs import replace

from manglecp.base.hash_chain import Head
from manglecp.issues import model, transitions
from manglecp.issues.tables import IssueTables, StoredIssues, scratch_tables
from manglecp.store import ChangeRefused, StoreError, Unusable

if TYPE_CHECKING:
    from manglecp.harness import MutationReady


def events(tables: IssueTables, *, issue_id: str | None = None, upto: int | None = None) -> Iterator[model.IssueEvent]:
    """Yield the decoded rows of :meth:`IssueTables.log_rows`. Raises :class:`.Unusable` for a damaged row."""
    for row in tables.log_rows(issue_id=issue_id, upto=upto):
        try:
            event = model.decode_event(row.event_json)
        except ValueError:
            raise Unusable(f"event {row.seq} is damaged; run `manglecp issue verify` for the details") from None
        yield event


def replay(tables: IssueTables, event: model.IssueEvent) -> list[str]:
    """Apply the change of an event of a log, append the event as it is, and return its problems."""
    problems: list[str] = []
    record = None if event.mutation is None else replace(event.mutation, before=None, after="")
    try:
        replayed_event = _apply_change(tables, event.at, event.actor, event.issue, event.change, record)
    except (StoreError, sqlite3.IntegrityError) as error:
        problems.append(str(error))
    else:
        problems += [
            f"{name} does not follow from the events before it"
            for name in ("seq", "prev_hash", "mutation")
            if getattr(replayed_event, name) != getattr(event, name)
        ]
    if event.compute_hash() != event.row_hash:
        problems.append("row_hash is not the hash of the row")
    # The database refuses a repeated number, hash or witness, and a number out of range; ``problems`` lists these, too.
    with suppress(sqlite3.IntegrityError, OverflowError):
        tables.append(event)
    return problems


def _apply_change(
    tables: IssueTables,
    at: model.Instant,
    actor: str,
    issue: str,
    change: model.Change,
    record: model.MutationRecord | None,
) -> model.IssueEvent:
    """Change the state and return the event for the log. Raises :class:`ChangeRefused` or :class:`.Invalid`."""
    # Checked at run time, because changes of an imported log pass no type checker.
    if isinstance(change, get_args(model.GatedChange)):
        if record is None:
            raise ChangeRefused("mutation_missing", f"{model.action_of(change)} needs a mutation and has none")
        transitions.check_mutation(tables, record, issue, change)
    elif record is not None:
        raise ChangeRefused("mutation_other", f"{model.action_of(change)} needs no mutation and has one")
    event = model.IssueEvent.after(tables.head(), at=at, actor=actor, issue=issue, change=change)
    before = None if record is None else transitions.snapshot_digest(tables, issue)
    transitions.apply_event(tables, event)
    if record is not None:
        after = transitions.snapshot_digest(tables, issue)
        assert after is not None  # no change deletes an issue
        record = replace(record, before=before, after=after)
    return event.with_authorisation(record)


class BlockedIssue(NamedTuple):
    """An issue that cannot be claimed; without blockers its status is ``blocked``."""

    issue: model.Issue
    blockers: list[tuple[model.Edge, model.Issue]]
    """Blocking edges to issues that are not closed, each with the issue it leads to."""


class IssueDetail(NamedTuple):
    """An issue with its lease, edges and blockers (see :class:`BlockedIssue`)."""

    issue: model.Issue
    lease: model.Lease | None
    depends_on: list[model.Edge]  # edges from this issue to others
    dependents: list[model.Edge]  # edges from other issues to this one
    blockers: list[tuple[model.Edge, model.Issue]]
    snapshot: str
    """Digest of the issue and its edges; a mutation may require it with the input ``issue://ID@SNAPSHOT``."""


class IssueView:
    """Queries on issue memory at the time ``now``."""

    def __init__(self, tables: IssueTables, now: model.Instant) -> None:
        self._tables = tables
        self.now = now

    def head(self) -> Head:
        return self._tables.head()

    def ready(self) -> Iterable[model.Issue]:
        """Return the claimable issues (open or with an expired lease, without open blockers), by priority, then age."""
        return self._tables.frontier(self.now)

    def blocked(self) -> list[BlockedIssue]:
        """Return the issues that have open blockers or the status ``blocked``, and are not closed."""
        blocked_issues = []
        for issue in self._tables.issues():
            blockers = transitions.open_blockers(self._tables, issue.id)
            if issue.status is model.Status.BLOCKED or (blockers and issue.status is not model.Status.CLOSED):
                blocked_issues.append(BlockedIssue(issue, blockers))
        return blocked_issues

    def list(
        self, status: model.Status | None = None, label: str | None = None, assignee: str | None = None
    ) -> list[model.Issue]:
        """Return the issues with this status, label and assignee in the order in which they were added."""
        return [
            issue
            for issue in self._tables.issues(status)
            if (label is None or label in issue.labels) and (assignee is None or issue.assignee == assignee)
        ]

    def show(self, issue: str) -> IssueDetail:
        """Return an issue with its lease, edges and blockers. Raises :class:`.ChangeRefused` if it does not exist."""
        stored_issue = transitions.get_issue(self._tables, issue)
        digest = transitions.snapshot_digest(self._tables, issue)
        assert digest is not None  # get_issue() raised unless the issue exists
        return IssueDetail(
            stored_issue,
            self._tables.lease(issue),
            self._tables.edges_from(issue),
            self._tables.edges_to(issue),
            transitions.open_blockers(self._tables, issue),
            digest,
        )

    def history(self, issue: str | None = None) -> Iterable[model.IssueEvent]:
        """Return the events of one issue, or of all. Raises :class:`.ChangeRefused` if the issue does not exist."""
        if issue is not None:
            transitions.get_issue(self._tables, issue)
        return events(self._tables, issue_id=issue)


NewId: TypeAlias = Callable[[], str]  # returns a new id; called again if an issue has the id already

_MAX_ID_ATTEMPTS: Final = 8


class IssueMemory:
    """The operations on issue memory. All raise :class:`.ChangeRefused` or :class:`.Invalid` and then change nothing.

    ``actor`` is the name under which a change is made, ``issue`` an id, ``fence`` a fencing token, ``ttl`` in seconds.
    """

    def __init__(self, store: StoredIssues, *, clock: model.Clock, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    def add(self, actor: str, change: model.Add, issue: str | None = None) -> model.Issue:
        """Add an issue with this id, or with a new id."""
        with self._store.write_transaction() as tables:
            issue = self._record(tables, actor, issue, change).issue
            return transitions.get_issue(tables, issue)

    def claim(self, actor: str, issue: str, ttl: int = model.DEFAULT_TTL) -> model.Lease:
        return self._record_lease(actor, issue, model.Claim(ttl=ttl))

    def claim_next(self, actor: str, ttl: int = model.DEFAULT_TTL) -> model.Lease | None:
        """Claim the first issue of :meth:`IssueView.ready`; return None if no issue can be claimed."""
        with self._store.write_transaction() as tables:
            issue = next(iter(tables.frontier(self._now())), None)
            if issue is None:
                return None
            self._record(tables, actor, issue.id, model.Claim(ttl=ttl))
            return tables.lease(issue.id)

    def renew(self, actor: str, issue: str, fence: int, ttl: int = model.DEFAULT_TTL) -> model.Lease:
        """Extend the lease to ``ttl`` seconds from now."""
        return self._record_lease(actor, issue, model.Renew(fence=fence, ttl=ttl))

    def release(self, actor: str, issue: str, fence: int) -> model.Issue:
        with self._store.write_transaction() as tables:
            self._record(tables, actor, issue, model.Release(fence=fence))
            return transitions.get_issue(tables, issue)

    def mutate(self, ready: MutationReady, actor: str, issue: str | None, change: model.GatedChange) -> model.Issue:
        """Change an issue and spend the authorisation ``ready``. Only for :class:`.Discover`, ``issue`` may be None."""
        with self._store.write_transaction() as tables:
            event = self._record(tables, actor, issue, change, transitions.read_authorisation(ready))
            # Spent after all checks, so that a refused change does not spend it, and before the commit, so that the
            # second of two threads with the same authorisation fails here and is rolled back. If the commit fails, this
            # process cannot use ``ready`` again, but its evidence can be judged again.
            transitions.spend_authorisation(ready, change)
            return transitions.get_issue(tables, event.issue)

    @contextmanager
    def view(self, as_of: int | None = None) -> Iterator[IssueView]:
        """Yield the current state, or the state just after the event number ``as_of``."""
        if as_of is None:
            with self._store.read_transaction() as tables:
                yield IssueView(tables, self._now())
            return
        with scratch_tables() as past_tables:
            now = ""  # replaced below by the time of the last event
            with self._store.read_transaction() as tables:
                last_number = tables.head().seq
                if not 1 <= as_of <= last_number:
                    raise ChangeRefused("event_unknown", f"event {as_of} does not exist; the last is {last_number}")
                for event in events(tables, upto=as_of):
                    if problems := replay(past_tables, event):
                        raise StoreError(f"event {event.seq} cannot be replayed: {problems[0]}")
                    now = event.at
            yield IssueView(past_tables, now)

    def _record(
        self,
        tables: IssueTables,
        actor: str,
        issue: str | None,
        change: model.Change,
        record: model.MutationRecord | None = None,
    ) -> model.IssueEvent:
        issue = self._unused_id(tables) if issue is None else issue
        event = _apply_change(tables, self._now(), actor, issue, change, record)
        tables.append(event)
        return event

    def _record_lease(self, actor: str, issue: str, change: model.Claim | model.Renew) -> model.Lease:
        with self._store.write_transaction() as tables:
            self._record(tables, actor, issue, change)
            lease = tables.lease(issue)
            assert lease is not None  # the change has claimed or renewed it
            return lease

    def _now(self) -> model.Instant:
        return model.format_instant(self._clock())

    def _unused_id(self, tables: IssueTables) -> str:
        for _ in range(_MAX_ID_ATTEMPTS):
            issue = self._new_id()
            if tables.issue(issue) is None:
                return issue
        raise ChangeRefused("issue_exists", f"{_MAX_ID_ATTEMPTS} generated ids are in use")
