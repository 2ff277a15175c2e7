"""Compose the definition of a macro-tool from derived facts (vocabulary: ``rules/0_vocabulary.mg``).

Equal facts about a tool make an equal definition, and most tools are the same for every request. So definitions are
cached with the base; the cache key holds every fact the request added, so no request sees facts of another one. Score,
window and dependencies depend on the whole evaluation and are filled in each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from manglecp.base.cache import LruCache
from manglecp.base.text import escape_invisible
from manglecp.intent import rendering
from manglecp.intent.chain import PREDICATES, chain, macro_id, safety
from manglecp.intent.definition import Definition, Flaw
from manglecp.intent.redaction import make_redactor, secret_values
from manglecp.intent.tokens import counter
from manglecp.mangle import INT_MAX, Duration, Fact, Time, part_size

if TYPE_CHECKING:
    from manglecp.intent.evaluation import IntentEvaluation, Selected


# A tool is valid until the end that rules give it, else as long as it stays selected: until the last reason for its
# selection expires. Only a tool whose selection can depend on time has a window, which the rule graph determines before
# any request.
_SELECTING: Final = (("mandatory", 1), ("relevant", 2))


def validity(evaluation: IntentEvaluation, tool: str) -> tuple[int | None, int | None] | None:
    """Return ``not_before`` and ``expires_at`` in nanoseconds, both None without a window; None for an expired tool."""
    end = _declared_end(evaluation, tool)
    if end is None:
        end = _selection_end(evaluation, tool)
    elif end < evaluation.now:
        return None
    if end is None or end >= INT_MAX:
        return None, None
    return evaluation.now, end


def expired(evaluation: IntentEvaluation, tool: str) -> bool:
    """Return whether rules give the tool an end that has passed."""
    end = _declared_end(evaluation, tool)
    return end is not None and end < evaluation.now


def _declared_end(evaluation: IntentEvaluation, tool: str) -> int | None:
    spans = evaluation.lookup.rows("valid_for", 2, tool)
    until = evaluation.lookup.rows("valid_until", 2, tool)
    if not spans and not until:
        return None
    ends = [evaluation.now + cast(Duration, span).ns for _, span in spans]
    return min([*ends, *(cast(Time, end).ns for _, end in until)])


def _selection_end(evaluation: IntentEvaluation, tool: str) -> int | None:
    lookup, result = evaluation.lookup, evaluation.result
    reasons: list[Fact] = []
    if lookup.rows("kept", 1, tool):
        if not any(result.may_expire(key, tool) for key in _SELECTING):
            return None
        reasons += [Fact("candidate", row) for row in lookup.rows("candidate", 3, tool)]
    reasons += [Fact("needed", row) for row in lookup.rows("needed", 1, tool)]
    latest: int | None = None
    for reason in reasons:
        end = result.expiry(reason)
        if end is None:
            return None
        latest = end if latest is None else max(latest, end)
    return latest


_AROUND: Final = {
    "macro": 2,
    "macro_summary": 2,
    "instruction": 3,
    "needs_skill": 2,
    "needs_resource": 4,
    "needs_confirmation": 1,
    "needs_approval": 2,
    "four_eyes": 1,
    "reversible": 1,
    "idempotent": 1,
    "requires": 2,
}
_KEYS: Final = (*PREDICATES.items(), *_AROUND.items())


class CachedComposition:
    """A definition from the facts about a tool, or its flaw; and ``last``, the last definition completed from it."""

    __slots__ = ("last", "template")

    def __init__(self, template: Definition | Flaw) -> None:
        self.template = template
        self.last: Definition | None = None


DefinitionCache: TypeAlias = LruCache[Any, CachedComposition]
"""Definitions over one base, by the request's facts that they were composed from."""
CACHED: Final = 2048
_LARGEST: Final = 1000  # in parts of values of a key; sixteen characters are one part


