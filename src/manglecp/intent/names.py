"""Names in rules and fact files: a constant in the place of a tool, action, permission or the like has to exist.

The kernel's declarations give columns a kind of name. A column of a predicate of the pack has the kinds of its
variables: by the rule ``needs_confirmation(T) :- dangerous(T)``, the column of ``dangerous`` holds tools. A misspelt
name would never match, and policy about it would have no effect, so it is an error. Where names may come from clients,
generators or externals, it is a warning; the descriptor ``open`` of such a predicate permits every name.

Names that a rule computes or takes out of a value are checked in the derived facts, if these facts depend on no
request; otherwise a warning states that the names are not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal as LiteralType, NamedTuple, TypeAlias

from manglecp.base.diagnostic import Diagnostic, Severity
from manglecp.base.json import escape_token
from manglecp.base.source import Span, Trust
from manglecp.base.suggestions import closest_match
from manglecp.intent.fact_sources import descriptor
from manglecp.intent.kernel import ASSERTED, POLICY, PREDICATES, kernel_units
from manglecp.intent.kernel_statements import ProblemList, Statement
from manglecp.mangle import Base, Fact, Key, argument_span
from manglecp.mangle.syntax import Apply, Atom, Clause, Decl, Equality, Literal, Term, Variable
from manglecp.pack import Pack
from manglecp.wire.messages import SIDE_EFFECTS

Kind: TypeAlias = (
    LiteralType["tool", "action", "permission", "effect", "intent", "skill", "predicate", "place"]
    | LiteralType["parameter", "extracted value", "setting", "intent parameter", "status", "trust level"]
)
Column: TypeAlias = tuple[Key, int]  # a predicate (name and arity), and the position of an argument

PERMISSIONS: Final = (
    "approve",
    "approve:*",
    "explain_policy",
    "push_facts",
    "read_metrics",
)  # permissions that the server checks
_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("Tool", "Needed", "Rival", "Other"), "tool"),
    **dict.fromkeys(("Permission", "Role"), "permission"),
    "Action": "action",
    "Effect": "effect",
    "Intent": "intent",
    "Skill": "skill",
    "ClientPredicate": "predicate",
    "Level": "trust level",
    "Status": "status",
}
"""Kinds by the names of variables in the kernel's declarations."""
_COLUMN_KINDS: Final[Mapping[Column, Kind]] = {
    (("call_arg", 2), 0): "parameter",
    (("run_arg", 2), 0): "parameter",
    (("call_value", 2), 0): "place",
    (("action_param", 3), 1): "parameter",
    (("step_value", 3), 1): "extracted value",
    (("setting", 2), 0): "setting",
    (("intent_param", 2), 0): "intent parameter",
}
"""Kinds of columns whose variables have a more general name."""
IMPORTED: Final = "the server's facts"  # stands for the file of facts that a server adds to a pack
_DEFINITIONS: Final[Mapping[Kind, Sequence[Column]]] = {
    "tool": [(("macro", 2), 0)],
    "parameter": [(("macro_param", 3), 1), (("arg_from", 4), 3)],
    "extracted value": [(("extract", 3), 1)],
}
"""The columns that define names of a kind."""
_UNRESTRICTIVE: Final = PREDICATES - POLICY - {"needs_confirmation", "needs_approval", "four_eyes"}
"""Predicates that neither forbid, permit nor require an approval: there, a name that matches nothing does no harm."""


class RuleSet(NamedTuple):
    """The parts of a pack that names are checked in."""

    pack: Pack
    decls: Sequence[Decl]
    clauses: Sequence[Clause]
    facts: Sequence[tuple[str, Sequence[Fact]]]  # each file with its facts
    assertable: Collection[str]  # predicates that clients may state
    all_readable: bool  # whether every rule and fact file could be read
    base: Base | None = None  # None if the pack has errors
    constant: Collection[Key] = ()  # predicates whose facts are all in the base


def check_names(rules: RuleSet) -> list[Diagnostic]:
    """Return a problem for each name in the clauses and fact files that does not exist."""
    return _NameCheck(rules).problems.items


class _Use(NamedTuple):
    """A constant in the place of a name: in an atom of a clause, a comparison, or a fact of a file."""

    name: str
    kinds: set[Kind]
    predicate: str  # empty for a comparison
    span: Span | None  # the place of the constant in a clause
    fact: Statement | None = None  # the fact of a file that has the constant


