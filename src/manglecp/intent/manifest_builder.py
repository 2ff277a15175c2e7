"""The manifest of a domain (MANI-02), and the survey of all problems of a pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.domain import Domain
from manglecp.intent.evaluation import MAX_WHY_NOT_NAMES
from manglecp.intent.fact_sources import FactSource
from manglecp.intent.redaction import EXPLAIN_POLICY, find_disclosed_secrets
from manglecp.pack import (
    ActionDescription,
    ExternalDescription,
    IntentSettings,
    Pack,
    PackError,
    SandboxPolicy,
    SkillText,
    outline_manifest,
    read_pack,
)
from manglecp.wire import messages

EXTENSIONS: Final = {
    "x-why_not": {
        "option": f'options["x-why_not"]: array of at most {MAX_WHY_NOT_NAMES} tool names',
        "answer": 'proof_hints["x-why_not"]: what blocks each and which facts would unlock it',
    },
    "x-rule_coverage": {
        "permission": EXPLAIN_POLICY,  # for use where the pack does not enable it for all
        "option": 'options["x-rule_coverage"]: true',
        "answer": "diagnostics.rule_coverage: which rules fired, lay dormant or did not apply",
    },
    "x-approvals": {
        "messages": "x-approval_request and x-approval_response, for credentials with the permission approve",
        "option": "confirmation_token of invoke_request: the id of an approved request",
        "prepare": 'payload["x-prepare"] of invoke_request: true to store the approval request without a run',
    },
    "x-decide": {
        "messages": "x-decide_request and x-decide_response: whether a call is allowed, needs an approval or is denied",
        "permit": "true for a permit to execute the call, whose outcome the client reports in report",
    },
    "x-skills": {
        "messages": "x-skill_request and x-skill_response; at x-skills of endpoints also GET, followed by /ID",
        "answer": "the text of a skill, while a tool that is offered to the client refers to it",
    },
    "x-request_key": {
        "option": 'payload["x-request_key"] of invoke_request: a text of the client, at most 128 characters',
        "answer": "the same key, tool and arguments lead to one run and its answer, however often they are sent",
        "cancel": 'payload["x-request_key"] of cancel, which macro_invoke takes too: the run of that key stops',
    },
}
"""The extensions of every server, as its manifest describes them (OPEN-50)."""


def manifest(
    domain: Domain,
    status: messages.Status = "ready",
    endpoints: messages.Endpoints | None = None,
    auth: messages.Auth | None = None,
    extensions: dict[str, Any] | None = None,
) -> messages.Manifest:
    """Return the manifest. ``endpoints`` are for HTTP; ``auth`` replaces the pack's; ``extensions`` are added."""
    pack = domain.pack
    limits, auth_settings = pack.settings.limits, pack.settings.auth
    auth = auth or messages.Auth(
        required=auth_settings.required,
        schemes=auth_settings.schemes or messages.UNSET,
        token_url=auth_settings.token_url or messages.UNSET,
    )
    outline = outline_manifest(pack.settings, status, endpoints, auth).payload
    affinities = dict(pack.settings.domain.affinities) or messages.UNSET
    return messages.Manifest(
        payload=msgspec.structs.replace(
            outline,
            domain=msgspec.structs.replace(outline.domain, affinities=affinities),
            intents=tuple(map(_intent, pack.settings.intents)),
            facts_profile=messages.FactsProfile(
                time_formats=messages.TIME_FORMATS, predicates=domain.profile.schemas()
            ),
            capabilities=messages.Capabilities(
                temporal=True,
                external_predicates=tuple(_external(pack.externals[name]) for name in sorted(pack.externals)),
            ),
            limits=messages.ServerLimits(
                **{name: getattr(limits, name) for name in messages.ServerLimits.__struct_fields__}
            ),
            extensions=_extensions(domain, extensions or {}),
        )
    )


def _intent(intent: IntentSettings) -> messages.IntentDescription:
    return messages.IntentDescription(
        name=intent.name,
        description=intent.description,
        required_facts=intent.required_facts or messages.UNSET,
        optional_facts=intent.optional_facts or messages.UNSET,
    )


