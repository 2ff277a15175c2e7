"""Options, the location of the memory, and the gate before a change: shared by the verbs of ``manglecp issue``."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from manglecp.cli.files import EXISTING_FILE, FILE, option, option_group, read_json, source_name
from manglecp.cli.issue_text import IssueResult, to_document, to_lines
from manglecp.cli.options import document_option, user_name
from manglecp.cli.output import fail, print_result, print_stderr
from manglecp.issues import DEFAULT_PRIORITY, DEFAULT_TTL, StoredIssues, open_issues, system_clock
from manglecp.store import parse_location

if TYPE_CHECKING:
    from manglecp.harness import MutationReady
    from manglecp.issues import IssueView, SessionMemory

database_option = option(
    "--db STORE",
    envvar="MANGLECP_ISSUES",
    help="The issue memory: a path, sqlite:///PATH or postgresql://…; by default .manglecp/issues.db here or in the "
    "nearest folder above.",
)
actor_option = option(
    "--actor NAME",
    envvar="MANGLECP_ACTOR",
    default=user_name,
    help="The actor of the change; by default $MANGLECP_ACTOR or the user.",
)
as_of_option = option("--as-of N", type=click.IntRange(min=1), help="The state after event N.")
fence_option = option("--fence N", type=int, help="The fencing token of the lease, if there is one.")
ttl_option = option("--ttl SECONDS", type=int, default=DEFAULT_TTL, help="The duration of the lease; 3,600 by default.")
issue_id_option = option("--id ID", "issue", help="The id of the new issue; by default a random one.")
new_issue_options = option_group(  # the fields of ``Add`` and ``Discover``
    "fields",
    lambda labels, **fields: {**fields, "labels": tuple(sorted(set(labels)))},
    option("--description TEXT", default="", help="The description of the issue."),
    option("--priority 0-4", type=int, default=DEFAULT_PRIORITY, help="0 is the most urgent; 2 by default."),
    option("--label LABEL", "labels", multiple=True, help="May be given several times."),
)
note_option = option("--note TEXT", default="", help="A text to append to the notes.")

DEFAULT_PATH: Final = Path(".manglecp", "issues.db")
_ID_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # without letters that look like other characters


class IssueOptions(NamedTuple):
    """The output format, the location of the memory, and for changes the actor."""

    as_json: bool
    db: str | None
    actor: str = ""

    def store(self, *, create: bool = False) -> AbstractContextManager[StoredIssues]:
        """Open the store until the end of a ``with`` block."""
        return closing(open_issues(_locate(self.db, create=create)))

    @contextmanager
    def memory(self, *, create: bool = False) -> Iterator[SessionMemory]:
        """Open the memory, which must exist unless ``create``."""
        from manglecp.issues import SessionMemory

        with self.store(create=create) as store:
            yield SessionMemory(store, clock=system_clock, new_id=_new_id)

    @contextmanager
    def view(self, as_of: int | None = None) -> Iterator[IssueView]:
        """Yield the state of the memory after the event ``as_of``, or its current state."""
        with self.memory() as memory, memory.view(as_of) as view:
            yield view

    def print(self, result: IssueResult) -> None:
        print_result(to_document(result), to_lines(result), as_json=self.as_json)

    def print_list(self, results: Iterable[IssueResult]) -> None:
        results = list(results)
        lines = (line for result in results for line in to_lines(result))
        print_result(list(map(to_document, results)), lines, as_json=self.as_json)


issue_options: Final = option_group("issues", IssueOptions, document_option, database_option)
change_options: Final = option_group("issues", IssueOptions, actor_option, document_option, database_option)


def _locate(db: str | None, *, create: bool) -> str | Path:
    """Return the URL or the path of the memory. Raises ``UsageError`` for a missing file, unless ``create``."""
    if db is not None:
        path = parse_location(db)
        if not isinstance(path, Path):
            return db
        if not create and not path.exists():
            raise click.UsageError(f"there is no issue memory {click.format_filename(path)}")
    else:
        working_folder = Path.cwd()
        candidates = [folder / DEFAULT_PATH for folder in (working_folder, *working_folder.parents)]
        path = next(filter(Path.is_file, candidates), candidates[0])
        if not create and not path.exists():
            remedy = "create one with `manglecp issue add`, or give --db"
            raise click.UsageError(f"there is no {DEFAULT_PATH} in this folder or above; {remedy}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"cannot create {click.format_filename(path.parent)}: {error.strerror}") from None
    return path


def _new_id() -> str:
    """Return one of about 10^12 random ids of eight characters; the memory requests another one if the id is taken."""
    return "i-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))


_evidence = option(
    "--evidence FILE",
    "evidence_file",
    required=True,
    type=FILE,
    help="The evidence of the turn, in the format of `manglecp harness check --input`; - is standard input.",
)
_active_policy = option(
    "--active-policy DIGEST", envvar="MANGLECP_ACTIVE_POLICY", help="The digest of the mutation policy in force."
)
_pin = option(
    "--pin FILE",
    "pin_file",
    envvar="MANGLECP_PIN",
    type=EXISTING_FILE,
    help="The pin of the policy package in force, instead of --active-policy.",
)


def requires_evidence(make_change: Callable[..., Any]) -> Callable[..., None]:
    """Return a verb that judges the evidence of a turn, applies the change, and prints the changed issue.

    ``make_change`` returns the change from the other options of the verb, without ``issue``.
    """

    @_evidence
    @_active_policy
    @_pin
    @change_options
    @wraps(make_change)
    def verb(
        *,
        evidence_file: str,
        active_policy: str | None,
        pin_file: Path | None,
        issues: IssueOptions,
        issue: str | None,
        **fields: Any,
    ) -> None:
        active_digest = _active_digest(active_policy, pin_file)
        with issues.memory() as memory:
            authorisation = _authorise(evidence_file, active_digest)
            changed_issue = memory.mutate(authorisation, issues.actor, issue, make_change(**fields))
        issues.print(changed_issue)

    return verb


def _active_digest(active_policy: str | None, pin_file: Path | None) -> str:
    """Return the digest of the mutation policy in force. The evidence must not choose its own policy."""
    from manglecp.cli.policy import load_pin
    from manglecp.harness.policy import PolicyError

    if active_policy is not None:
        return active_policy
    if pin_file is None:
        raise click.UsageError(
            "the mutation policy in force is missing: give --pin FILE (MANGLECP_PIN), the pin of the policy package, "
            "or --active-policy DIGEST (MANGLECP_ACTIVE_POLICY)"
        )
    try:
        pin = load_pin(pin_file)
    except PolicyError as error:
        raise click.UsageError("\n".join(f"{each.place}: {each.message}" for each in error.diagnostics)) from None
    assert pin is not None  # a missing file, whose pin is None, is refused by EXISTING_FILE
    return pin.package.digests["mutation"]


def _authorise(evidence_file: str, active_digest: str) -> MutationReady:
    """Return the authorisation that the evidence proves, or print all findings and exit."""
    from manglecp.harness import InvalidEvidence, TurnBlocked, replay_turn

    try:
        return replay_turn(read_json(evidence_file), active_digest)
    except InvalidEvidence as error:
        raise click.UsageError(f"{source_name(evidence_file)}: {error}") from None
    except TurnBlocked as blocked:
        for finding in blocked.findings:
            failure_text = f"{finding.failure.name} at {finding.where}"
            print_stderr(f"  {failure_text}: {finding.message}; {finding.failure.remedy}")
        reason = "the evidence does not prove the change" if blocked.findings else "the turn requests no mutation"
        fail(f"error[blocked]: {blocked.state.title} is not reached: {reason}")
