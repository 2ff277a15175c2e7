"""A loaded pack: its rules and the kernel's, analysed, over a base that was evaluated once.

Loading collects every problem before it fails, each with its place; doubtful findings are warnings. A domain is
immutable: another pack revision has another digest, other generated facts have another ``facts_version``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from manglecp.base.cache import LruCache
from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span, Trust
from manglecp.base.suggestions import did_you_mean
from manglecp.intent.composition import CACHED, DefinitionCache
from manglecp.intent.fact_sources import (
    FactSource,
    answered,
    declarations,
    descriptor,
    external_problems,
    generator_problems,
    given_elsewhere,
)
from manglecp.intent.kernel import CLOSED, OWNERS, PREDICATES, SINGLE_VALUED, kernel_units, owners, published_above
from manglecp.intent.kernel_statements import Statements
from manglecp.intent.lint import cross_check, find_hidden_texts, find_misspelt, find_untimed
from manglecp.intent.names import IMPORTED, RuleSet, check_names
from manglecp.intent.redaction import policy_predicates
from manglecp.intent.value_lint import changeable_predicates, check_derived_rows, flawed_tools
from manglecp.mangle import (
    FALSE,
    TRUE,
    Base,
    External,
    Fact,
    Key,
    LimitError,
    Limits,
    MangleError,
    Program,
    Value,
    parse,
    resolve,
)
from manglecp.mangle.syntax import Unit
from manglecp.pack import Pack, PackError, pack_problem
from manglecp.pack.factfiles import FactFile, read_facts
from manglecp.wire import Profile, direction_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A pack that is ready for evaluation. Made by :meth:`load`; thread-safe."""

    pack: Pack
    program: Program
    base: Base
    profile: Profile
    digest: str  # of everything that responses depend on, except the kernel
    warnings: tuple[Diagnostic, ...] = ()
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # predicates a request must state, by intent
    facts_version: str = ""  # of the facts from the pack's generators; empty without generators
    definitions: DefinitionCache = field(default_factory=lambda: LruCache(CACHED), repr=False, compare=False)
    logged_flaws: LruCache[str, bool] = field(default_factory=lambda: LruCache(4096), repr=False, compare=False)
    """Tools whose flaw was logged; bounded, because tool names may come from clients."""
    policy: frozenset[Key] = frozenset()  # predicates that belong to policy

    @classmethod
    def load(
        cls,
        pack: Pack,
        *,
        externals: Mapping[str, External] | None = None,
        facts: Iterable[Fact] = (),
        generated: FactSource | None = None,
    ) -> Domain:
        """Analyse the rules, read the fact files and evaluate the base. Raises PackError with all problems.

        ``externals`` implement the external predicates, ``facts`` are added to those of the pack's files, ``generated``
        provides the facts of the pack's generators.
        """
        return _Loader(pack, dict(externals or {}), list(facts), generated).load()

    def changed(self, added: Iterable[Fact], removed: Iterable[Fact], version: str) -> Domain:
        """Return a copy with other generated facts. Raises :class:`manglecp.mangle.MangleError`."""
        base = self.base.with_facts(added, removed, check=False, limits=_loading(self.pack))
        return replace(self, base=base, facts_version=version, definitions=LruCache(CACHED))


