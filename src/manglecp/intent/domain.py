"""A loaded pack: its rules and the kernel's, analysed, over a base that was evaluated once.

Loading collects every problem before it fails, each with its place; doubtful findings are warnings. A domain is
immutable: for other generated facts a copy is made, with another ``facts_version``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from manglecp import mangle
from manglecp.base.cache import LruCache
from manglecp.base.diagnostic import Diagnostic
from manglecp.base.source import Source, Span, Trust
from manglecp.base.suggestions import did_you_mean
from manglecp.intent import action_tools, fact_sources, lint
from manglecp.intent.composition import MAX_DEFINITIONS, DefinitionCache
from manglecp.intent.fact_sources import FactSource, Freshness, SourceVersion, descriptor
from manglecp.intent.intents import intents_of, matched_intents
from manglecp.intent.kernel import (
    DECIDING,
    NOT_ASSERTABLE,
    OWNERS,
    PREDICATES,
    SINGLE_VALUED,
    forbidden_inputs,
    kernel_units,
    owners,
)
from manglecp.intent.kernel_statements import Statements
from manglecp.intent.names import IMPORTED, RuleSet, check_names
from manglecp.intent.redaction import make_redactor, policy_predicates, secret_values
from manglecp.intent.run_facts import RunRuleIndex
from manglecp.intent.value_lint import changeable_predicates, check_derived_rows, flawed_tools
from manglecp.mangle.syntax import Apply, Atom, Unit, Variable
from manglecp.pack import Pack, PackError, pack_problem
from manglecp.pack.factfiles import FactFile, read_facts
from manglecp.wire import Profile, direction_problems


class EffectiveLimits(NamedTuple):
    """The stricter of the client's and the server's limits (EVAL-05)."""

    facts: int  # facts that the rules derive for the request
    intervals: int  # intervals that one temporal fact may have
    milliseconds: int


@lru_cache(256)
def engine_limits(derived_in_base: int, limits: EffectiveLimits) -> mangle.Limits:
    """Return the limits for an evaluation over a base; ``limits.facts`` counts only what the request adds to it."""
    return mangle.Limits(
        derived_facts=derived_in_base + limits.facts, intervals=limits.intervals, seconds=limits.milliseconds * 0.001
    )


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A pack that is ready for evaluation. Made by :meth:`load`; thread-safe."""

    pack: Pack
    program: mangle.Program
    base: mangle.Base
    profile: Profile
    digest: str  # the digest of everything that responses depend on, except the kernel and generated facts
    warnings: tuple[Diagnostic, ...] = ()
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by intent: required predicates
    generally_relevant: frozenset[str] = frozenset()  # tools whose relevance no rule decides
    generated_version: str = ""  # changes with the facts of this process's generators; empty without generators
    sources: Mapping[str, SourceVersion] = field(default_factory=dict)
    """The versions of the facts that the store provides, by source."""
    freshness: Freshness | None = None  # None: facts never become stale, as in a process without a store
    definitions: DefinitionCache = field(default_factory=lambda: LruCache(MAX_DEFINITIONS), repr=False, compare=False)
    logged_flaws: LruCache[str, bool] = field(default_factory=lambda: LruCache(4096), repr=False, compare=False)
    """Tools whose flaw was logged; bounded, because tool names may come from clients."""
    policy: frozenset[mangle.Key] = frozenset()  # predicates that belong to policy

    @cached_property
    def run_rules(self) -> RunRuleIndex:
        """The kinds of rules about runs that the pack has."""
        return RunRuleIndex.of(self.program, self.base)

    @cached_property
    def redact(self) -> Callable[[Any], Any]:
        """A function that removes the values of secret settings from texts and JSON."""
        return make_redactor(secret_values(self.pack))

    @cached_property
    def facts_version(self) -> str:
        """A text that changes with the facts of generators and sources; empty without such facts."""
        return self.generated_version + "".join(
            f"{source.digest.removeprefix('sha256:')[:32]}" for _, source in sorted(self.sources.items())
        )

    def stale_facts(self, now_ns: int) -> list[mangle.Fact]:
        """Return a fact for each source that is stale at this time."""
        return [] if self.freshness is None else self.freshness.stale_facts(self.sources, now_ns)

    def provenance(self, fact: mangle.Fact) -> str:
        """Return source, version, digest and time of a fact of a source; empty for other facts."""
        for settings in self.pack.settings.fact_sources:
            generator = self.pack.generators.get(settings.name)
            names = settings.predicates if generator is None else generator.predicates
            if fact.predicate in names and settings.name in self.sources:
                return self.sources[settings.name].text(settings.name)
        return ""

    @cached_property
    def limits(self) -> EffectiveLimits:
        """The server's limits."""
        limits = self.pack.settings.limits
        return EffectiveLimits(limits.max_derived_facts, limits.max_intervals_per_atom, limits.max_compute_ms)

    @cached_property
    def expiring_tools(self) -> frozenset[mangle.Value] | None:
        """The tools whose selection time can end, whatever the facts; None if that may be any tool."""
        result = self.base.evaluate([], now=0, check=False)
        mandatory, relevant = (result.expiring(key) for key in (("mandatory", 1), ("relevant", 2)))
        return None if mandatory is None or relevant is None else mandatory | relevant

    @cached_property
    def _deciding_clauses(self) -> Mapping[tuple[str, object], Sequence[tuple[Atom, mangle.Rule | None]]]:
        """The heads of the pack's clauses for predicates that decide about calls, each with its rule; None for a fact.

        Keys are the predicate and the last argument (the reason, for a denial) if it is a constant, otherwise None.
        """
        clauses: dict[tuple[str, object], list[tuple[Atom, mangle.Rule | None]]] = {}
        heads = [(rule.head, rule) for rule in self.program.rules]
        for head, rule in (*heads, *((fact.clause.head, None) for fact in self.program.facts)):
            if head.predicate in DECIDING:
                last = None if isinstance(head.args[-1], Variable | Apply) else head.args[-1]
                clauses.setdefault((head.predicate, last), []).append((head, rule))
        return clauses

    def clause_places(self, fact: mangle.Fact, result: mangle.Result) -> Iterator[str]:
        """Yield ``file:line`` of each clause that derived a deciding fact, as far as the engine records it."""
        heads = (self._deciding_clauses.get((fact.predicate, last), ()) for last in (fact.args[-1], None))
        matches = [(head, rule) for head, rule in chain.from_iterable(heads) if _matches(head, fact)]
        fired = matches[:1]
        if len(matches) > 1:
            fired = [(head, rule) for head, rule in matches if rule is None or result.model.has_fired(rule)]
        pack_heads = [(head, rule) for head, rule in matches if head.span and head.span.source.trust != Trust.KERNEL]
        for head, _ in fired or pack_heads or matches:
            if head.span is not None:
                yield f"{head.span.source.name}:{head.span.line}"

    def fact_places(self, fact: mangle.Fact) -> Iterator[str]:
        """Yield ``file:line`` of each clause of the program that states a fact."""
        for program_fact in self.program.facts:
            head = program_fact.clause.head
            if head.key == fact.key and head.span is not None and _matches(head, fact):
                yield f"{head.span.source.name}:{head.span.line}"

    @cached_property
    def intents(self) -> frozenset[str | None]:
        """The intents that the rules can match, and None if they can match every intent."""
        open_predicates = {*self.profile.assertable, *self.pack.sourced_predicates}
        return matched_intents(self.base, open_predicates, self.generally_relevant)

    @cached_property
    def read_params(self) -> frozenset[str] | None:
        """The keys of intent parameters that rules read; None if a rule reads parameters with any key."""
        atoms = (literal.atom for rule in self.program.rules for literal in rule.clause.literals)
        keys = {atom.args[0] for atom in atoms if atom.key == ("intent_param", 2)}
        texts = frozenset(key for key in keys if isinstance(key, str))
        return texts if len(texts) == len(keys) else None

    @classmethod
    def load(
        cls,
        pack: Pack,
        *,
        externals: Mapping[str, mangle.External] | None = None,
        facts: Iterable[mangle.Fact] = (),
        generated: FactSource | None = None,
    ) -> Domain:
        """Analyse the rules, read the fact files and evaluate the base. Raises PackError with all problems.

        ``externals`` implement the external predicates, ``facts`` are added to those of the pack's files, ``generated``
        provides the facts of the pack's generators.
        """
        return _Loader(pack, dict(externals or {}), list(facts), generated).load()

    def with_facts(
        self,
        added: Iterable[mangle.Fact],
        removed: Iterable[mangle.Fact],
        version: str | None = None,
        sources: Mapping[str, SourceVersion] | None = None,
    ) -> Domain:
        """Return a copy with other facts. Raises :class:`manglecp.mangle.MangleError`.

        ``version`` is the new version of generated facts, ``sources`` has those of fact sources; None: unchanged.
        """
        base = self.base.with_facts(added, removed, check=False, limits=_limits(self.pack))
        return replace(
            self,
            base=base,
            generated_version=self.generated_version if version is None else version,
            sources=self.sources if sources is None else sources,
            definitions=LruCache(MAX_DEFINITIONS),
        )