class Composer:
    def __init__(self, evaluation: IntentEvaluation) -> None:
        self.evaluation = evaluation
        self._find = evaluation.result.finder()
        self._changed = evaluation.result.changed(_KEYS)
        self._cache = evaluation.domain.definitions
        self._selected: dict[str, Selected] = {one.tool: one for one in evaluation.selected}

    def compose(self, tool: str) -> Definition:
        """Return the definition of a selected tool. Raises :class:`Flaw`."""
        selected = self._selected[tool]
        find = self._find
        # The facts as they are found, in whatever order: another order only costs another entry. Those of predicates
        # that the request did not change are the base's.
        key = (self.evaluation.domain.digest, tool, self._changed, *[tuple(find(one, tool)) for one in self._changed])
        entry = self._cache.get(key)
        if entry is None:
            try:
                entry = CachedComposition(self._template(tool))
            except Flaw as flaw:
                entry = CachedComposition(type(flaw)(f"{escape_invisible(tool)}: {flaw.message}", flaw.fix))
            # Clients influence the keys.
            if sum(part_size(value) for rows in key[3:] for row in rows for value in row) <= _LARGEST:
                self._cache.put(key, entry)
        template = entry.template
        if isinstance(template, Flaw):
            raise type(template)(template.message, template.fix)
        window = validity(self.evaluation, tool)
        if window is None:
            raise Flaw(
                f"{escape_invisible(tool)}: it is no longer valid", "let valid_for and valid_until end in the future"
            )
        requires = tuple([name for name in template.requires if name in self._selected])
        last = entry.last
        if last is not None and _request_fields(last) == (*window, selected.score, selected.phase, requires):
            return last
        entry.last = definition = replace(
            template,
            not_before=window[0],
            expires_at=window[1],
            score=selected.score,
            phase=selected.phase,
            requires=requires,
        )
        return definition

    def _template(self, tool: str) -> Definition:
        pack, lookup = self.evaluation.domain.pack, self.evaluation.lookup
        rows: dict[str, Any] = {name: lookup.rows(name, arity, tool) for name, arity in _KEYS}
        links = chain(tool, rows, pack.actions)
        hide = make_redactor(secret_values(pack))
        description = hide(_text(rows["macro"]))
        instructions = [escape_invisible(hide(text)) for _, _, text in rows["instruction"]]
        wanted = cast("list[tuple[str, str, str, int]]", rows["needs_resource"])
        return Definition(
            tool=tool,
            macro_id=macro_id(links.digest),
            chain_digest=links.digest,
            description=description,
            summary=rendering.one_line(hide(_text(rows["macro_summary"])) or description),
            steps=links.steps,
            ordered=links.ordered,
            input_schema=hide(links.input_schema),
            output_schema=hide(links.output_schema),
            results=links.results,
            safety=safety(
                links.side_effects,
                links.actions,
                needs_confirmation=bool(rows["needs_confirmation"]),
                reversible=bool(rows["reversible"]),
                idempotent=bool(rows["idempotent"]),
                approver_roles=(str(role) for _, role in rows["needs_approval"]),
                four_eyes=bool(rows["four_eyes"]),
            ),
            instructions=rendering.instructions(instructions, counter(pack.settings.disclosure.tokens)),
            skills=tuple(skill for _, skill in rows["needs_skill"] if skill in pack.skills),
            resources=rendering.resources(
                (escape_invisible(hide(uri)), escape_invisible(hide(why)), priority) for _, uri, why, priority in wanted
            ),
            requires=tuple(name for _, name in rows["requires"]),
        )

    def all(self, tools: Iterable[str]) -> tuple[list[Definition], dict[str, Flaw]]:
        """Compose the tools and their dependencies. Dependents of a flawed tool are left out (contract 4)."""
        definitions: dict[str, Definition] = {}
        flaws: dict[str, Flaw] = {}
        waiting = list(tools)
        while waiting:
            tool = waiting.pop()
            if tool in definitions or tool in flaws:
                continue
            try:
                definitions[tool] = definition = self.compose(tool)
                waiting += definition.requires
            except Flaw as flaw:
                flaws[tool] = flaw
        gone = set(flaws)
        while gone:
            gone = {one.tool for one in definitions.values() if not gone.isdisjoint(one.requires)}
            for tool in gone:
                del definitions[tool]
        return list(definitions.values()), dict(sorted(flaws.items()))


def _request_fields(definition: Definition) -> tuple[Any, ...]:
    return definition.not_before, definition.expires_at, definition.score, definition.phase, definition.requires


def _text(rows: list[Any]) -> str:
    return escape_invisible(rows[0][1]) if rows else ""
