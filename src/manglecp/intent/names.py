"""Names in rules and fact files: a constant in the place of a tool, action, permission or the like has to exist.

The kernel's declarations give each of their columns a kind of name. A column of the pack has the kinds of the variables
that stand in it: in ``needs_confirmation(T) :- dangerous(T)`` it holds tools. A misspelt name would never match, and
policy about it would have no effect, so it is an error. It is a warning where names may come from clients, generators
or externals, and is permitted where the declaration of that predicate has the descriptor ``open``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal as LiteralType, NamedTuple, TypeAlias

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span, Trust
from manglecp.base.suggestions import closest_match
from manglecp.intent.fact_sources import descriptor
from manglecp.intent.kernel import ASSERTED, PREDICATES, kernel_units
from manglecp.intent.kernel_statements import ProblemList, Statement
from manglecp.mangle import Base, Fact, Key, argument_span
from manglecp.mangle.syntax import Apply, Atom, Clause, Decl, Equality, Literal, Term, Variable
from manglecp.pack import Pack
from manglecp.wire.messages import SIDE_EFFECTS

Kind: TypeAlias = LiteralType["tool", "action", "permission", "effect", "intent", "skill", "predicate"]
Column: TypeAlias = tuple[Key, int]

PERMISSIONS: Final = ("approve", "approve:*", "explain_policy", "read_metrics")  # those that the server checks
_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("Tool", "Needed", "Rival", "Other"), "tool"),
    **dict.fromkeys(("Permission", "Role"), "permission"),
    "Action": "action",
    "Effect": "effect",
    "Intent": "intent",
    "Skill": "skill",
    "ClientPredicate": "predicate",
}
"""Kinds by the names of variables in the kernel's declarations."""
IMPORTED: Final = "the server's facts"  # the place of facts that a server adds to those of the pack
_MACRO: Final[Column] = (("macro", 2), 0)


class RuleSet(NamedTuple):
    """The parts of a pack that names are checked in; ``whole`` if every rule and fact file was readable."""

    pack: Pack
    decls: Sequence[Decl]
    clauses: Sequence[Clause]
    facts: Sequence[tuple[str, Sequence[Fact]]]  # by file
    assertable: Collection[str]  # predicates that clients may state
    whole: bool
    base: Base | None = None
    constant: Collection[Key] = ()  # predicates that the base has all facts of


def check_names(rules: RuleSet) -> list[Diagnostic]:
    """Return a problem for each name in the clauses and fact files that does not exist."""
    return _NameCheck(rules).problems.items


class _Use(NamedTuple):
    """A constant in the place of a name: in an atom of a clause, a comparison, or a fact of a file."""

    name: str
    kinds: set[Kind]
    predicate: str
    span: Span | None
    fact: Statement | None = None