class _Loader:
    """Collects problems in ``problems``. ``all_readable`` becomes false if a rule or fact file cannot be read."""

    def __init__(
        self, pack: Pack, externals: dict[str, mangle.External], facts: list[mangle.Fact], generated: FactSource | None
    ) -> None:
        self.pack = pack
        self.externals = externals
        self.added_facts = facts
        self.generated = generated
        self.generated_predicates = pack.sourced_predicates
        self.problems: list[Diagnostic] = list(pack.warnings)
        self.all_readable = "" not in pack.actions  # false in a survey of a broken actions.py
        self.parsed = list(self._parse())
        self.units, _ = mangle.resolve(unit for unit in self.parsed if isinstance(unit, Unit))
        self.decls = [decl for unit in self.units for decl in unit.decls]
        self.clauses = [clause for unit in self.units for clause in unit.clauses]
        self.kernel_facts: list[tuple[str, mangle.Fact]] = []  # facts of kernel predicates, each after its file
        self.facts_by_file: list[tuple[str, list[mangle.Fact]]] = []
        self.generally_relevant: frozenset[str] = frozenset()

    def _parse(self) -> Iterator[Unit | Source]:
        """Yield parsed rule files. A file that does not parse stays a source: loading the program reports why."""
        for source in self.pack.sources:
            try:
                yield mangle.parse(source)
            except mangle.MangleError:
                self.all_readable = False
                yield source

    def load(self) -> Domain:
        self.problems += lint.find_hidden_texts(self.units)
        self._check_settings()
        self.problems += fact_sources.external_problems(self.pack, self.decls, self.clauses, self.all_readable)
        program = self._load_program()
        if program is None:
            self._check_generators({})
            self._read_facts(self._load_declarations(), {})
            self._cross_check()
            self._check_names()
            self._raise_if_errors()
        assert program is not None  # without a program, an error was raised
        self.problems += program.warnings
        self.problems += direction_problems(
            program.predicates, NOT_ASSERTABLE, {rule.head.key for rule in program.rules}
        )
        owned = owners(program)
        self.problems += forbidden_inputs(program, owned)
        self._check_generators(owned)
        facts = self._read_facts(program, owned)
        self._cross_check()
        given = {*self._assertable(), *self.generated_predicates, *self.pack.externals}
        given |= {fact.predicate for fact in facts} | {fact.clause.head.predicate for fact in program.facts}
        self.problems += [*lint.find_untimed(program), *lint.find_call_misuse(program, given)]
        base = self._evaluate_base(program, [*facts, *self._generate_facts(program)])
        self._check_names(base)
        self._raise_if_errors()
        assert base is not None  # without a base, an error was raised
        profile = Profile.of(program.predicates, NOT_ASSERTABLE)
        self.problems += flawed_tools(self.pack, base, self.clauses)
        changeable = changeable_predicates(program, profile.assertable)
        self.problems += check_derived_rows(self.pack, base, self.clauses, changeable)
        self._check_single_values(base)
        self._raise_if_errors()
        return Domain(
            pack=self.pack,
            program=program,
            base=base,
            profile=profile,
            digest=self._digest(),
            warnings=tuple(sorted(self.problems, key=_sort_key)),
            required={intent.name: intent.required_facts for intent in self.pack.settings.intents},
            generally_relevant=self.generally_relevant,
            generated_version="" if self.generated is None else self.generated.version,
            policy=policy_predicates(program),
        )

    def _check_generators(self, owned: Mapping[mangle.Key, Trust]) -> None:
        parts = self.pack, self.decls, self.clauses
        self.problems += fact_sources.generator_problems(*parts, owned, self.all_readable)

    def _generate_facts(self, program: mangle.Program) -> Iterable[mangle.Fact]:
        """Run the generators, which may be slow, only if there is no error so far."""
        if self.generated is None or any(problem.severity == "error" for problem in self.problems):
            return ()
        try:
            return self.generated.begin(program.predicates)
        except PackError as error:
            self.problems += error.diagnostics
            return ()

    def _cross_check(self) -> None:
        """Check rules, facts and actions against each other. Warnings are dropped if a file is unreadable."""
        problems = lint.cross_check(self.pack, self.clauses, self._statements())
        if self.all_readable:
            self.problems += [*problems, *lint.find_misspelt(self.decls, self.clauses)]
        else:
            self.problems += [problem for problem in problems if problem.severity == "error"]

    def _check_names(self, base: mangle.Base | None = None) -> None:
        constant: set[mangle.Key] = set()
        if base is not None:
            variable = {*self._assertable(), *self.generated_predicates, *self.pack.externals}
            volatile = {key for key, number in base.compiled.ids.items() if number in base.compiled.volatile}
            constant = base.program.predicates.keys() - changeable_predicates(base.program, variable) - volatile
            self.problems += lint.find_constant_context(self.clauses, constant)
        self.problems += check_names(self._rule_set(base, constant))

    def _rule_set(self, base: mangle.Base | None = None, constant: Collection[mangle.Key] = ()) -> RuleSet:
        facts, assertable = self.facts_by_file, self._assertable()
        return RuleSet(self.pack, self.decls, self.clauses, facts, assertable, self.all_readable, base, constant)

    def _make_tools(self) -> list[mangle.Fact]:
        """Return the facts of the tools that no rule composes; give a pack without intents the general intent."""
        outside = {*self._assertable(), *self.generated_predicates, *self.pack.externals} - PREDICATES
        facts = list(action_tools.definitions(self._rule_set(), self._statements(), outside))
        if not facts:
            return []
        self.facts_by_file.append((action_tools.FILE, facts))
        self.kernel_facts += ((action_tools.FILE, fact) for fact in facts)
        tools = {str(fact.args[0]) for fact in facts}
        relevant = list(action_tools.relevance(self._rule_set(), self._statements(), outside, tools))
        self.kernel_facts += ((action_tools.FILE, fact) for fact in relevant)
        self.generally_relevant = frozenset(str(fact.args[0]) for fact in relevant)
        domain_rules = (clause for clause in self.clauses if clause.trust > Trust.POLICY)
        named_intents = [name for rule in domain_rules for name in intents_of(rule.premises)]
        if not self.pack.settings.intents and not named_intents:
            settings = replace(self.pack.settings, intents=(action_tools.GENERAL_INTENT,))
            self.pack = replace(self.pack, settings=settings)
        return [*facts, *relevant]

    def _statements(self) -> Statements:
        return Statements(self.clauses, self.kernel_facts, self.all_readable)

    def _assertable(self) -> set[str]:
        """Return the predicates that clients may state."""
        directions = {decl.atom.predicate: descriptor(decl, "direction") for decl in self.decls}
        return {name for name, args in directions.items() if args and args[0] in ("input", "both")}

    def _raise_if_errors(self) -> None:
        if any(problem.severity == "error" for problem in self.problems):
            raise PackError(sorted(self.problems, key=_sort_key))

    def _check_settings(self) -> None:
        assertable = self._assertable()
        for intent in self.pack.settings.intents:
            for key, names in (("required_facts", intent.required_facts), ("optional_facts", intent.optional_facts)):
                for name in names:
                    if name not in assertable and self.all_readable:
                        message = f"{key} of the intent {intent.name!r} names {name}, which no client can state"
                        fix = f'write Decl {name}(…) descr [direction("input")], or {did_you_mean(name, assertable)}'
                        self.problems.append(pack_problem("pack.toml", message, intent.line, fix=fix))

    def _load_program(self) -> mangle.Program | None:
        try:
            return mangle.Program.load(
                [*kernel_units(), *self.parsed, fact_sources.declarations(self.pack, self.decls)], owners=OWNERS
            )
        except mangle.MangleError as error:
            self.problems += error.diagnostics
            return None

    def _load_declarations(self) -> mangle.Program:
        """Return a program of the declarations alone, which suffice to read fact files if the rules are wrong."""
        kernel, _ = mangle.resolve(kernel_units())
        return mangle.Program.of_declarations([decl for unit in kernel for decl in unit.decls] + self.decls)

    def _read_facts(self, program: mangle.Program, owned: Mapping[mangle.Key, Trust]) -> list[mangle.Fact]:
        facts = list(self.added_facts)
        self._record_facts(IMPORTED, self.added_facts, owned)
        for path_text in self.pack.fact_files:
            path = Path(path_text)
            is_inside = self.pack.folder and path.is_relative_to(self.pack.folder)
            name = str(path.relative_to(self.pack.folder)) if is_inside else path.name
            if is_inside and path_text not in self.pack.fact_digests and not path.is_file():
                # A pipe, for example: reading the pack has reported it, and opening it would wait.
                self.all_readable = False
                continue
            try:
                new = read_facts([FactFile(path, name=name, sha256=self.pack.fact_digests.get(path_text))], program)
            except mangle.MangleError as error:
                # A rule file that did not parse may declare the predicate.
                self.problems += (
                    diagnostic
                    for diagnostic in error.diagnostics
                    if self.all_readable or not diagnostic.message.startswith("unknown predicate")
                )
                self.all_readable = False
                continue
            except OSError as error:
                self.problems.append(pack_problem(name, f"cannot be read: {error.strerror}"))
                self.all_readable = False
                continue
            self._record_facts(name, new, owned)
            facts += new
        return [*facts, *self._make_tools()] if self.all_readable else facts

    def _record_facts(self, file: str, facts: list[mangle.Fact], owned: Mapping[mangle.Key, Trust]) -> None:
        """Record facts of kernel predicates, and reject facts of predicates that a fact file may not extend."""
        self.facts_by_file.append((file, facts))
        self.kernel_facts += [(file, fact) for fact in facts if fact.predicate in PREDICATES]
        for name, arity in sorted({(fact.predicate, len(fact.args)) for fact in facts}):
            owner = owned.get((name, arity))
            if name in set(self.pack.externals):  # a set, because the mapping of a survey has every key
                message, fix = fact_sources.external_facts_message(name), "remove its facts"
            elif name in self.generated_predicates:
                message, fix = fact_sources.generated_facts_message(self.pack, name), "remove its facts"
            elif owner is not None:
                message = f"{name} belongs to {owner.label}, a fact file may not add to it"
                fix = "write it in a rule file of that level"
            else:
                continue
            self.problems.append(pack_problem(file, message, fix=fix))

    def _evaluate_base(self, program: mangle.Program, facts: list[mangle.Fact]) -> mangle.Base | None:
        facts = [*facts, *_pack_facts(self.pack), *set(fact_sources.guards(program, self.pack))]
        if any(clause.head.key == ("permitted", 1) for clause in self.clauses):
            facts.append(mangle.Fact("permitted_only", ()))
        try:
            return program.base(facts, externals=self.externals, limits=_limits(self.pack))
        except mangle.LimitError as error:
            self.problems.append(_limit_diagnostic(error))
            return None
        except mangle.MangleError as error:
            self.problems += error.diagnostics
            return None

    def _check_single_values(self, base: mangle.Base) -> None:
        """Report the first key of each single-valued predicate that has two values in the base."""
        for name, key_columns in SINGLE_VALUED.items():
            predicate = next(key for key in base.program.predicates if key[0] == name)
            seen_keys: set[Any] = set()
            for row in base.rows(predicate):
                key = row[:key_columns]
                if key in seen_keys:
                    key_text = ", ".join(repr(value) for value in key)
                    effect = "one would be lost" if name == "keep" else "the tool is never offered"
                    message = f"{name}({key_text}, …) has two values, so that {effect}"
                    span = self._second_head(name, key)
                    self.problems.append(Diagnostic("analysis", message, span, fix="remove one"))
                    break
                seen_keys.add(key)

    def _second_head(self, predicate: str, key: tuple[mangle.Value, ...]) -> Span | None:
        """Return the span of the second clause head with these first arguments, or None."""
        heads = (clause.head for clause in self.clauses)
        spans = [head.span for head in heads if head.predicate == predicate and head.args[: len(key)] == key]
        return spans[1] if len(spans) > 1 else None

    def _digest(self) -> str:
        if not self.added_facts:
            return self.pack.digest
        digest = hashlib.sha256(self.pack.digest.encode())
        for text in sorted(fact.text for fact in self.added_facts):
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()