class _NameCheck:
    """Checks all names when it is constructed; ``problems`` has the result."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.columns: dict[Column, set[Kind]] = {
            (decl.atom.key, column): {_KINDS[term.name]}
            for unit in kernel_units()
            for decl in unit.decls
            for column, term in enumerate(decl.atom.args)
            if isinstance(term, Variable) and term.name in _KINDS
        } | {column: {kind} for column, kind in _COLUMN_KINDS.items()}
        self.open_predicates = {decl.atom.predicate for decl in rules.decls if descriptor(decl, "open") is not None}
        # Predicates whose facts come from outside the pack.
        self.outside = {*rules.assertable, *rules.pack.sourced_predicates, *rules.pack.externals} - PREDICATES
        self._spread_kinds()
        self.problems = ProblemList()
        flow = NameFlow(rules, self.outside)
        self.sources: dict[Kind, set[str]] = {}  # by kind, the predicates that can add names
        defined_names: dict[Kind, set[str]] = {}
        for kind, columns in _DEFINITIONS.items():
            contents = [flow.content(column) for column in columns]
            defined_names[kind] = {name for content in contents for name in content.names}
            self.sources[kind] = {source for content in contents for source in content.sources}
        self.defining = flow.contents.keys()
        uses = [*self._uses(), *self._computed_uses()]
        settings, actions = rules.pack.settings, rules.pack.actions
        listed_intents = {intent.name for intent in settings.intents}
        self.intent_params = {param for intent in settings.intents for param in intent.params}
        # If pack.toml lists no intents, those that domain rules read exist; likewise parameters of intents.
        domain_uses = [use for use in uses if use.span is None or use.span.source.trust > Trust.POLICY]
        self.existing: dict[Kind, Collection[str]] = {
            "tool": defined_names["tool"],
            "action": actions,
            "permission": (*settings.permissions, *PERMISSIONS),
            "effect": SIDE_EFFECTS,
            "intent": listed_intents or {use.name for use in domain_uses if "intent" in use.kinds},
            "skill": rules.pack.skills,
            "predicate": rules.assertable,
            "parameter": defined_names["parameter"].union(
                *(action.input_schema.get("properties", ()) for action in actions.values())
            ),
            "place": (),
            "extracted value": defined_names["extracted value"],
            "setting": {*rules.pack.params, *(param.name for param in settings.params)},
            "intent parameter": self.intent_params
            or {use.name for use in domain_uses if "intent parameter" in use.kinds},
            "status": ("success", "failure", "skipped"),
            "trust level": (*settings.trust_levels, "anonymous", "local", "user", "automated"),
        }
        self.existing["place"] = {f"/{escape_token(name)}" for name in self.existing["parameter"]}
        self.sources["place"] = self.sources["parameter"]
        # A tool that a fact selects serves every intent, even an intent that no rule reads.
        self.has_general_tool = not listed_intents and any(
            clause.is_fact and clause.head.predicate in ("mandatory", "relevant") for clause in rules.clauses
        )
        first_uses: dict[tuple[frozenset[Kind], str], _Use] = {}  # each name is reported once
        for use in uses:
            if not self._exists(use):
                first_uses.setdefault((frozenset(use.kinds), use.name), use)
        for use in first_uses.values():
            self._report(use)

    def _spread_kinds(self) -> None:
        """Give the columns of the pack's predicates the kinds of their variables, until nothing changes."""
        has_changed = True
        while has_changed:
            has_changed = False
            for clause in self.rules.clauses:
                kinds = self._kinds_of(clause) if clause.premises else {}
                for atom, column, term in _arguments(clause):
                    if isinstance(term, Variable) and atom.predicate not in PREDICATES:
                        new = kinds.get(term.name, set()) - self.columns.get(column, set())
                        if new:
                            self.columns.setdefault(column, set()).update(new)
                            has_changed = True

    def _kinds_of(self, clause: Clause) -> dict[str, set[Kind]]:
        """Return the kinds of the variables of a clause, by name."""
        kinds: dict[str, set[Kind]] = {}
        for _, column, term in _arguments(clause):
            if isinstance(term, Variable) and not term.anonymous and (column_kinds := self.columns.get(column)):
                kinds.setdefault(term.name, set()).update(column_kinds)
        for premise in clause.premises:
            if isinstance(premise, Equality) and not premise.negated:
                left, right = premise.left, premise.right
                if isinstance(left, Variable) and isinstance(right, Variable):
                    kinds[left.name] = kinds[right.name] = kinds.get(left.name, set()) | kinds.get(right.name, set())
        return kinds

    def _uses(self) -> Iterator[_Use]:
        for clause in self.rules.clauses:
            for atom, column, term in _arguments(clause):
                if isinstance(term, str) and (kinds := self.columns.get(column)):
                    yield _Use(term, kinds, atom.predicate, argument_span(atom, column[1]))
            kinds_of = self._kinds_of(clause)
            for variable, name, span in _comparisons(clause):
                if kinds_of.get(variable):
                    yield _Use(name, kinds_of[variable], "", span)
        keys = {key for key, _ in self.columns if key[0] not in ASSERTED}  # the loader refuses facts of these
        for file, facts in self.rules.facts:
            for fact in (fact for fact in facts if fact.key in keys):
                statement = Statement(fact.args, None, file)
                for index, value in enumerate(fact.args):
                    if isinstance(value, str) and (kinds := self.columns.get((fact.key, index))):
                        yield _Use(value, kinds, fact.predicate, None, statement)
        for action in self.rules.pack.actions.values():
            statement = Statement((), None, "actions.py")
            yield from (_Use(effect, {"effect"}, "", None, statement) for effect in action.effects)

    def _computed_uses(self) -> Iterator[_Use]:
        """Yield the computed names that are in the base; warn about rules whose computed names depend on requests."""
        if (base := self.rules.base) is None:
            return  # a pack with errors has no base; its errors are reported first
        for clause in self.rules.clauses:
            head, needed_keys = clause.head, _pack_predicates(clause)
            is_open = head.predicate in self.open_predicates or (needed_keys and needed_keys <= self.open_predicates)
            if is_open or head.predicate in _UNRESTRICTIVE:
                continue
            for term, kinds, span in self._computed(clause):
                columns = [index for index, arg in enumerate(head.args) if arg == term]
                if any((head.key, index) in self.defining for index in columns):
                    continue
                is_in_base = columns and head.key in self.rules.constant and not _is_compared(clause, term)
                if not is_in_base:
                    message = f"{_first_kind(kinds)} names computed here are not checked"
                    predicate = min(needed_keys, default="a predicate of the pack that derives them")
                    fix = f"write them as constants, or declare {predicate} with open(…)"
                    self.problems.add(Diagnostic("analysis", message, span, fix=fix, severity="warning"))
                    break
                for row in base.rows(head.key):
                    for index in columns:
                        if isinstance(name := row[index], str):
                            yield _Use(name, kinds, head.predicate, argument_span(head, index))

    def _computed(self, clause: Clause) -> Iterator[tuple[Term, set[Kind], Span | None]]:
        """Yield the terms of a clause that stand for names and are computed, or taken out of a list, pair or struct."""
        for atom, column, term in _arguments(clause):
            if isinstance(term, Apply) and (kinds := self.columns.get(column)):
                yield term, kinds, argument_span(atom, column[1])
        kinds_of = self._kinds_of(clause)
        for variable, span in _computed_variables(clause):
            if kinds := kinds_of.get(variable.name):
                yield variable, kinds, span

    def _exists(self, use: _Use) -> bool:
        if use.predicate in self.open_predicates:
            return True
        # In a JSON Pointer into the arguments, only the first step, a parameter, is checked.
        names = {kind: "/".join(use.name.split("/")[:2]) if kind == "place" else use.name for kind in use.kinds}
        return any(name in self.existing[kind] or self._may_exist(name, kind) for kind, name in names.items())

    def _may_exist(self, name: str, kind: Kind) -> bool:
        if kind == "effect":
            return name.startswith("x-") and len(name) > 2
        if kind in ("intent", "intent parameter", "predicate", *_DEFINITIONS) and not self.rules.all_readable:
            return True  # a file that was not read may define it
        if kind == "intent" and not self.existing["intent"]:
            return True  # no rule reads an intent
        sources = self.sources.get(kind, set())
        return bool(sources) and sources <= self.open_predicates

    def _report(self, use: _Use) -> None:
        kind = _first_kind(use.kinds)
        message, fix = (text.format(use.name) for text in _TEXTS[kind])
        if kind == "intent" and not self.rules.pack.settings.intents:
            message = f"no rule of the domain reads the intent {use.name!r}"
        if kind == "intent parameter" and not self.intent_params:
            message = f"no rule of the domain reads the intent parameter {use.name!r}"
        similar = closest_match(use.name, self.existing[kind])
        fix = f"did you mean {similar}? If not, {fix}" if similar else fix
        sources = {use.predicate} & self.outside
        sources |= self.sources.get(kind, set()) - self.open_predicates
        if sources:
            fix += f", or declare {min(sources)} with open(…): its facts come from outside the pack"
        is_imported = use.fact is not None and use.fact.file == IMPORTED
        is_guess = (kind == "intent" and self.has_general_tool) or (
            kind == "intent parameter" and not self.intent_params
        )
        is_certain = not (sources or is_imported or is_guess)
        if use.fact is not None:
            self.problems.report(use.fact, None, message, fix, error=is_certain)
        else:
            severity: Severity = "error" if is_certain else "warning"
            self.problems.add(Diagnostic("analysis", message, use.span, fix=fix, severity=severity))


