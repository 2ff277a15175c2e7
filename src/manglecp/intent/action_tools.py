"""Tools that no rule composes: an action that no rule or fact makes a step is a tool of the same name.

The facts of such a tool are asserted when a pack is loaded, as if a fact file had them. Where a rule or fact of the
pack states a property of the tool itself, the fact for this property is left out. The names that a variable of a rule
can have follow from the clauses and facts that bind it; a variable that may have any name counts as every action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from manglecp.intent.kernel_statements import Statements
from manglecp.intent.names import ColumnContent, NameFlow, RuleSet
from manglecp.mangle import Fact, Key
from manglecp.pack import ActionDescription, IntentSettings

FILE: Final = "actions.py"  # the file that messages name for these facts
SCORE: Final = 80  # the relevance of a tool for which no rule decides it
GENERAL_INTENT: Final = IntentSettings(name="any", description="Use the tools of this pack")
"""The intent of a pack with these tools that lists no intent in pack.toml and names none in rules of the domain."""


def definitions(rules: RuleSet, statements: Statements, outside: set[str]) -> Iterator[Fact]:
    """Yield the facts that define the tools. ``outside`` are predicates whose facts do not come from the pack."""
    columns = _Columns(rules, statements, outside)
    step_tools, described_tools = columns.content(("macro_step", 3), 0).names, columns.content(("macro", 2), 0).names
    step_actions = [columns.content((predicate, 3), 2) for predicate in ("macro_step", "undo_step")]
    if any(content.sources for content in step_actions):
        return  # a rule can make any action a step
    used_actions = step_tools.union(*(content.names for content in step_actions))
    used_actions |= {action.preview for action in rules.pack.actions.values() if action.preview is not None}
    for action in rules.pack.actions.values():
        if action.tool and action.name not in used_actions:
            yield Fact("macro_step", (action.name, 1, action.name))
            if action.name not in described_tools:
                yield Fact("macro", (action.name, action.description.strip() or action.name.replace("_", " ").strip()))
            yield from _parameter_bindings(action, statements)


def relevance(rules: RuleSet, statements: Statements, outside: set[str], tools: set[str]) -> Iterator[Fact]:
    """Yield ``relevant`` for each of ``tools`` that no rule selects. ``rules`` has the facts of :func:`definitions`."""
    columns = _Columns(rules, statements, outside)
    selections = [columns.content(key, 0) for key in (("mandatory", 1), ("relevant", 2))]
    if not any(content.sources for content in selections):
        for tool in sorted(tools.difference(*(content.names for content in selections))):
            yield Fact("relevant", (tool, SCORE))


def _parameter_bindings(action: ActionDescription, statements: Statements) -> Iterator[Fact]:
    """Yield ``arg_from`` for unbound parameters: a tool with declared arguments hides optional ones (TOOL-09)."""
    if not statements.of(action.name, "macro_param", 3):
        return
    bound_params = {
        statement.args[2]
        for key in (("arg_value", 4), ("arg_from", 4), ("arg_step", 5), ("arg_kept", 5))
        for statement in statements.of(action.name, *key)
        if key[0] != "arg_value" or not statement.premises  # a rule that does not hold leaves the value to the client
    }
    for param in action.input_schema.get("properties", {}):
        if bound_params.isdisjoint((param, None)) and param not in action.previewed:
            yield Fact("arg_from", (action.name, 1, param, param))


class _Columns:
    def __init__(self, rules: RuleSet, statements: Statements, outside: set[str]) -> None:
        self._statements = statements
        self._flow = NameFlow(rules, outside)

    def content(self, key: Key, column: int) -> ColumnContent:
        """Return the names that a column of a kernel predicate can hold. Clauses without variables need no analysis."""
        names = {statement.args[column] for statement in self._statements.each(*key)}
        if None in names:
            return self._flow.content((key, column))
        return ColumnContent({name for name in names if isinstance(name, str)}, set())