class _Loader:
    def __init__(
        self, pack: Pack, externals: dict[str, External], facts: list[Fact], generated: FactSource | None
    ) -> None:
        self.pack = pack
        self.externals = externals
        self.given = facts
        self.generated = generated
        self.generating = {name for one in pack.generators.values() for name in one.predicates}
        self.found: list[Diagnostic] = list(pack.warnings)
        self.whole = True
        self.parsed = list(self._parsed())  # A file that does not parse stays a source: loading the program reports why
        self.units, _ = resolve(unit for unit in self.parsed if isinstance(unit, Unit))
        self.decls = [decl for unit in self.units for decl in unit.decls]
        self.clauses = [clause for unit in self.units for clause in unit.clauses]
        self.stated: list[tuple[str, Fact]] = []  # facts of kernel predicates, with the file that states them
        self.read: list[tuple[str, list[Fact]]] = []  # all facts, by file

    def _parsed(self) -> Iterator[Unit | Source]:
        for source in self.pack.sources:
            try:
                yield parse(source)
            except MangleError:
                self.whole = False
                yield source

    def load(self) -> Domain:
        self.found += find_hidden_texts(self.units)
        self._settings()
        self.found += external_problems(self.pack, self.decls, self.clauses, self.whole)
        program = self._program()
        if program is None:
            self._generators({})
            self._facts(self._declared(), {})
            self._cross_check()
            self._names()
            self._refuse()
        assert program is not None
        self.found += program.warnings
        ruled = {rule.head.key for rule in program.rules}
        self.found += direction_problems(program.predicates, CLOSED, ruled)
        owned = owners(program)
        self.found += published_above(program, owned)
        self._generators(owned)
        facts = self._facts(program, owned)
        self._cross_check()
        self.found += find_untimed(program)
        base = self._base(program, [*facts, *self._generated_facts(program)])
        self._names(base)
        self._refuse()
        assert base is not None
        profile = Profile.of(program.predicates, CLOSED)
        self.found += flawed_tools(self.pack, base, self.clauses)
        self.found += check_derived_rows(
            self.pack, base, self.clauses, changeable_predicates(program, profile.readable)
        )
        self._single_values(base)
        self._refuse()
        return Domain(
            pack=self.pack,
            program=program,
            base=base,
            profile=profile,
            digest=self._digest(),
            warnings=tuple(sorted(self.found, key=_place)),
            required={intent.name: intent.required_facts for intent in self.pack.settings.intents},
            facts_version="" if self.generated is None else self.generated.version,
            policy=policy_predicates(program),
        )

    def _generators(self, owned: Mapping[Key, Trust]) -> None:
        self.found += generator_problems(self.pack, self.decls, self.clauses, owned, self.whole)

    def _generated_facts(self, program: Program) -> Iterable[Fact]:
        """Run the generators, which may be slow, only if there is no error so far."""
        if self.generated is None or any(problem.severity == "error" for problem in self.found):
            return ()
        try:
            return self.generated.begin(program.predicates)
        except PackError as error:
            self.found += error.diagnostics
            return ()

    def _cross_check(self) -> None:
        """Check the parts against each other. Without all files only errors are certain."""
        found = cross_check(self.pack, self.clauses, Statements(self.clauses, self.stated, self.whole))
        self.found += found if self.whole else [problem for problem in found if problem.severity == "error"]
        if self.whole:
            self.found += find_misspelt(self.decls, self.clauses)

    def _names(self, base: Base | None = None) -> None:
        constant: set[Key] = set()
        if base is not None:
            program = base.program
            changing = changeable_predicates(program, {*self._assertable(), *self.generating, *self.pack.externals})
            volatile = {key for key, number in base.compiled.ids.items() if number in base.compiled.volatile}
            constant = program.predicates.keys() - changing - volatile
        assertable = self._assertable()
        self.found += check_names(
            RuleSet(self.pack, self.decls, self.clauses, self.read, assertable, self.whole, base, constant)
        )

    def _assertable(self) -> set[str]:
        """Return the predicates that clients may state."""
        directions = {decl.atom.predicate: descriptor(decl, "direction") for decl in self.decls}
        return {name for name, found in directions.items() if found and found[0] in ("input", "both")}

    def _refuse(self) -> None:
        if any(problem.severity == "error" for problem in self.found):
            raise PackError(sorted(self.found, key=_place))

    def _settings(self) -> None:
        assertable = self._assertable()
        for intent in self.pack.settings.intents:
            for key, names in (("required_facts", intent.required_facts), ("optional_facts", intent.optional_facts)):
                for name in names:
                    if name not in assertable and self.whole:
                        message = f"{key} of the intent {intent.name!r} names {name}, which no client can state"
                        fix = f'write Decl {name}(…) descr [direction("input")], or {did_you_mean(name, assertable)}'
                        self.found.append(pack_problem("pack.toml", message, intent.line, fix=fix))

    def _program(self) -> Program | None:
        try:
            return Program.load([*kernel_units(), *self.parsed, declarations(self.pack, self.decls)], owners=OWNERS)
        except MangleError as error:
            self.found += error.diagnostics
            return None

    def _declared(self) -> Program:
        """Return the declarations alone, which suffice to read fact files if the rules are wrong."""
        kernel, _ = resolve(kernel_units())
        return Program.of_declarations([decl for unit in kernel for decl in unit.decls] + self.decls)

    def _facts(self, program: Program, owned: Mapping[Key, Trust]) -> list[Fact]:
        found = list(self.given)
        self._stated(IMPORTED, self.given, owned)
        for name in self.pack.fact_files:
            path = Path(name)
            inside = self.pack.folder and path.is_relative_to(self.pack.folder)
            shown = str(path.relative_to(self.pack.folder)) if inside else path.name
            try:
                read = read_facts([FactFile(path, name=shown, sha256=self.pack.fact_digests.get(name))], program)
            except MangleError as error:
                # What did not parse may declare it.
                self.found += (
                    diagnostic
                    for diagnostic in error.diagnostics
                    if self.whole or not diagnostic.message.startswith("unknown predicate")
                )
                self.whole = False
                continue
            except OSError as error:
                self.found.append(pack_problem(shown, f"cannot be read: {error.strerror}"))
                self.whole = False
                continue
            self._stated(shown, read, owned)
            found += read
        return found

    def _stated(self, file: str, facts: list[Fact], owned: Mapping[Key, Trust]) -> None:
        """Record facts of kernel predicates, and reject facts of predicates that a fact file may not extend."""
        self.read.append((file, facts))
        self.stated += [(file, fact) for fact in facts if fact.predicate in PREDICATES]
        for name, arity in sorted({(fact.predicate, len(fact.args)) for fact in facts}):
            owner = owned.get((name, arity))
            if name in set(self.pack.externals):  # as listed: a broken file counts as defining every name
                self.found.append(pack_problem(file, answered(name), fix="remove its facts"))
            elif name in self.generating:
                self.found.append(pack_problem(file, given_elsewhere(name), fix="remove its facts"))
            elif owner is not None:
                message = f"{name} belongs to {owner.label}, a fact file may not add to it"
                self.found.append(pack_problem(file, message, fix="write it in a rule file of that level"))

    def _base(self, program: Program, facts: list[Fact]) -> Base | None:
        facts = [*facts, *_about(self.pack)]
        permits = any(clause.head.key == ("permitted", 1) for clause in self.clauses)
        if permits:
            facts.append(Fact("permitted_only", ()))
        try:
            return program.base(facts, externals=self.externals, limits=_loading(self.pack))
        except LimitError as error:
            self.found.append(_endless(error))
            return None
        except MangleError as error:
            self.found += error.diagnostics
            return None

    def _single_values(self, base: Base) -> None:
        for name, columns in SINGLE_VALUED.items():
            predicate = next(key for key in base.program.predicates if key[0] == name)
            seen: set[Any] = set()
            for row in base.rows(predicate):
                key = row[:columns]
                if key in seen:
                    shown = ", ".join(repr(value) for value in key)
                    message = f"{name}({shown}, …) has two values, so that the tool is never offered"
                    self.found.append(Diagnostic("analysis", message, self._second(name, key), None, "remove one"))
                    break
                seen.add(key)

    def _second(self, predicate: str, start: tuple[Value, ...]) -> Span | None:
        heads = (clause.head for clause in self.clauses)
        spans = [head.span for head in heads if head.predicate == predicate and head.args[: len(start)] == start]
        return spans[1] if len(spans) > 1 else None

    def _digest(self) -> str:
        if not self.given:
            return self.pack.digest
        digest = hashlib.sha256(self.pack.digest.encode())
        for text in sorted(fact.text for fact in self.given):
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()