_TEXTS: Final[Mapping[Kind, tuple[str, str]]] = {
    "tool": ("no clause of macro defines the tool {!r}", 'write it in actions.py, under @action, or macro("{}", …)'),
    "action": ("the pack has no action {!r}", "write it in actions.py, under @action"),
    "permission": ("pack.toml does not declare the permission {!r}", 'add permissions = ["{}"] below [pack]'),
    "effect": ("there is no effect {!r}", "write x-{} for an effect of your own"),
    "intent": ("the intent {!r} is not listed in pack.toml", "add it to [[intents]]"),
    "skill": ("the pack has no skill {!r}", "write it in skills/{}.md"),
    "predicate": ("clients cannot state {!r}, so that denying it has no effect", "declare it with a direction"),
    "parameter": ("no tool or action of the pack has the parameter {!r}", "add it to an action, or to macro_param"),
    "place": ("no tool or action of the pack has an argument at {!r}", "write / and the name of a parameter"),
    "extracted value": ("no clause of extract selects the value {!r}", 'write extract(…, "{}", …)'),
    "setting": ("pack.toml does not declare the setting {!r}", "add [params.{}]"),
    "intent parameter": (
        "no intent in pack.toml has the parameter {!r}",
        'add params = ["{}"] to its [[intents]] entry',
    ),
    "status": ("there is no status {!r} of a step", "write success, failure or skipped"),
    "trust level": ("pack.toml does not declare the trust level {!r}", 'add trust_levels = ["{}"] below [pack]'),
}
"""Message and fix by kind. For a column with several kinds, the first kind in this order is reported."""