class _NameCheck:
    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.columns: dict[Column, set[Kind]] = {
            (decl.atom.key, column): {_KINDS[term.name]}
            for unit in kernel_units()
            for decl in unit.decls
            for column, term in enumerate(decl.atom.args)
            if isinstance(term, Variable) and term.name in _KINDS
        }
        self.declared_open = {decl.atom.predicate for decl in rules.decls if descriptor(decl, "open") is not None}
        generated = {name for one in rules.pack.generators.values() for name in one.predicates}
        self.open = {*rules.assertable, *generated, *rules.pack.externals} - PREDICATES
        self._spread()
        uses = list(self._uses())
        tools, self.tool_sources = NameFlow(rules, self.open).values(_MACRO)
        listed = {intent.name for intent in rules.pack.settings.intents}
        domain = (use for use in uses if use.span is None or use.span.source.trust > Trust.POLICY)
        self.known: dict[Kind, Collection[str]] = {
            "tool": tools,
            "action": rules.pack.actions,
            "permission": (*rules.pack.settings.permissions, *PERMISSIONS),
            "effect": SIDE_EFFECTS,
            "intent": listed or {use.name for use in domain if "intent" in use.kinds},
            "skill": rules.pack.skills,
            "predicate": rules.assertable,
        }
        self.any_intent = not listed and any(
            clause.is_fact and clause.head.predicate in ("mandatory", "relevant") for clause in rules.clauses
        )
        self.problems = ProblemList()
        unknown = (use for use in uses if not self._exists(use))
        for use in reversed({(frozenset(use.kinds), use.name): use for use in reversed(list(unknown))}.values()):
            self._report(use)  # each name once, where it is used first

    def _spread(self) -> None:
        """Give the columns of the pack's predicates their kinds, until nothing changes."""
        grows = True
        while grows:
            grows = False
            for clause in self.rules.clauses:
                kinds = self._kinds_of(clause) if clause.premises else {}
                for _, column, term in _places(clause):
                    if isinstance(term, Variable) and column[0][0] not in PREDICATES:
                        new = kinds.get(term.name, set()) - self.columns.get(column, set())
                        if new:
                            self.columns.setdefault(column, set()).update(new)
                            grows = True

    def _kinds_of(self, clause: Clause) -> dict[str, set[Kind]]:
        """Return the kinds of the variables of a clause."""
        kinds: dict[str, set[Kind]] = {}
        for _, column, term in _places(clause):
            if isinstance(term, Variable) and not term.anonymous and (found := self.columns.get(column)):
                kinds.setdefault(term.name, set()).update(found)
        for one in clause.premises:
            if isinstance(one, Equality) and isinstance(one.left, Variable) and isinstance(one.right, Variable):
                both = kinds.get(one.left.name, set()) | kinds.get(one.right.name, set())
                if both and not one.negated:
                    kinds[one.left.name] = kinds[one.right.name] = both
        return kinds

    def _uses(self) -> Iterator[_Use]:
        for clause in self.rules.clauses:
            for atom, column, term in _places(clause):
                if isinstance(term, str) and (kinds := self.columns.get(column)):
                    yield _Use(term, kinds, atom.predicate, argument_span(atom, column[1]) or atom.span)
            of = self._kinds_of(clause)
            yield from (_Use(name, of[var], "", span) for var, name, span in _compared(clause) if var in of)
        keys = {key for key, _ in self.columns if key[0] not in ASSERTED}  # a file with those is refused
        for file, facts in self.rules.facts:
            for fact in (fact for fact in facts if fact.key in keys):
                statement = Statement(fact.args, None, file)
                for place, value in enumerate(fact.args):
                    if isinstance(value, str) and (kinds := self.columns.get((fact.key, place))):
                        yield _Use(value, kinds, fact.predicate, None, statement)
        for action in self.rules.pack.actions.values():
            statement = Statement((), None, "actions.py")
            yield from (_Use(effect, {"effect"}, "", None, statement) for effect in action.effects)

    def _exists(self, use: _Use) -> bool:
        if use.predicate in self.declared_open:
            return True
        return any(use.name in self.known[kind] or self._may_exist(use.name, kind) for kind in use.kinds)

    def _may_exist(self, name: str, kind: Kind) -> bool:
        if kind == "effect":
            return name.startswith("x-") and len(name) > 2
        if kind in ("tool", "intent", "predicate") and not self.rules.whole:
            return True  # a file that was not read may define it
        open_tools = bool(self.tool_sources) and self.tool_sources <= self.declared_open
        return (kind == "tool" and open_tools) or (kind == "intent" and not self.known["intent"])

    def _report(self, use: _Use) -> None:
        kind = min(use.kinds, key=list(_TEXTS).index)
        message, fix = (text.format(use.name) for text in _TEXTS[kind])
        if kind == "intent" and not self.rules.pack.settings.intents:
            message = f"no rule of the domain reads the intent {use.name!r}"
        similar = closest_match(use.name, self.known[kind])
        fix = f"did you mean {similar}? If not, {fix}" if similar else fix
        sources = (self.tool_sources - self.declared_open if kind == "tool" else set()) | ({use.predicate} & self.open)
        if sources:
            fix += f", or declare {min(sources)} with open(…): its facts come from outside the pack"
        imported = use.fact is not None and use.fact.file == IMPORTED
        certain = not (sources or imported or (kind == "intent" and self.any_intent))
        if use.fact is not None:
            self.problems.report(use.fact, None, message, fix, error=certain)
        else:
            self.problems.add(Diagnostic("analysis", message, use.span, None, fix, "error" if certain else "warning"))