def _place(problem: Diagnostic) -> tuple[str, int, int, str]:
    return problem.file, problem.line or 0, problem.column or 0, problem.message


def _about(pack: Pack) -> Iterator[Fact]:
    for action in pack.actions.values():
        yield Fact("action", (action.name,))
        yield Fact("action_tier", (action.name, action.tier))
        for effect in action.effects:
            yield Fact("action_effect", (action.name, effect))
        required = action.input_schema.get("required", ())
        for param in action.input_schema.get("properties", {}):
            yield Fact("action_param", (action.name, param, TRUE if param in required else FALSE))
    for skill in pack.skills:
        yield Fact("skill", (skill,))
    for name, value in pack.params.items():
        yield Fact("setting", (name, value))


def _loading(pack: Pack) -> Limits:
    limits = pack.settings.limits
    return Limits(
        derived_facts=limits.max_base_facts, intervals=limits.max_intervals_per_atom, seconds=limits.max_load_ms / 1_000
    )


def _endless(error: LimitError) -> Diagnostic:
    problem = error.diagnostics[0]
    setting = next((name for unit, name in _SETTINGS.items() if error.unit.startswith(unit)), None)
    fix = "make the recursion of the rules finite" + (f", or raise limits.{setting} in pack.toml" if setting else "")
    return replace(problem, message=f"the pack's rules cannot be evaluated: {problem.message}", fix=fix)


_SETTINGS: Final = {
    "derived facts": "max_base_facts",
    "seconds": "max_load_ms",
    "intervals": "max_intervals_per_atom",
}
