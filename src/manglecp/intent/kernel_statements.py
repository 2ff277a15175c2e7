"""Statements about kernel predicates: heads of clauses, and facts, each with its constant arguments and its place.

The value of a variable is unknown, so a clause with a variable in the place of the tool may concern any tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from manglecp.base.diagnostic import Diagnostic, Severity
from manglecp.intent.kernel import PREDICATES
from manglecp.mangle import Fact, Key, Value, argument_span, constant_value
from manglecp.mangle.syntax import Clause, Premise
from manglecp.pack import pack_problem

_MAX_PER_FILE: Final = 20  # problems per file and severity: generated files repeat a mistake on every line
Args: TypeAlias = tuple[Value | None, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """The head of a clause, or a fact. ``args`` are constants, None where the value is unknown."""

    args: Args
    clause: Clause | None
    file: str = ""  # the file of a fact that is not a clause

    @property
    def terms(self) -> tuple[object, ...]:
        """The arguments as they are written, variables included."""
        return self.args if self.clause is None else self.clause.head.args

    @property
    def premises(self) -> frozenset[Premise]:
        return frozenset() if self.clause is None else frozenset(self.clause.premises)


class Statements:
    """Statements by predicate and tool; ``is_complete`` is whether every rule and fact file was readable."""

    def __init__(
        self, clauses: Iterable[Clause], facts: Iterable[tuple[str, Fact]] = (), is_complete: bool = True
    ) -> None:
        self.is_complete = is_complete
        self._by_key: dict[Key, list[Statement]] = {}
        self._by_tool: dict[Key, dict[Value | None, list[Statement]]] = {}
        for clause in clauses:
            if clause.head.predicate in PREDICATES:
                self.add(clause.head.key, Statement(tuple(map(constant_value, clause.head.args)), clause))
        for file, fact in facts:
            if fact.predicate in PREDICATES:
                self.add(fact.key, Statement(fact.args, None, file))

    def add(self, key: Key, statement: Statement) -> None:
        self._by_key.setdefault(key, []).append(statement)
        if statement.args:
            self._by_tool.setdefault(key, {}).setdefault(statement.args[0], []).append(statement)

    def each(self, predicate: str, arity: int) -> list[Statement]:
        return self._by_key.get((predicate, arity), [])

    def of(self, tool: str, predicate: str, arity: int) -> list[Statement]:
        """Return the statements that concern the tool, or any tool."""
        by_tool = self._by_tool.get((predicate, arity), {})
        return [*by_tool.get(tool, ()), *by_tool.get(None, ())]

    def may_have(self, tool: str, predicate: str, arity: int) -> bool:
        """Return whether a statement about the tool exists, or may exist in an unreadable file."""
        return not self.is_complete or bool(self.of(tool, predicate, arity))


class ProblemList:
    """Diagnostics at the places of statements, without duplicates."""

    def __init__(self) -> None:
        self._problems: dict[Diagnostic, None] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def report(
        self, statement: Statement, column: int | None, message: str, fix: str | None, *, error: bool = True
    ) -> None:
        """Add a problem at a statement, or at the argument in ``column``."""
        severity: Severity = "error" if error else "warning"
        if statement.clause is not None:
            head = statement.clause.head
            span = head.span if column is None else argument_span(head, column)
            self.add(Diagnostic("analysis", message, span, fix=fix, severity=severity))
            return
        problem = pack_problem(statement.file, message, fix=fix, severity=severity)
        if problem not in self._problems:
            self._counts[statement.file, severity] += 1
            if self._counts[statement.file, severity] <= _MAX_PER_FILE:
                self.add(problem)

    def add(self, problem: Diagnostic) -> None:
        self._problems[problem] = None

    @property
    def items(self) -> list[Diagnostic]:
        return list(self._problems)
