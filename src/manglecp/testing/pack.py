"""A pack under test, loaded once; variants of it share the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace as replace_parts

from manglecp.intent import ANONYMOUS, EXPLAIN_POLICY, Domain, Identity, request_message, respond
from manglecp.invoke import PackOptions, load_domain
from manglecp.mangle import decode, instant_text
from manglecp.mangle.syntax import Apply, Variable
from manglecp.pack import SandboxPolicy
from manglecp.testing.coverage import PackCoverage, with_coverage
from manglecp.testing.results import Answer, Fact, Now, Refused, instant
from manglecp.testing.stage import Function, Stage, check_functions
from manglecp.toolhost import FactGenerators
from manglecp.wire import WireError, decode as decode_json, parse_fact_argument, parse_fact_objects
from manglecp.wire.messages import IntentRequest, IntentResult

OWNER: Final = Identity("local", frozenset({EXPLAIN_POLICY}), "local")
_MACRO: Final = ("macro", 2)


def load_pack(
    folder: Path | str,
    params: Mapping[str, str] | None = None,
    *,
    programs: Iterable[str] = (),
    cache: Path | bool = False,
    degrade: bool = False,
    coverage: PackCoverage | None = None,
) -> Pack:
    """Load the pack in a folder, with these params. Raises :class:`manglecp.pack.diagnostics.PackError`.

    ``programs`` are those that its hosts may start; ``cache`` is the folder of its fact generators, by default none;
    ``degrade`` accepts a machine that cannot fully sandbox the pack's Python files; ``coverage`` counts the rules that
    fire. Close the pack, or use it in a ``with`` block.
    """
    sandbox = SandboxPolicy(degrade=degrade)
    options = PackOptions(folder, params or {}, programs=tuple(programs), sandbox=sandbox, cache=cache)
    hosts = ExitStack()
    try:
        domain, generated = load_domain(options, hosts)
    except BaseException:
        hosts.close()
        raise
    if coverage is not None:
        domain = with_coverage(domain, coverage)
    return Pack(domain, options, hosts=hosts, source=None if generated is None else GeneratedFacts(generated, domain))


@dataclass
class GeneratedFacts:
    """The fact generators of a pack, and the domain with their newest facts."""

    generators: FactGenerators
    domain: Domain

    def update(self) -> Domain:
        """Run the generators again. Raises :class:`manglecp.toolhost.passes.PassError`."""
        for name in self.generators.names:
            changes = self.generators.run_pass(name)
            self.domain = self.domain.changed(changes.added, changes.removed, changes.version)
            self.generators.commit(changes)
        return self.domain


@dataclass(frozen=True)
class Pack(AbstractContextManager["Pack"]):
    """A loaded pack. The caller is ``local``, with full disclosure, unless :meth:`asking` sets another.

    ``hosts`` is closed with the pack; variants share it, except those of :meth:`fresh`.
    """

    domain: Domain = field(repr=False)
    options: PackOptions
    identity: Identity = OWNER
    functions: Mapping[str, Function] = field(default_factory=dict, repr=False)
    hosts: ExitStack = field(default_factory=ExitStack, repr=False)
    source: GeneratedFacts | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.domain.pack.name

    @property
    def folder(self) -> Path:
        return Path(self.domain.pack.folder)

    def asking(self, who: str, *permissions: str, trust: str = "user") -> Pack:
        """Return the pack with another caller, with exactly these permissions; ``anonymous`` has none."""
        if who == ANONYMOUS.name:
            if permissions:
                raise ValueError("an anonymous caller has no permissions")
            return replace(self, identity=ANONYMOUS)
        return replace(self, identity=Identity(who, frozenset(permissions), trust))

    def with_actions(self, **functions: Function) -> Pack:
        """Return the pack with these functions in place of the actions of their names.

        A function takes the parameters of the action by name, and returns its output. Rights, schemas and policy are
        those of the action.
        """
        return replace(self, functions={**self.functions, **check_functions(self.domain.pack, functions)})

    def with_workspace(self, *folders: Path | str, programs: Iterable[str] = ()) -> Pack:
        """Return the pack with folders that its actions may write; the first is their working directory."""
        return replace(self, options=replace(self.options, workspace=folders, programs=tuple(programs)))

    def look_again(self) -> Pack:
        """Return the pack with the facts that its generators find now."""
        return self if self.source is None else replace(self, domain=self.source.update())

    def fresh(self) -> Pack:
        """Return the pack with its own runs and hosts, to be closed on its own."""
        return replace(self, hosts=ExitStack())

    def intent(
        self,
        name: str,
        *,
        facts: Iterable[Fact] = (),
        params: Mapping[str, Any] | None = None,
        now: Now = None,
        level: str = "adaptive",
        budget: int | None = None,
        max_tools: int | None = None,
    ) -> Answer:
        """Evaluate an intent at a time, which ``now`` in facts also means. Raises :class:`manglecp.testing.Refused`.

        ``level``, ``budget`` and ``max_tools`` are options of the request.
        """
        __tracebackhide__ = True
        at = instant(now)
        limits = {"max_tokens_budget": budget, "max_tools_returned": max_tools}
        payload = {
            "intent": {"name": name, "params": None if params is None else dict(params)},
            "facts": [one for fact in facts for one in _fact_objects(fact, at)],
            "eval_time": instant_text(at),
            "constraints": {key: most for key, most in limits.items() if most is not None},
            "options": {"disclosure_preference": level},
        }
        try:
            request: IntentRequest = request_message("intent_request", payload, self.domain.pack, "test")
            answer = respond(self.domain, request, self.identity, clock=lambda: at)
        except WireError as error:
            raise Refused(error) from None
        return Answer(self, request, at, answer.response.payload, answer.definitions, answer.flaws)

    def facts(self, file: Path | str, now: Now = None) -> list[dict[str, Any]]:
        """Read facts from a file in the pack's folder: ``.mg``, a JSON array, or a recorded request."""
        path = self.folder / file
        if path.suffix == ".mg":
            return parse_fact_objects(decode(path.name, path.read_bytes()), instant(now))
        document: Any = decode_json(path.read_bytes())
        facts = document["payload"].get("facts", []) if isinstance(document, dict) else document
        return [dict(fact) for fact in facts]

    def explain(self, answer: Answer, **options: Any) -> IntentResult:
        """Repeat the evaluation with these options, and with the permission to see policy."""
        payload = answer.request.payload
        payload = replace_parts(payload, options=replace_parts(payload.options, **options))
        permissions = self.identity.permissions | {EXPLAIN_POLICY}
        reader = Identity(self.identity.name, permissions, self.identity.trust)
        request = IntentRequest(id=answer.request.id, payload=payload)
        return respond(self.domain, request, reader, clock=lambda: answer.now).response.payload

    @cached_property
    def tool_names(self) -> frozenset[str] | None:
        """The tools that the rules define; None if a rule takes their names from facts."""
        program = self.domain.program
        heads = [rule.head for rule in program.rules if rule.head.key == _MACRO]
        heads += [fact.clause.head for fact in program.facts if fact.key == _MACRO]
        if any(isinstance(head.args[0], Variable | Apply) for head in heads):
            return None
        return frozenset(str(head.args[0]) for head in heads)

    @cached_property
    def stage(self) -> Stage:
        stage = Stage(self.domain, self.functions, self.options)
        self.hosts.callback(stage.close)
        return stage

    def close(self) -> None:
        self.hosts.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _fact_objects(fact: Fact, now: int) -> list[Any]:
    return parse_fact_argument("facts", fact, now) if isinstance(fact, str) else [dict(fact)]
