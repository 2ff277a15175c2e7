"""Facts from outside the rules: external predicates (``externals.py``), generators (``facts.py``), and fact sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Trust
from manglecp.base.suggestions import did_you_mean
from manglecp.base.text import age_text
from manglecp.intent.kernel import ASSERTED, PREDICATES
from manglecp.intent.run_facts import AFTER_RUN_ARITIES
from manglecp.mangle import Fact, Key, Predicate, Program, instant_text
from manglecp.mangle.syntax import Clause, Decl
from manglecp.pack import ExternalDescription, FactSource as SourceSettings, Pack, pack_problem

# A declaration of an external predicate in the rules must agree with ``externals.py``; a missing declaration is added.
# Facts of an external predicate are an error: they would be mixed with its results.


def declarations(pack: Pack, decls: Iterable[Decl]) -> Source:
    """Return a source that declares the external predicates that the rules do not declare."""
    declared_names = {decl.atom.predicate for decl in decls}
    undeclared = [external for name, external in sorted(pack.externals.items()) if name not in declared_names]
    return Source("externals.py", "\n".join(map(_declaration, undeclared)), Trust.SCHEMA)


def external_problems(
    pack: Pack, decls: Iterable[Decl], clauses: list[Clause], all_parsed: bool
) -> Iterator[Diagnostic]:
    """Yield contradictions between rules and ``externals.py``; ``all_parsed`` is whether every rule file parsed."""
    declarations_by_name = {decl.atom.predicate: decl for decl in decls}
    used_names = {name for clause in clauses for name, _ in clause.reads}
    for name, decl in declarations_by_name.items():
        if descriptor(decl, "external") is not None and name not in pack.externals:
            yield _problem_at(decl, f"externals.py does not answer {name}", did_you_mean(name, pack.externals))
    for name, external in pack.externals.items():
        declaration = declarations_by_name.get(name)
        if declaration is not None and _signature(declaration) != (external.arity, external.mode):
            fix = f"write {_declaration(external)}"
            yield _problem_at(declaration, f"externals.py answers {name} with another number of arguments or mode", fix)
        for clause in clauses:
            if clause.head.predicate == name and clause.is_fact:  # the analysis refuses rules of external predicates
                yield Diagnostic("analysis", external_facts_message(name), clause.head.span, fix="remove it")
        if name not in used_names and all_parsed:
            fix = "remove it, or use it in a rule"
            yield pack_problem("externals.py", f"no rule uses {name}", fix=fix, severity="warning")


def external_facts_message(predicate: str) -> str:
    return f"{predicate} is external: it is answered by externals.py, not by facts"


def descriptor(decl: Decl, name: str) -> tuple[Any, ...] | None:
    """Return the arguments of a descriptor of a declaration, such as ``direction("input")``; None without one."""
    return next((descriptor.args for descriptor in decl.descr if descriptor.predicate == name), None)


def _problem_at(decl: Decl, message: str, fix: str) -> Diagnostic:
    span = decl.atom.span
    assert span is not None  # only a parsed declaration has a span
    return pack_problem(span.source.name, message, span.line, span.column, fix=fix)


def _signature(decl: Decl) -> tuple[int, str | None]:
    """Return the arity, and the mode if the predicate is declared as external."""
    mode = descriptor(decl, "mode") if descriptor(decl, "external") is not None else None
    return len(decl.atom.args), None if mode is None else "".join(map(str, mode))


def _declaration(external: ExternalDescription) -> str:
    names = external.arguments or tuple(f"A{number}" for number in range(1, external.arity + 1))
    modes = ", ".join(f'"{mode}"' for mode in external.mode)
    return f"Decl {external.predicate}({', '.join(names)}) descr [external(), mode({modes})]."


# A generated predicate has no facts from other files: a fact that the generator retracts could still hold. Rules may
# derive more facts of it. Predicates of the kernel and of policy cannot be generated.


class FactSource(Protocol):
    """The running generators of a pack."""

    def begin(self, predicates: Mapping[Key, Predicate]) -> Iterable[Fact]:
        """Return all current facts. Raises :class:`manglecp.pack.PackError`."""

    @property
    def version(self) -> str:
        """A text that changes with the facts."""


def generator_problems(
    pack: Pack, decls: Iterable[Decl], clauses: Iterable[Clause], owned: Mapping[Key, Trust], all_parsed: bool
) -> Iterator[Diagnostic]:
    """Yield why generators cannot provide the predicates that they name.

    ``owned`` has the owners of predicates that are not the domain's; ``all_parsed`` is whether every rule file parsed.
    """
    declared_names = {decl.atom.predicate for decl in decls}
    owners = {name: owner for (name, _), owner in owned.items()}
    generated_predicates = set()
    providers = [("facts.py", each.name, each.predicates) for each in pack.generators.values()]
    providers += [("pack.toml", f"facts.{each.name}", each.predicates) for each in pack.settings.fact_sources]
    yield from _source_problems(pack, decls)
    for file, source, predicates in providers:
        for name in predicates:
            if name in PREDICATES:
                message, fix = f"{name} is a word of the kernel", "give another predicate, and derive it in rules"
            elif name in pack.externals:
                message, fix = f"{name} is external: it is answered by externals.py", "remove one of them"
            elif name in owners:
                message = f"{name} belongs to {owners[name].label}, a generator may not add to it"
                fix = "give another predicate that those rules read"
            elif name not in declared_names and all_parsed:
                message, fix = f"no rule file declares {name}", f"write Decl {name}(…) bound […]."
            else:
                generated_predicates.add(name)
                continue
            yield pack_problem(file, f"{source}: {message}", fix=fix)
    for clause in clauses:
        name = clause.head.predicate
        if clause.is_fact and name in generated_predicates:
            fix = "remove it, or let the generator give it"
            yield Diagnostic("analysis", generated_facts_message(pack, name), clause.head.span, fix=fix)


def _source_problems(pack: Pack, decls: Iterable[Decl]) -> Iterator[Diagnostic]:
    """Yield sources without a generator, and predicates of a source with facts of clients or of another source."""
    directions = {decl.atom.predicate: descriptor(decl, "direction") for decl in decls}
    provider_of = {name: each.name for each in pack.generators.values() for name in each.predicates}
    for source in pack.settings.fact_sources:
        generator = pack.generators.get(source.name)
        if source.push and generator is not None:
            yield pack_problem(
                "pack.toml", f"facts.{source.name}: facts.py has a generator of this name", fix="rename it"
            )
        elif not source.push and generator is None:
            fix = f"{did_you_mean(source.name, pack.generators)}, or add push = true"
            yield pack_problem("pack.toml", f"facts.{source.name}: facts.py has no generator of this name", fix=fix)
        for name in source.predicates if generator is None else generator.predicates:
            if directions.get(name) in (("input",), ("both",)):
                message = f"facts.{source.name}: clients may state {name}, so that no rule could trust its facts"
                yield pack_problem("pack.toml", message, fix=f"remove direction from the Decl of {name}")
            if (other_source := provider_of.setdefault(name, source.name)) != source.name:
                message = f"facts.{source.name}: {name} has facts of {other_source} already"
                yield pack_problem("pack.toml", message, fix="give each source predicates of its own")


def generated_facts_message(pack: Pack, predicate: str) -> str:
    source_names = (source.name for source in pack.settings.fact_sources if predicate in source.predicates)
    name = next(source_names, None)
    return f"the facts of {predicate} are those that {'facts.py gives' if name is None else f'are pushed to {name}'}"


# --- sources that all servers of a store share ----------------------------------------------------------------------


class SourceVersion(NamedTuple):
    """The provenance of the facts of a source."""

    version: int
    digest: str
    at_ms: int
    """The time at which the facts of this version were first provided."""
    principal: str

    def text(self, source: str) -> str:
        at = instant_text(self.at_ms * 1_000_000)
        return f"{source}, version {self.version}, {self.digest}, by {self.principal} at {at}"


class Freshness:
    """When each version of the facts of a source was last confirmed. Threads may confirm versions during evaluations.

    Versions have their own times, so that a newer version never makes the facts of an older domain count as fresh.
    """

    def __init__(self, sources: Iterable[SourceSettings]) -> None:
        self._sources: Final = tuple(sources)
        self.confirmed_ns: Mapping[tuple[str, int], int] = {}
        """By source and version, in nanoseconds since 1970; replaced as a whole. Unusable versions are missing."""

    def confirm(self, name: str, version: int, at_ns: int) -> None:
        """Record a confirmation of a version; of earlier versions only the last one is remembered."""
        kept_ns = {key: ns for key, ns in self.confirmed_ns.items() if key[0] != name or key[1] >= version - 1}
        self.confirmed_ns = kept_ns | {(name, version): max(at_ns, kept_ns.get((name, version), at_ns))}

    def forget(self, name: str) -> None:
        """Record that the newest version of a source cannot be used."""
        self.confirmed_ns = {key: ns for key, ns in self.confirmed_ns.items() if key[0] != name}

    def stale_facts(self, versions: Mapping[str, SourceVersion], now_ns: int) -> list[Fact]:
        """Return a fact for each source whose version in ``versions`` is stale, or that has none."""
        return [
            Fact("stale_source", (source.name, reason))
            for source in self._sources
            if (reason := self._stale_reason(source, versions.get(source.name), now_ns)) is not None
        ]

    def _stale_reason(self, source: SourceSettings, version: SourceVersion | None, now_ns: int) -> str | None:
        confirmed_ns = None if version is None else self.confirmed_ns.get((source.name, version.version))
        if confirmed_ns is None:
            return f"the facts of {source.name} have not arrived yet"
        age_ns, limit_ns = now_ns - confirmed_ns, source.stale_after_ns
        if limit_ns is None or age_ns <= limit_ns:
            return None
        return f"the facts of {source.name} are {age_text(age_ns)} old, and {age_text(limit_ns)} are allowed"


# These affect results and texts, not decisions.
_NOT_DECIDING: Final = frozenset({*AFTER_RUN_ARITIES, "extract", "keep", "public_reason"})


def guards(program: Program, pack: Pack) -> Iterator[Fact]:
    """Yield a ``source_guards`` fact for each tool or action whose rules read a source with ``on_stale = "deny"``.

    The dependency is that of predicates: a rule reads a source if it reads one of its predicates, or any predicate that
    another rule derives from them. A rule whose head names no tool guards every tool.
    """
    deciding_rules = [rule for rule in program.rules if rule.head.predicate in PREDICATES - _NOT_DECIDING - ASSERTED]
    first_args = {key[0]: _first_argument(predicate) for key, predicate in program.predicates.items()}
    for source in pack.settings.fact_sources:
        generator = pack.generators.get(source.name)
        names = set(source.predicates if generator is None else generator.predicates)
        source_dependents = program.affected_by(key for key in program.predicates if key[0] in names)
        for rule in deciding_rules if source.on_stale == "deny" else ():
            if rule.clause.trust is Trust.KERNEL or source_dependents.isdisjoint(rule.clause.reads):
                continue
            first_arg = rule.head.args[0] if rule.head.args else None
            kind = {"Tool": "tool", "Action": "action"}.get(first_args[rule.head.predicate])
            name = first_arg if kind is not None and isinstance(first_arg, str) else ""
            if not name or rule.head.predicate == "conflicts":  # a conflict concerns the other tool as well
                kind, name = "any", ""
            yield Fact("source_guards", (source.name, kind or "any", name))


def _first_argument(predicate: Predicate) -> str:
    args: Sequence[Any] = () if predicate.decl is None else predicate.decl.atom.args
    return str(getattr(args[0], "name", "")) if args else ""
