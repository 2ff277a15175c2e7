"""Predicates, as declared by ``Decl`` or inferred from clauses; names in packages; ownership by trust levels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, TypeVar

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Span, Trust
from manglecp.base.suggestions import closest_match
from manglecp.mangle import printer
from manglecp.mangle.syntax import Apply, Atom, Clause, Decl, Key, Literal, Term, Unit, Variable, term_variables
from manglecp.mangle.types import ANY, NAME, Base, MalformedType, Type, Vocabulary, read_type, row_accepts
from manglecp.mangle.values import INT_MAX, INT_MIN, KIND_NAMES, Name, Value


# In ``Package zoo!`` predicates are named ``zoo.…``. Bodies use short names for predicates of their own package; a name
# in another package needs a ``Use`` line. In a unit without a package, the dot of a name has no meaning.
def resolve(units: Iterable[Unit]) -> tuple[list[Unit], list[Diagnostic]]:
    """Return the units with full predicate names, and the diagnostics of names in packages."""
    units = list(units)
    members: dict[str, set[Key]] = {}  # predicates with short names, by package
    for unit in units:
        if unit.package is not None:
            package_members = members.setdefault(unit.package.name, set())
            package_members |= {decl.atom.key for decl in unit.decls}
            package_members |= {clause.head.key for clause in unit.clauses}
    diagnostics: list[Diagnostic] = []
    resolved = []
    for unit in units:
        if unit.package is None:
            resolved.append(unit)
            continue
        resolver = _Resolver(unit.package.name, members[unit.package.name], {use.name for use in unit.uses})
        for use in unit.uses:
            if use.name == unit.package.name:
                message = f"package {use.name} uses itself"
                diagnostics.append(Diagnostic("analysis", message, use.span, fix="remove the Use line"))
        resolved.append(replace(unit, items=tuple(resolver.resolve_item(item) for item in unit.items)))
        diagnostics += resolver.diagnostics
    return resolved, diagnostics


def package_of(predicate: str) -> str:
    return predicate.rpartition(".")[0]


class _Resolver:
    def __init__(self, package: str, members: set[Key], uses: set[str]) -> None:
        self.package = package
        self.members = members
        self.uses = uses
        self.diagnostics: list[Diagnostic] = []

    def resolve_item(self, item: Decl | Clause) -> Decl | Clause:
        if isinstance(item, Decl):
            return replace(
                item,
                atom=self.qualify(item.atom),
                inclusion=tuple(self.resolve_premise(atom, item) for atom in item.inclusion),
            )
        return replace(
            item,
            head=self.qualify(item.head),
            premises=tuple(
                replace(premise, atom=self.resolve_premise(premise.atom, item))
                if isinstance(premise, Literal)
                else premise
                for premise in item.premises
            ),
        )

    def qualify(self, atom: Atom) -> Atom:
        if atom.is_builtin:
            return atom
        return replace(atom, predicate=f"{self.package}.{atom.predicate}")

    def _is_own(self, atom: Atom) -> bool:
        short_name = atom.predicate.removeprefix(f"{self.package}.")
        return package_of(atom.predicate) == self.package or (short_name, len(atom.args)) in self.members

    def resolve_premise(self, atom: Atom, item: Decl | Clause) -> Atom:
        """Return an atom of a premise or inclusion with the full name of its predicate."""
        if atom.key in self.members or atom.is_builtin:
            return self.qualify(atom)
        package = package_of(atom.predicate)
        if package and package not in self.uses and not self._is_own(atom):
            message = f"{atom.predicate} belongs to package {package}, which is not used here"
            fix = f"write Use {package}! behind the Package line"
            self.diagnostics.append(Diagnostic("analysis", message, atom.span, printer.item(item), fix))
        return atom


@dataclass(frozen=True, slots=True)
class FunctionalDependency:
    """Facts that agree in the ``source`` columns agree in the ``target`` columns."""

    source: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """In facts with the same key, two values of ``column`` are replaced by the X of ``predicate(old, new, X)``."""

    column: int
    predicate: Key
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Predicate:
    """The declared and inferred properties of one predicate."""

    name: str
    arity: int
    decl: Decl | None = None
    temporal: bool = False
    modes: str | None = None  # one of '+', '-', '?' per argument, combined from all mode descriptors
    deferred: bool = False  # computed for each call, not stored
    external: bool = False  # computed by a Python callable
    extensional: bool = False  # has facts, but no rules
    private: bool = False  # used by its own package only
    reflects: Name | None = None  # if this is /a, p(X) with X bound holds for each name X below /a
    fundeps: tuple[FunctionalDependency, ...] = ()
    merge: Merge | None = None
    inclusion: tuple[Atom, ...] = ()
    rows: tuple[tuple[Type, ...], ...] = ()  # declared types, one row per `bound`; empty without Decl
    owner: Trust | None = None  # the least trusted level that may add clauses
    doc: str | None = None

    @property
    def key(self) -> Key:
        return self.name, self.arity

    def row(self, fact: Sequence[Value]) -> dict[str, Value]:
        """Return the values of a fact by the names of the declared arguments, without columns that have no name."""
        names = () if self.decl is None else self.decl.atom.args
        return {
            arg.name: value
            for arg, value in zip(names, fact, strict=False)
            if isinstance(arg, Variable) and not arg.anonymous
        }

    def inputs(self) -> Iterable[int]:
        """Return the positions that must be bound before a call."""
        return () if self.modes is None else (i for i, mode in enumerate(self.modes) if mode == "+")


_T = TypeVar("_T")
# Descriptors that change what clauses mean; ``open`` and ``untimed`` apply to facts of clients.
_CHANGES_MEANING: Final = frozenset(
    {"owner", "reflects", "merge", "fundep", "deferred", "external", "extensional", "open", "untimed"}
)
_TRUST_LEVELS: Final = {level.label: level for level in Trust}
_MODE_FIX: Final = 'add mode("+", "-", …) to descr'


@dataclass
class _DeclReader:
    decl: Decl
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def complain(self, message: str, span: Span | None = None, fix: str | None = None) -> None:
        where = span or self.decl.atom.span
        self.diagnostics.append(Diagnostic("analysis", message, where, printer.decl(self.decl), fix))

    def read(self) -> Predicate:
        decl = self.decl
        atom = decl.atom
        self.variables = [arg.name if isinstance(arg, Variable) else "_" for arg in atom.args]
        self.argument_count = count_noun(len(self.variables), "argument")
        named = [name for name in self.variables if name != "_"]
        if len(set(named)) != len(named):
            self.complain(f"{atom.predicate} names an argument twice", atom.span, "give each argument its own name")
        descriptors: dict[str, list[Atom]] = {}
        for descriptor in decl.descr:
            descriptors.setdefault(descriptor.predicate, []).append(descriptor)
        fundeps = tuple(self._each(descriptors, "fundep", self._fundep))
        predicate = Predicate(
            atom.predicate,
            len(atom.args),
            decl,
            temporal=decl.temporal,
            modes=self._modes(descriptors.get("mode", [])),
            deferred="deferred" in descriptors,
            external="external" in descriptors,
            extensional="extensional" in descriptors,
            private="private" in descriptors,
            reflects=next(iter(self._each(descriptors, "reflects", self._reflects)), None),
            fundeps=fundeps,
            merge=self._merge(descriptors, fundeps),
            inclusion=decl.inclusion,
            rows=self._rows(),
            owner=next(iter(self._each(descriptors, "owner", self._owner)), None),
            doc=self._doc(descriptors.get("doc", [])),
        )
        self._check_arg_docs(descriptors.get("arg", []))
        self._check_usable(predicate, descriptors.get("mode", []))
        self._check_inclusion()
        return predicate

    def _each(self, descriptors: Mapping[str, list[Atom]], name: str, read: Callable[[Atom], _T | None]) -> list[_T]:
        """Return the results of ``read`` for the descriptors of this name, except None, which means a malformed one."""
        return [item for atom in descriptors.get(name, []) if (item := read(atom)) is not None]

    def _modes(self, atoms: list[Atom]) -> str | None:
        merged: str | None = None
        for atom in atoms:
            if not _is_mode(atom):
                continue  # a mode with another string is ignored, as documented
            mode = "".join(map(str, atom.args))
            if len(mode) != len(self.variables):
                message = f"mode has {count_noun(len(mode), 'string')} for {self.argument_count}"
                self.complain(message, atom.span, "write one string per argument")
                continue
            merged = "".join(a if a == b else "?" for a, b in zip(merged or mode, mode, strict=True))
        return merged

    def _check_usable(self, predicate: Predicate, modes: list[Atom]) -> None:
        valid_modes = [mode for mode in modes if _is_mode(mode)]
        if predicate.external and len(valid_modes) != 1:
            self.complain("an external predicate needs exactly one mode", fix=_MODE_FIX)
        if predicate.deferred and not valid_modes and predicate.arity:
            self.complain("a deferred predicate needs a mode", fix=_MODE_FIX)
        if predicate.deferred and predicate.temporal:
            self.complain("a deferred predicate cannot be temporal")
        if predicate.deferred and predicate.external:
            self.complain("a predicate is deferred or external, not both")
        if predicate.reflects is not None and predicate.arity != 1:
            self.complain("reflects is for predicates with one argument")

    def _reflects(self, atom: Atom) -> Name | None:
        if len(atom.args) == 1 and isinstance(atom.args[0], Name):
            return atom.args[0]
        self.complain("reflects takes one name", atom.span, "write reflects(/prefix)")
        return None

    def _owner(self, atom: Atom) -> Trust | None:
        level = _TRUST_LEVELS.get(atom.args[0]) if len(atom.args) == 1 and isinstance(atom.args[0], str) else None
        if level is None:
            levels = ", ".join(f'"{label}"' for label in _TRUST_LEVELS)
            self.complain("owner takes the name of a trust level", atom.span, f"one of {levels}")
        return level

    def _doc(self, atoms: list[Atom]) -> str | None:
        for extra in atoms[1:]:
            self.complain("doc occurs twice", extra.span, "put all text into one doc(…)")
        if not atoms:
            return None
        texts = atoms[0].args
        if not texts or not all(isinstance(text, str) for text in texts):
            self.complain("doc takes one or more strings", atoms[0].span)
            return None
        return "\n".join(map(str, texts))

    def _check_arg_docs(self, atoms: list[Atom]) -> None:
        documented = set()
        for atom in atoms:
            variable, *texts = atom.args or (None,)
            if not isinstance(variable, Variable) or not texts or not all(isinstance(text, str) for text in texts):
                self.complain("arg takes an argument and one or more strings", atom.span, 'write arg(X, "what X is")')
            elif variable.name not in self.variables:
                self.complain(f"{variable.name} is not an argument of {self.decl.atom.predicate}", atom.span)
            else:
                documented.add(variable.name)
        missing = [name for name in self.variables if name not in documented]
        if atoms and missing:
            self.complain(f"arg is missing for {', '.join(missing)}", fix="document every argument or none")

    def _columns(self, term: Term, span: Span | None) -> tuple[int, ...] | None:
        if not isinstance(term, Apply) or term.function != "fn:list":
            self.complain("columns are written as a list of arguments, such as [X, Y]", span)
            return None
        columns = []
        for arg in term.args:
            if not isinstance(arg, Variable) or arg.anonymous or arg.name not in self.variables:
                self.complain(f"{printer.term(arg)} is not an argument of {self.decl.atom.predicate}", span)
                return None
            columns.append(self.variables.index(arg.name))
        return tuple(columns)

    def _fundep(self, atom: Atom) -> FunctionalDependency | None:
        if len(atom.args) != 2:
            self.complain("fundep takes two lists", atom.span, "write fundep([Key], [Value])")
            return None
        source, target = (self._columns(arg, atom.span) for arg in atom.args)
        return None if source is None or target is None else FunctionalDependency(source, target)

    def _merge(self, descriptors: Mapping[str, list[Atom]], fundeps: tuple[FunctionalDependency, ...]) -> Merge | None:
        atoms = descriptors.get("merge", [])
        if not atoms:
            return None
        atom = atoms[0]
        if len(atoms) > 1:
            self.complain("merge occurs twice", atoms[1].span)
        if len(atom.args) != 2 or not isinstance(atom.args[1], str):
            self.complain("merge takes a column and a predicate", atom.span, 'write merge([Value], "predicate")')
            return None
        columns = self._columns(atom.args[0], atom.span)
        if columns is None:
            return None
        if len(columns) != 1:
            self.complain("merge takes exactly one column", atom.span)
            return None
        if len(fundeps) < len(descriptors.get("fundep", [])):
            return None  # a malformed fundep was reported
        if len(fundeps) != 1 or fundeps[0].target != columns:
            fix = "write fundep([Key], [Value]), merge([Value], …)"
            self.complain("merge needs exactly one fundep, whose target is the merged column", atom.span, fix)
            return None
        if self.decl.temporal:
            self.complain("a temporal predicate cannot be merged", atom.span)
            return None
        return Merge(columns[0], (atom.args[1], 3), atom.span)  # three arguments: old, new, merged

    def _rows(self) -> tuple[tuple[Type, ...], ...]:
        rows = []
        for bound in self.decl.bounds:
            if len(bound) != len(self.variables):
                message = f"bound has {count_noun(len(bound), 'type')} for {self.argument_count}"
                self.complain(message, fix="write one type per argument")
                continue
            rows.append(tuple(self._type(term) for term in bound))
        return tuple(rows) or ((ANY,) * len(self.variables),)

    def _type(self, term: Term) -> Type:
        try:
            return read_type(term)
        except MalformedType as error:
            self.complain(str(error), error.span)
            return ANY

    def _check_inclusion(self) -> None:
        for atom in self.decl.inclusion:
            for variable in term_variables(*atom.args):
                if not variable.anonymous and variable.name not in self.variables:
                    message = f"{variable.name} in the inclusion is not an argument of {self.decl.atom.predicate}"
                    self.complain(message, variable.span or atom.span, "use _ for a column that does not matter")


def _is_mode(descriptor: Atom) -> bool:
    return all(isinstance(arg, str) and arg in ("+", "-", "?") for arg in descriptor.args)


def collect(
    decls: Iterable[Decl], clauses: Iterable[Clause]
) -> tuple[dict[Key, Predicate], list[Diagnostic], set[Key]]:
    """Return the predicates with a declaration or clauses, all diagnostics, and the keys of faulty declarations."""
    predicates: dict[Key, Predicate] = {}
    diagnostics: list[Diagnostic] = []
    faulty: set[Key] = set()
    for decl in decls:
        if decl.atom.key in predicates:
            faulty.add(decl.atom.key)
            first_decl = predicates[decl.atom.key].decl
            where = "" if first_decl is None else f" (first in {_place(first_decl.span)})"
            message = f"{decl.atom.predicate}/{len(decl.atom.args)} is declared twice{where}"
            fix = "remove one declaration"
            diagnostics.append(Diagnostic("analysis", message, decl.atom.span, printer.decl(decl), fix))
            continue
        reader = _DeclReader(decl)
        predicates[decl.atom.key] = reader.read()
        diagnostics += reader.diagnostics
        if reader.diagnostics:
            faulty.add(decl.atom.key)
    declared = set(predicates)
    first_atoms: dict[str, Atom] = {}  # by name of the predicate
    for predicate in predicates.values():
        if predicate.decl is not None:
            first_atoms.setdefault(predicate.name, predicate.decl.atom)
    for clause in clauses:
        head = clause.head
        if head.key in declared:
            continue
        first_atom = first_atoms.setdefault(head.predicate, head)
        if len(first_atom.args) != len(head.args):
            here, there = count_noun(len(head.args), "argument"), count_noun(len(first_atom.args), "argument")
            message = f"{head.predicate} has {here} here and {there} in {_place(first_atom.span)}"
            fix = "declare both with Decl if both are meant"
            diagnostics.append(Diagnostic("analysis", message, head.span, printer.clause(clause), fix))
        if head.key not in predicates:
            temporal = clause.annotation is not None and not clause.annotation.eternal
            predicates[head.key] = Predicate(head.predicate, len(head.args), temporal=temporal)
    _resolve_merges(predicates, diagnostics)
    return predicates, diagnostics, faulty


def _resolve_merges(predicates: dict[Key, Predicate], diagnostics: list[Diagnostic]) -> None:
    """Replace the names of merge predicates by full names, in place."""
    for key, predicate in predicates.items():
        if predicate.merge is None or predicate.decl is None:
            continue
        merge = predicate.merge
        name = merge.predicate[0]
        package = package_of(predicate.name)
        candidates = [f"{package}.{name}", name] if package else [name]
        full_name = next((c for c in candidates if (c, 3) in predicates), None)
        message = fix = None
        if full_name is None:
            message = f"merge predicate {name} with three arguments does not exist"
            fix = f"define {name}(Old, New, Merged)"
        elif 2 in predicates[full_name, 3].inputs():
            message = f"merge predicate {name} takes its third argument as input, but a merge computes it"
            fix = f'declare {name} with mode("+", "+", "-")'
        if message is not None:
            diagnostics.append(Diagnostic("analysis", message, merge.span, printer.decl(predicate.decl), fix))
        predicates[key] = replace(predicate, merge=replace(merge, predicate=(full_name or name, 3)))


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wrong_count(name: str, expected: list[int], count: int) -> str:
    """Return the message for a predicate or function with a wrong number of arguments."""
    numbers = [*map(str, expected[:-1]), count_noun(expected[-1], "argument")]
    return f"{name} takes {' or '.join(numbers)}, not {count}"


def unknown_predicate(name: str, arity: int, known: Collection[Key], fix: str | None = None) -> tuple[str, str | None]:
    """Return the message and the fix for a predicate that is not known with this number of arguments.

    The fix is a similar name or, without a similar name, ``fix``.
    """
    if arities := sorted(known_arity for known_name, known_arity in known if known_name == name):
        return wrong_count(name, arities, arity), None
    similar = closest_match(name, {known_name for known_name, _ in known})
    return f"unknown predicate {name}", f"did you mean {similar}?" if similar else fix


def _place(span: Span | None) -> str:
    return "another place" if span is None else f"{span.source.name}:{span.line}"


def check_ownership(
    predicates: Mapping[Key, Predicate], clauses: Iterable[Clause], owners: Mapping[str, Trust]
) -> list[Diagnostic]:
    """Report clauses of a source that is less trusted than the owner of their predicate (requirement OPEN-74).

    ``owners``, by predicate name, overrides owners from declarations and clauses. A lower level is more trusted.
    """
    by_key: dict[Key, list[Clause]] = {}
    for clause in clauses:
        by_key.setdefault(clause.head.key, []).append(clause)
    diagnostics: list[Diagnostic] = []
    for key, key_clauses in by_key.items():
        most_trusted = min(key_clauses, key=attrgetter("trust"))
        level = min(most_trusted.trust, owners.get(key[0], Trust.DOMAIN))
        diagnostics += _check_reinterpretation(predicates[key], level)
        owner, owner_span = _owner(predicates[key], most_trusted, owners)
        for clause in key_clauses:
            if clause.trust <= owner:
                continue
            reference = "" if owner_span is None else f" (see {_place(owner_span)})"
            message = f"{key[0]} belongs to {owner.label}{reference}, a {clause.trust.label} source may not add to it"
            is_kernel = owner is Trust.KERNEL  # no pack can have rules of the kernel level
            fix = ("" if is_kernel else "move the clause to that level, or ") + "derive another predicate"
            diagnostics.append(Diagnostic("analysis", message, clause.head.span, printer.clause(clause), fix))
    return diagnostics


def _check_reinterpretation(predicate: Predicate, level: Trust) -> Iterator[Diagnostic]:
    """Report a declaration that changes the meaning of clauses whose ``level`` is more trusted than the declaration."""
    decl = predicate.decl
    if decl is None or decl.span is None or decl.span.source.trust <= level:
        return
    for descriptor in decl.descr:
        if descriptor.predicate in _CHANGES_MEANING:
            author = decl.span.source.trust.label
            message = f"{predicate.name} belongs to {level.label}, a {author} Decl may not have {descriptor.predicate}"
            fix = "move the Decl to that level"
            yield Diagnostic("analysis", message, descriptor.span, printer.decl(decl), fix)


def _owner(predicate: Predicate, most_trusted: Clause, owners: Mapping[str, Trust]) -> tuple[Trust, Span | None]:
    """Return the level that owns the predicate, and the span of the clause or declaration that makes it the owner."""
    if predicate.name in owners:
        owner = owners[predicate.name]
        return owner, most_trusted.span if most_trusted.trust <= owner else None
    if predicate.owner is not None and predicate.decl is not None:
        return predicate.owner, predicate.decl.span
    return most_trusted.trust, most_trusted.span


class FactAcceptor:
    """Checks facts against the declarations of one program; caches accepted combinations of kinds."""

    def __init__(self, predicates: Mapping[Key, Predicate]) -> None:
        self.predicates = predicates
        self.vocabulary = Vocabulary(t for p in predicates.values() for row in p.rows for t in row)
        # Combinations of kinds that a predicate accepts for all values of these kinds.
        self._accepted_kinds: defaultdict[Key, set[tuple[type, ...]]] = defaultdict(set)

    def accepts(self, key: Key, args: tuple[Value, ...]) -> bool:
        """Return whether the predicate accepts these arguments; an undeclared predicate accepts any values."""
        for arg in args:
            if type(arg) is str:
                if not arg.isascii() and not is_text(arg):
                    return False
            elif type(arg) is int and not INT_MIN <= arg <= INT_MAX:
                return False
        kinds = tuple(map(type, args))
        accepted = self._accepted_kinds[key]
        if kinds in accepted:
            return True
        if any(kind not in KIND_NAMES for kind in kinds):
            return False
        predicate = self.predicates[key]
        if predicate.decl is None:
            accepted.add(kinds)
            return True
        if not any(row_accepts(row, self.types(args)) for row in predicate.rows):
            return False
        if all(isinstance(t, Base) or t == NAME for row in predicate.rows for t in row):
            accepted.add(kinds)
        return True

    def types(self, args: tuple[Value, ...]) -> tuple[Type, ...]:
        return tuple(self.vocabulary.value(arg) for arg in args)


def is_text(value: str) -> bool:
    """Return whether a string has no lone surrogates, which cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