def _first_kind(kinds: Collection[Kind]) -> Kind:
    return next(kind for kind in _TEXTS if kind in kinds)


class ColumnContent(NamedTuple):
    """The names that a column can hold, and the predicates through which unknown names may get there."""

    names: set[str]
    sources: set[str]


class NameFlow:
    """Derives the contents of columns from clauses and facts, until nothing changes."""

    def __init__(self, rules: RuleSet, outside: Collection[str]) -> None:
        self.rules = rules
        self.outside = outside
        self.by_head: dict[Key, list[Clause]] = {}
        for clause in (*(clause for unit in kernel_units() for clause in unit.clauses), *rules.clauses):
            self.by_head.setdefault(clause.head.key, []).append(clause)
        self.contents: dict[Column, ColumnContent] = {}

    def content(self, target: Column) -> ColumnContent:
        self._content_so_far(target)
        size = -1
        while size != (new_size := self._size()):
            size = new_size
            for column in list(self.contents):
                self._derive(column)
        return self.contents[target]

    def _size(self) -> int:
        """Return a number that grows with each column, name and source."""
        contents = self.contents.values()
        return len(contents) + sum(len(content.names) + len(content.sources) for content in contents)

    def _content_so_far(self, column: Column) -> ColumnContent:
        """Return the content of a column so far; a new column is derived in the next round."""
        return self.contents.setdefault(column, ColumnContent(set(), set()))

    def _derive(self, column: Column) -> None:
        (key, index), (names, sources) = column, self._content_so_far(column)
        is_new = not names and not sources  # the first round of this column
        if self.rules.base is not None and key in self.rules.constant:
            names.update(value for row in self.rules.base.rows(key) if isinstance(value := row[index], str))
            return
        if key[0] in self.outside or key[0] in ASSERTED:
            sources.add(key[0])
        for _, facts in self.rules.facts if is_new else ():  # files may have a million facts: only in the first round
            names.update(value for fact in facts if fact.key == key and isinstance(value := fact.args[index], str))
        for clause in self.by_head.get(key, ()):
            content = self._term_content(clause, clause.head.args[index])
            names |= content.names
            sources |= content.sources

    def _term_content(self, clause: Clause, term: Term) -> ColumnContent:
        """Return the content that a term in the head of a clause adds to its column."""
        if isinstance(term, str):
            return ColumnContent({term}, set())
        name = term.name if isinstance(term, Variable) else None
        equal = {text for variable, text, _ in _comparisons(clause, include_negated=False) if variable == name}
        if equal:
            return ColumnContent(equal, set())
        contents = [
            self._content_so_far((atom.key, index))
            for atom in _required_atoms(clause)
            for index, arg in enumerate(atom.args)
            if isinstance(arg, Variable) and arg.name == name
        ]
        without_sources = [names for names, sources in contents if not sources]
        if without_sources:  # the term has only names that all of these columns hold
            return ColumnContent(set.intersection(*without_sources), set())
        if contents:
            return contents[0]
        # The term is computed from values of the predicates in the body.
        return ColumnContent(set(), _pack_predicates(clause) or {clause.head.predicate})