def _external(external: ExternalDescription) -> messages.ExternalPredicate:
    return messages.ExternalPredicate(
        predicate=external.predicate,
        arity=external.arity,
        description=external.description or f"Answered by the server: {external.predicate}",
        deterministic=external.deterministic,
        mode=external.mode,
    )


def _extensions(domain: Domain, added: dict[str, Any]) -> dict[str, Any]:
    invalid = sorted(key for key in added if not key.startswith("x-"))
    if invalid:
        raise ValueError(f"an extension begins with x-: {', '.join(invalid)}")  # MANI-27
    settings = domain.pack.settings
    configurable = {
        "x-rule_coverage": {"enabled": settings.rule_coverage, **EXTENSIONS["x-rule_coverage"]},
        "x-structured_facts": {"enabled": settings.structured_facts, "rules": False},
    }
    destinations = sorted({name for names in domain.pack.egress.values() for name in names})
    egress = {"x-egress": {"destinations": destinations}} if destinations else {}
    return {**EXTENSIONS, **configurable, **egress, "x-pack_digest": domain.digest, **added}


T = TypeVar("T")


def survey(
    folder: Path,
    params: Mapping[str, str] | None = None,
    serve: Callable[[Pack], AbstractContextManager[FactSource | None]] | None = None,
    *,
    sandbox: SandboxPolicy | None = None,
) -> tuple[Domain | None, tuple[Diagnostic, ...]]:
    """Return the domain, or None, and all problems including warnings.

    A pack that cannot be read is not loaded; a survey loads its readable parts, to report their errors too. To avoid
    false errors, everything that a broken part could define is assumed to exist, and warnings of loading are left out.
    ``serve`` runs the pack's generators. ``sandbox`` is as in :func:`manglecp.pack.read_pack`.
    """
    try:
        pack = read_pack(folder, params, sandbox=sandbox)
    except PackError as error:
        if error.partial is None:
            return None, error.diagnostics
        return None, _with_load_errors(error.partial, error.diagnostics)
    try:
        with nullcontext() if serve is None else serve(pack) as generated:
            domain = Domain.load(pack, generated=generated)
    except PackError as error:
        return None, error.diagnostics
    clauses = (rule.clause for rule in domain.program.rules)
    return domain, (*domain.warnings, *find_disclosed_secrets(clauses))


def _with_load_errors(partial: Pack, read_problems: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return the problems of reading, and the errors of loading the readable part, sorted by place."""
    broken = {problem.file for problem in read_problems if problem.severity == "error"}
    problems = list(read_problems)
    try:
        Domain.load(_assume_broken_parts(partial, broken))
    except PackError as error:
        rules_incomplete = _any_in("rules", broken) or _any_in("externals", broken)  # errors in rules may be false
        problems += (
            problem
            for problem in error.diagnostics
            if problem.severity == "error"
            and problem not in read_problems
            and not (rules_incomplete and problem.file.startswith("rules/"))
        )
    return tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0, problem.column or 0)))


def _assume_broken_parts(pack: Pack, broken: set[str]) -> Pack:
    """Return the pack, where each part with a broken file defines every name."""
    if _any_in("actions", broken):
        pack = replace(pack, actions=_TotalMapping(pack.actions, _ACTION))
    if _any_in("skills", broken):
        pack = replace(pack, skills=_TotalMapping(pack.skills, _SKILL))
    if _any_in("externals", broken):
        pack = replace(pack, externals=_TotalMapping(pack.externals, _EXTERNAL))
    return pack


def _any_in(part: str, files: set[str]) -> bool:
    """Return whether a file belongs to a part, such as ``actions.py`` or ``actions/tools.py``."""
    return any(file == f"{part}.py" or file.startswith(f"{part}/") for file in files)


class _TotalMapping(Mapping[str, T], Generic[T]):
    """A mapping that has every key: known values, else ``assumed``."""

    def __init__(self, known: Mapping[str, T], assumed: T) -> None:
        self._known = known
        self._assumed = assumed

    def __getitem__(self, name: str) -> T:
        return self._known.get(name, self._assumed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


_ACTION: Final = ActionDescription(name="", aid="", description="", input_schema={}, output_schema={})
_SKILL: Final = SkillText(skill_id="", name="", description="", content="")
_EXTERNAL: Final = ExternalDescription(predicate="", mode="")
