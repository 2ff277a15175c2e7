"""Compose the definition of a macro-tool from derived facts (vocabulary: ``rules/0_vocabulary.mg``).

Equal facts about a tool make an equal definition, and most tools are the same for every request. So definitions are
cached with the domain. The base is evaluated without a request; the cache key holds every fact about the tool that
differs from the base, so that no request sees facts of another request. Score, validity window and dependencies depend
on the whole evaluation: they are not cached, but set for each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from manglecp.base.cache import LruCache
from manglecp.base.text import escape_invisible
from manglecp.intent import rendering
from manglecp.intent.chain import PREDICATES, Rows, chain, macro_id, safety
from manglecp.intent.definition import Definition, Flaw, default_arguments, schema_defaults
from manglecp.intent.redaction import make_redactor, secret_values
from manglecp.intent.tokens import counter
from manglecp.mangle import INT_MAX, Duration, Fact, Key, Result, Time, part_size, plain_json

if TYPE_CHECKING:
    from manglecp.intent.domain import Domain


# A tool is valid until the end that rules declare (``valid_for``, ``valid_until``), else as long as it stays selected:
# until the last reason for its selection expires. Only tools whose selection can depend on time have such a window:
# ``Domain.expiring_tools``, which the rules determine, whatever the facts.
def validity(domain: Domain, result: Result, tool: str, rows: Rows) -> tuple[int | None, int | None] | None:
    """Return ``not_before`` and ``expires_at`` in nanoseconds: (None, None) if unlimited, None for an expired tool.

    ``rows`` has the facts of the predicates ``SELECTION`` about the tool.
    """
    now, end = result.now, declared_end(rows, result.now)
    if end is None:
        end = _selection_end(domain, result, tool, rows)
    elif end < now:
        return None
    if end is None or end >= INT_MAX:
        return None, None
    return now, end


def declared_end(rows: Rows, now: int) -> int | None:
    """Return the first end that rules declare for a tool, in nanoseconds; None if they declare none."""
    if "valid_for" not in rows and "valid_until" not in rows:
        return None
    ends = [now + cast(Duration, span).ns for _, span in rows.get("valid_for", ())]
    return min(ends + [cast(Time, end).ns for _, end in rows.get("valid_until", ())])


def _selection_end(domain: Domain, result: Result, tool: str, rows: Rows) -> int | None:
    """Return when the last reason for the selection of the tool expires; None if a reason never expires."""
    reasons = [Fact("kernel.needed", row) for row in rows.get("kernel.needed", ())]
    if "kernel.kept" in rows:  # the tool was chosen itself, not only as a dependency
        if domain.expiring_tools is not None and tool not in domain.expiring_tools:
            return None
        reasons += [Fact("candidate", row) for row in rows.get("candidate", ())]
    latest: int | None = None
    for reason in reasons:
        end = result.expiry(reason)
        if end is None:
            return None
        latest = end if latest is None else max(latest, end)
    return latest


SELECTION: Final[tuple[Key, ...]] = (
    *(("final_selected", 3), ("candidate", 3), ("kernel.kept", 1), ("kernel.needed", 1)),
    *(("valid_for", 2), ("valid_until", 2)),
)
"""The predicates that determine the uncached fields of a definition; their first argument is the tool."""
_OTHER_PREDICATES: Final = {  # arities by predicate
    **dict.fromkeys(("needs_confirmation", "four_eyes", "reversible", "idempotent"), 1),
    **dict.fromkeys(("macro", "macro_summary", "needs_skill", "needs_approval", "requires"), 2),
    "instruction": 3,
    "needs_resource": 4,
}
COMPOSED: Final[tuple[Key, ...]] = (*PREDICATES.items(), *_OTHER_PREDICATES.items())
"""The predicates that determine the cached fields of a definition; their first argument is the tool."""


class CachedComposition:
    """A definition without its uncached fields, or a flaw; and the last complete definition made from it."""

    __slots__ = ("last_definition", "template")

    def __init__(self, template: Definition | Flaw) -> None:
        self.template = template
        self.last_definition: Definition | None = None


DefinitionCache: TypeAlias = LruCache[Any, CachedComposition]
"""Definitions over one base, by the facts about the tool that differ from the base."""
MAX_DEFINITIONS: Final = 2048  # entries of a DefinitionCache
_MAX_CACHE_KEY_SIZE: Final = 1000  # in units of :func:`part_size`: a value, or sixteen characters of a string


class Composer:
    """Composes definitions of the tools that one evaluation selected.

    ``changed`` are those predicates of ``COMPOSED`` whose facts differ from the base.
    """

    def __init__(self, domain: Domain, result: Result, changed: tuple[Key, ...] | None = None) -> None:
        self._domain = domain
        self._result = result
        self._changed = result.changed(COMPOSED) if changed is None else changed

    def compose(self, tool: str, rows: Rows | None = None) -> Definition:
        """Return the definition of a selected tool. Raises :class:`Flaw`.

        ``rows`` has the facts about the tool of the predicates ``SELECTION`` and of the changed predicates.
        """
        if rows is None:
            rows = self._result.select(tool, SELECTION + self._changed)
        selection: Any = rows["final_selected"][0]
        _, score, phase = selection
        # The key needs only the predicates that the request changed: all others have the facts of the base.
        changed_rows = [tuple(rows.get(name, ())) for name, _ in self._changed]
        key = (tool, self._changed, *changed_rows)
        entry = self._domain.definitions.get(key)
        if entry is None:
            try:
                entry = CachedComposition(self._template(tool))
            except Flaw as flaw:
                entry = CachedComposition(type(flaw)(f"{escape_invisible(tool)}: {flaw.message}", flaw.fix))
            # An entry with a larger key is not cached: clients influence the size of keys.
            if sum(part_size(value) for group in changed_rows for row in group for value in row) <= _MAX_CACHE_KEY_SIZE:
                self._domain.definitions.put(key, entry)
        template = entry.template
        if isinstance(template, Flaw):
            # A copy: raising the cached exception would add to its traceback, which keeps frames alive.
            raise type(template)(template.message, template.fix)
        window = validity(self._domain, self._result, tool, rows)
        if window is None:
            message = f"{escape_invisible(tool)}: it is no longer valid"
            raise Flaw(message, "let valid_for and valid_until end in the future")
        requires = template.requires
        if requires:
            requires = tuple([name for name in requires if self._result.find(("final_selected", 3), name)])
        last = entry.last_definition
        if last is not None and _uncached_fields(last) == (*window, score, phase, requires):
            return last
        entry.last_definition = definition = replace(
            template,
            not_before=window[0],
            expires_at=window[1],
            score=score,
            phase=phase,
            requires=requires,
        )
        return definition

    def _template(self, tool: str) -> Definition:
        """Return the definition without its uncached fields, which depend on the request. Raises :class:`Flaw`."""
        pack = self._domain.pack
        rows: dict[str, Any] = {**{name: [] for name, _ in COMPOSED}, **self._result.select(tool, COMPOSED)}
        tool_chain = chain(tool, rows, pack.actions)
        redact = make_redactor(secret_values(pack))
        description = redact(_text(rows["macro"]))
        instructions = [escape_invisible(redact(text)) for _, _, text in rows["instruction"]]
        resources = cast("list[tuple[str, str, str, int]]", rows["needs_resource"])
        return Definition(
            tool=tool,
            macro_id=macro_id(tool_chain.digest),
            chain_digest=tool_chain.digest,
            description=description,
            summary=rendering.one_line(redact(_text(rows["macro_summary"])) or description),
            steps=tool_chain.steps,
            ordered=tool_chain.ordered,
            input_schema=redact(tool_chain.input_schema),
            output_schema=redact(tool_chain.output_schema),
            results=tool_chain.results,
            safety=safety(
                tool_chain.side_effects,
                tool_chain.actions,
                needs_confirmation=bool(rows["needs_confirmation"]),
                reversible=bool(rows["reversible"]),
                idempotent=bool(rows["idempotent"]),
                approver_roles=(str(role) for _, role in rows["needs_approval"]),
                four_eyes=bool(rows["four_eyes"]),
            ),
            instructions=rendering.instructions(instructions, counter(pack.settings.disclosure.tokens)),
            skills=tuple(skill for _, skill in rows["needs_skill"] if skill in pack.skills),
            resources=rendering.resources(
                (escape_invisible(redact(uri)), escape_invisible(redact(relevance)), priority)
                for _, uri, relevance, priority in resources
            ),
            requires=tuple(name for _, name in rows["requires"]),
        )

    def defaults(self, tool: str) -> Mapping[str, Any]:
        """Return the defaults of a tool's call arguments, even if the tool is not selected or has no steps."""
        try:
            return default_arguments(self._template(tool))
        except Flaw:
            param_rows = self._result.find(("macro_param", 3), tool)
            schemas = {str(name): plain_json(schema) for _, name, schema in param_rows}
            return schema_defaults(schemas)

    def compose_all(self, tools: Iterable[str]) -> tuple[dict[str, Definition], dict[str, Flaw]]:
        """Return the definitions of the tools and their dependencies, and the flaws, by tool.

        A tool that requires a flawed one is left out: no definition may require a tool that is not offered.
        """
        definitions: dict[str, Definition] = {}
        flaws: dict[str, Flaw] = {}
        pending = list(tools)
        while pending:
            tool = pending.pop()
            if tool in definitions or tool in flaws:
                continue
            try:
                definitions[tool] = definition = self.compose(tool)
                pending += definition.requires
            except Flaw as flaw:
                flaws[tool] = flaw
        dropped = set(flaws)
        while dropped:
            dropped = {tool for tool, definition in definitions.items() if not dropped.isdisjoint(definition.requires)}
            for tool in dropped:
                del definitions[tool]
        return definitions, dict(sorted(flaws.items()))


def _uncached_fields(definition: Definition) -> tuple[Any, ...]:
    return definition.not_before, definition.expires_at, definition.score, definition.phase, definition.requires


def _text(rows: list[Any]) -> str:
    """Return the text in the second column of the only row; empty if there is none."""
    return escape_invisible(rows[0][1]) if rows else ""