_TEXTS: Final[Mapping[Kind, tuple[str, str]]] = {
    "tool": ("no clause of macro defines the tool {!r}", 'write macro("{}", …)'),
    "action": ("the pack has no action {!r}", "write it in actions.py, under @action"),
    "permission": ("pack.toml does not declare the permission {!r}", 'add permissions = ["{}"] below [pack]'),
    "effect": ("there is no effect {!r}", "write x-{} for an effect of your own"),
    "intent": ("the intent {!r} is not listed in pack.toml", "add it to [[intents]]"),
    "skill": ("the pack has no skill {!r}", "write it in skills/{}.md"),
    "predicate": ("clients cannot state {!r}, so that denying it has no effect", "declare it with a direction"),
}
"""The problem and its fix, by kind; the first kind of a column counts."""


class NameFlow:
    """The names that a column can hold, and the predicates through which unknown ones may get there."""

    def __init__(self, rules: RuleSet, open_predicates: Collection[str]) -> None:
        self.rules = rules
        self.open = open_predicates
        self.by_head: dict[Key, list[Clause]] = {}
        for clause in (*(clause for unit in kernel_units() for clause in unit.clauses), *rules.clauses):
            self.by_head.setdefault(clause.head.key, []).append(clause)
        self.names: dict[Column, set[str]] = {}
        self.sources: dict[Column, set[str]] = {}

    def values(self, wanted: Column) -> tuple[set[str], set[str]]:
        """Return the names in a column, and the predicates that can add others."""
        self._column(wanted)
        before = -1
        while before != (now := sum(len(one) + 1 for of in (self.names, self.sources) for one in of.values())):
            before = now
            for column in list(self.names):
                self._derive(column)
        return self.names[wanted], self.sources[wanted]

    def _column(self, column: Column) -> tuple[set[str], set[str]]:
        return self.names.setdefault(column, set()), self.sources.setdefault(column, set())

    def _derive(self, column: Column) -> None:
        (key, place), (names, sources) = column, self._column(column)
        is_new = not names and not sources
        if self.rules.base is not None and key in self.rules.constant:
            names.update(value for row in self.rules.base.rows(key) if isinstance(value := row[place], str))
            return
        if key[0] in self.open or key[0] in ASSERTED:
            sources.add(key[0])
        for _, facts in self.rules.facts if is_new else ():  # there may be a million
            names.update(value for fact in facts if fact.key == key and isinstance(value := fact.args[place], str))
        for clause in self.by_head.get(key, ()):
            more, through = self._term(clause, clause.head.args[place])
            names |= more
            sources |= through

    def _term(self, clause: Clause, term: Term) -> tuple[set[str], set[str]]:
        if isinstance(term, str):
            return {term}, set()
        name = term.name if isinstance(term, Variable) else None
        equal = {text for variable, text, _ in _compared(clause, negated=False) if variable == name}
        if equal:
            return equal, set()
        bodies = [one.atom for one in clause.premises if isinstance(one, Literal) and not one.negated]
        found = [
            self._column((atom.key, column))
            for atom in bodies
            for column, arg in enumerate(atom.args)
            if isinstance(arg, Variable) and arg.name == name and not atom.predicate.startswith(":")
        ]
        closed = [names for names, sources in found if not sources]
        if closed:
            return set.intersection(*closed), set()
        if found:
            return set(found[0][0]), set(found[0][1])
        own = {atom.predicate for atom in bodies if atom.predicate not in PREDICATES and atom.predicate[0] != ":"}
        return set(), own or {clause.head.predicate}  # it is computed


def _places(clause: Clause) -> Iterator[tuple[Atom, Column, Term]]:
    for atom in (clause.head, *(one.atom for one in clause.premises if isinstance(one, Literal))):
        yield from ((atom, (atom.key, column), term) for column, term in enumerate(atom.args))


def _compared(clause: Clause, *, negated: bool = True) -> Iterator[tuple[str, str, Span | None]]:
    """Yield the variables that are compared with texts: ``T = "a"``, ``T != "a"``, ``:list:member(T, ["a", "b"])``."""
    for one in clause.premises:
        if one.negated and not negated:
            continue
        if isinstance(one, Equality):
            pairs: Iterable[tuple[Term, Term]] = ((one.left, one.right), (one.right, one.left))
        elif one.atom.predicate == ":list:member" and isinstance(one.atom.args[1], Apply):
            pairs = [(one.atom.args[0], term) for term in one.atom.args[1].args]
        else:
            continue
        for variable, text in pairs:
            if isinstance(variable, Variable) and isinstance(text, str):
                yield variable.name, text, one.span