def _matches(head: Atom, fact: mangle.Fact) -> bool:
    return all(
        isinstance(term, Variable | Apply) or term == value for term, value in zip(head.args, fact.args, strict=True)
    )


def _sort_key(problem: Diagnostic) -> tuple[str, int, int, str]:
    return problem.file, problem.line or 0, problem.column or 0, problem.message


def _pack_facts(pack: Pack) -> Iterator[mangle.Fact]:
    for action in pack.actions.values():
        yield mangle.Fact("action", (action.name,))
        yield mangle.Fact("action_tier", (action.name, action.tier))
        for effect in action.effects:
            yield mangle.Fact("action_effect", (action.name, effect))
        required = action.input_schema.get("required", ())
        for param in action.input_schema.get("properties", {}):
            yield mangle.Fact("action_param", (action.name, param, mangle.TRUE if param in required else mangle.FALSE))
    for skill in pack.skills:
        yield mangle.Fact("skill", (skill,))
    for name, value in pack.params.items():
        yield mangle.Fact("setting", (name, value))


def _limits(pack: Pack) -> mangle.Limits:
    limits = pack.settings.limits
    return mangle.Limits(
        derived_facts=limits.max_base_facts, intervals=limits.max_intervals_per_atom, seconds=limits.max_load_ms / 1_000
    )


def _limit_diagnostic(error: mangle.LimitError) -> Diagnostic:
    problem = error.diagnostics[0]
    setting = next((name for unit, name in _SETTINGS.items() if error.unit.startswith(unit)), None)
    fix = "make the recursion of the rules finite" + (f", or raise limits.{setting} in pack.toml" if setting else "")
    return replace(problem, message=f"the pack's rules cannot be evaluated: {problem.message}", fix=fix)


_SETTINGS: Final = {  # by the unit of an exceeded limit, the setting of the pack
    "derived facts": "max_base_facts",
    "seconds": "max_load_ms",
    "intervals": "max_intervals_per_atom",
}
