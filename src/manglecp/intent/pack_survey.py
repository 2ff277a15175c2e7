"""Everything that is wrong with a pack, whatever else is wrong with it.

Reading and loading each stop when something cannot be used. A survey goes on with what there is: a mistake in the
settings does not hide one in a rule. It must not invent mistakes either, so that whatever a broken part could have said
is taken as said, and doubts are told only about a pack that could be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final, Generic, TypeVar

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.domain import Domain
from manglecp.intent.generated import Generated
from manglecp.intent.secret_settings import told_secrets
from manglecp.pack import ActionDescription, ExternalDescription, Pack, PackError, SkillText, read_pack

__all__ = ["survey"]

T = TypeVar("T")


def survey(
    folder: Path,
    params: Mapping[str, str] | None = None,
    serve: Callable[[Pack], AbstractContextManager[Generated | None]] | None = None,
    *,
    degrade: bool = False,
) -> tuple[Domain | None, tuple[Diagnostic, ...]]:
    """The domain, if there is one, and all problems; warnings are among them.

    ``serve`` has the pack find out what it says it can; without it that is not tried. ``degrade`` as of
    :func:`manglecp.pack.loader.read_pack`.
    """
    try:
        pack = read_pack(folder, params, degrade=degrade)
    except PackError as refused:
        if refused.partial is None:
            return None, refused.diagnostics
        return None, _more(refused.partial, refused.diagnostics)
    try:
        with nullcontext() if serve is None else serve(pack) as generated:
            domain = Domain.load(pack, generated=generated)
    except PackError as refused:
        return None, refused.diagnostics
    clauses = (rule.clause for rule in domain.program.rules)
    return domain, (*domain.warnings, *told_secrets(clauses))


def _more(partial: Pack, known: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """The problems of reading, and those of loading what could be read."""
    broken = {problem.file for problem in known if problem.severity == "error"}
    try:
        Domain.load(_assuming(partial, broken))
    except PackError as refused:
        found = [problem for problem in refused.diagnostics if problem.severity == "error" and problem not in known]
    else:
        found = []
    if _any_in("rules", broken) or _any_in("externals", broken):  # rules may rest on what is missing
        found = [problem for problem in found if not problem.file.startswith("rules/")]
    return tuple(sorted((*known, *found), key=lambda problem: (problem.file, problem.line or 0, problem.column or 0)))


def _assuming(pack: Pack, broken: set[str]) -> Pack:
    """The pack with whatever its broken parts could have held."""
    if _any_in("actions", broken):
        pack = replace(pack, actions=_Assumed(pack.actions, _ACTION))
    if _any_in("skills", broken):
        pack = replace(pack, skills=_Assumed(pack.skills, _SKILL))
    if _any_in("externals", broken):
        pack = replace(pack, externals=_Assumed(pack.externals, _EXTERNAL))
    return pack


def _any_in(part: str, files: set[str]) -> bool:
    return any(file == f"{part}.py" or file.startswith(f"{part}/") for file in files)


class _Assumed(Mapping[str, T], Generic[T]):
    """What is known, and anything else that is asked for."""

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
_EXTERNAL: Final = ExternalDescription(predicate="", arity=0, mode="")