def _arguments(clause: Clause) -> Iterator[tuple[Atom, Column, Term]]:
    """Yield each argument of the clause, with its atom and column."""
    for atom in (clause.head, *(literal.atom for literal in clause.literals)):
        yield from ((atom, (atom.key, index), term) for index, term in enumerate(atom.args))


def _required_atoms(clause: Clause) -> list[Atom]:
    """Return the atoms of the premises that are neither negated nor built-in predicates (``:name``)."""
    return [literal.atom for literal in clause.literals if not literal.negated and not literal.atom.is_builtin]


def _pack_predicates(clause: Clause) -> set[str]:
    """Return the predicates of the pack whose facts a clause requires."""
    return {atom.predicate for atom in _required_atoms(clause)} - PREDICATES


def _is_compared(clause: Clause, term: Term) -> bool:
    """Return whether a computed name is also in a required fact: then the clause only compares name and fact."""
    return any(term in atom.args for atom in _required_atoms(clause))


def _computed_variables(clause: Clause) -> Iterator[tuple[Variable, Span | None]]:
    """Yield the variables whose values are computed or parts of other values, except elements of a list of texts."""
    for premise in clause.premises:
        terms: tuple[Term, ...] = ()
        if isinstance(premise, Equality):
            if any(isinstance(term, Apply) for term in premise.terms):
                terms = premise.terms
        elif premise.atom.predicate == ":list:member":
            items = _list_items(clause, premise)
            terms = () if items and all(isinstance(item, str) for item in items) else premise.atom.args[:1]
        elif premise.atom.predicate.startswith(":match_"):
            terms = premise.atom.args[1:]
        yield from ((term, premise.span) for term in terms if isinstance(term, Variable))
    yield from ((let.variable, let.span) for let in clause.lets)


def _comparisons(clause: Clause, *, include_negated: bool = True) -> Iterator[tuple[str, str, Span | None]]:
    """Yield variable, text and span of comparisons: ``T = "a"``, ``T != "a"``, ``:list:member(T, ["a", "b"])``."""
    for premise in clause.premises:
        if premise.negated and not include_negated:
            continue
        if isinstance(premise, Equality):
            pairs: Iterable[tuple[Term, Term]] = premise.directions
        elif premise.atom.predicate == ":list:member":
            pairs = [(premise.atom.args[0], item) for item in _list_items(clause, premise)]
        else:
            continue
        for variable, text in pairs:
            if isinstance(variable, Variable) and isinstance(text, str):
                yield variable.name, text, premise.span


def _list_items(clause: Clause, member: Literal) -> Sequence[Term]:
    """Return the elements of ``L`` in a premise ``:list:member(T, L)``; none unless the clause contains the list."""
    sequence = member.atom.args[1]
    for premise in clause.premises:
        if isinstance(premise, Equality) and not premise.negated and sequence in premise.terms:
            sequence = premise.right if sequence == premise.left else premise.left
    return sequence.args if isinstance(sequence, Apply) and sequence.function == "fn:list" else ()
