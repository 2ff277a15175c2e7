"""A pack under test. Methods such as ``as_caller`` return variants of the pack, which share the loaded rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace as replace_members

from manglecp.base.background_loop import close_at_exit
from manglecp.intent import ANONYMOUS, EXPLAIN_POLICY, Decision, Domain, Identity, request_message, respond
from manglecp.invoke import PackOptions, decide_call, load_domain
from manglecp.mangle import decode, instant_text
from manglecp.mangle.syntax import Apply, Variable
from manglecp.pack import SandboxPolicy
from manglecp.testing.coverage import PackCoverage, with_coverage
from manglecp.testing.results import Answer, Fact, Now, Refused, instant
from manglecp.testing.sync_invoker import Function, SyncInvoker, check_functions
from manglecp.toolhost import FactGenerators
from manglecp.wire import WireError, decode as decode_json, parse_fact_argument, parse_fact_objects
from manglecp.wire.messages import DecideRequest, IntentRequest, IntentResult

__tracebackhide__ = True  # pytest shows a failure at the line of the test, not in this module
OWNER: Final = Identity("local", frozenset({EXPLAIN_POLICY}), "local")
_MACRO: Final = ("macro", 2)  # the predicate that defines tools: name and arity


def load_pack(
    folder: Path | str,
    params: Mapping[str, str] | None = None,
    *,
    programs: Iterable[str] = (),
    cache: Path | bool = False,
    degrade: bool = False,
    coverage: PackCoverage | None = None,
) -> Pack:
    """Load the pack in a folder. Raises :class:`manglecp.pack.diagnostics.PackError`.

    ``params`` are the parameters of the pack, ``programs`` the programs that its hosts may start. ``cache`` is the
    folder for generated facts; True: the folder of the user; False: none. ``degrade`` accepts a machine that cannot
    fully sandbox the pack's Python files. ``coverage`` records which rules fire. Close the pack, or use it in a
    ``with`` block; otherwise it is closed when Python exits.
    """
    sandbox = SandboxPolicy(degrade=degrade)
    options = PackOptions(folder, params or {}, programs=tuple(programs), sandbox=sandbox, cache=cache)
    host_stack = ExitStack()
    close_at_exit(host_stack)
    try:
        domain, generators = load_domain(options, host_stack)
    except BaseException:
        host_stack.close()
        raise
    if coverage is not None:
        domain = with_coverage(domain, coverage)
    source = None if generators is None else GeneratedFacts(generators, domain)
    return Pack(domain, options, hosts=host_stack, source=source)


@dataclass
class GeneratedFacts:
    """The fact generators of a pack, and the domain with the facts of their last run."""

    generators: FactGenerators
    domain: Domain

    def update(self) -> Domain:
        """Run the generators again, and return the new domain. Raises :class:`manglecp.toolhost.passes.PassError`."""
        for name in self.generators.names:
            result = self.generators.run_pass(name)
            self.domain = self.domain.with_facts(result.added, result.removed, result.version)
            self.generators.commit(result)
        return self.domain


@dataclass(frozen=True)
class Pack(AbstractContextManager["Pack"]):
    """A loaded pack. Its caller is ``local``, with the permission to see all policy, unless :meth:`as_caller` sets one.

    ``hosts`` closes the host processes with the pack; variants share it, except a :meth:`fresh` pack. ``functions``
    replace actions by name; ``source`` has the fact generators, if there are any.
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

    def as_caller(self, name: str, *permissions: str, trust: str = "user") -> Pack:
        """Return the pack with another caller: name, permissions and trust level. ``anonymous`` has no permissions."""
        if name == ANONYMOUS.name:
            if permissions:
                raise ValueError("an anonymous caller has no permissions")
            return replace(self, identity=ANONYMOUS)
        return replace(self, identity=Identity(name, frozenset(permissions), trust))

    def with_actions(self, **functions: Function) -> Pack:
        """Return the pack with these functions in place of the actions with the same names.

        A function takes the parameters of the action by name, and returns the output. Leases, schemas and policy of the
        action still apply.
        """
        return replace(self, functions={**self.functions, **check_functions(self.domain.pack, functions)})

    def with_workspace(self, *folders: Path | str, programs: Iterable[str] = ()) -> Pack:
        """Return the pack with folders that actions may write, and programs that they may start.

        The first folder is the working directory of actions.
        """
        return replace(self, options=replace(self.options, workspace=folders, programs=tuple(programs)))

    def refresh_facts(self) -> Pack:
        """Run the fact generators again, and return the pack with their facts.

        The new pack shares the store and the hosts of this pack. Invocations of this pack use the new facts as well.
        """
        if self.source is None:
            return self
        refreshed_pack = replace(self, domain=self.source.update())
        if "invoker" in vars(self):  # only if an invoker was created
            self.invoker.renew(refreshed_pack.domain)
            vars(refreshed_pack)["invoker"] = self.invoker
        return refreshed_pack

    def fresh(self) -> Pack:
        """Return the pack with a store and hosts of its own, to be closed separately."""
        fresh_pack = replace(self, hosts=ExitStack())
        close_at_exit(fresh_pack.hosts)
        return fresh_pack

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
        """Evaluate an intent. Raises :class:`manglecp.testing.Refused`.

        ``now`` is the evaluation time, and the value of ``now`` in the text of facts; ``level`` is the disclosure
        preference; ``budget`` limits the size of the tools, in tokens.
        """
        now_ns = instant(now)
        constraints = {"max_tokens_budget": budget, "max_tools_returned": max_tools}
        payload = {
            "intent": {"name": name, "params": None if params is None else dict(params)},
            "facts": [fact_object for fact in facts for fact_object in _fact_objects(fact, now_ns)],
            "eval_time": instant_text(now_ns),
            "constraints": {name: limit for name, limit in constraints.items() if limit is not None},
            "options": {"disclosure_preference": level},
        }
        try:
            request: IntentRequest = request_message("intent_request", payload, self.domain.pack, "test")
            answer = respond(self.domain, request, self.identity, clock=lambda: now_ns)
        except WireError as error:
            raise Refused(error) from None
        return Answer(self, request, now_ns, answer.response.payload, answer.definitions, answer.flaws)

    def decide(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        intent: str | None = None,
        facts: Iterable[Fact] = (),
        now: Now = None,
    ) -> Decision:
        """Decide about a call: ``verdict`` is ``allow``, ``ask`` or ``deny``. Raises :class:`manglecp.testing.Refused`.

        ``public_reasons`` are the reasons that the caller would receive, ``reasons`` the reasons for operators. With
        ``intent``, the tool has to be proven for that intent.
        """
        now_ns = instant(now)
        payload = {
            "tool": tool,
            "args": dict(args or {}),
            "intent": None if intent is None else {"name": intent},
            "facts": [fact_object for fact in facts for fact_object in _fact_objects(fact, now_ns)],
        }
        try:
            request: DecideRequest = request_message("x-decide_request", payload, self.domain.pack, "test")
            return decide_call(self.domain, request.payload, self.identity, now_ns)
        except WireError as error:
            raise Refused(error) from None

    def facts(self, file: Path | str, now: Now = None) -> list[dict[str, Any]]:
        """Read facts from a file in the pack's folder: Mangle (``.mg``), a JSON array, or a recorded intent request."""
        path = self.folder / file
        if path.suffix == ".mg":
            return parse_fact_objects(decode(path.name, path.read_bytes()), instant(now))
        document: Any = decode_json(path.read_bytes())
        facts = document["payload"].get("facts", []) if isinstance(document, dict) else document
        return [dict(fact) for fact in facts]

    def explain(self, answer: Answer, **options: Any) -> IntentResult:
        """Evaluate the intent of an answer again, with these request options and the permission to see policy."""
        payload = answer.request.payload
        payload = replace_members(payload, options=replace_members(payload.options, **options))
        permissions = self.identity.permissions | {EXPLAIN_POLICY}
        identity = Identity(self.identity.name, permissions, self.identity.trust)
        request = IntentRequest(id=answer.request.id, payload=payload)
        return respond(self.domain, request, identity, clock=lambda: answer.now).response.payload

    @cached_property
    def tool_names(self) -> frozenset[str] | None:
        """The names of the tools that the program defines; None if a rule computes a tool name."""
        program = self.domain.program
        heads = [rule.head for rule in program.rules if rule.head.key == _MACRO]
        if any(isinstance(head.args[0], Variable | Apply) for head in heads):
            return None
        return frozenset(str(args[0]) for args in (*self.domain.base.rows(_MACRO), *(head.args for head in heads)))

    @cached_property
    def invoker(self) -> SyncInvoker:
        invoker = SyncInvoker(self.domain, self.functions, self.options)
        self.hosts.callback(invoker.close)
        return invoker

    def close(self) -> None:
        self.hosts.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _fact_objects(fact: Fact, now_ns: int) -> list[Any]:
    return parse_fact_argument("facts", fact, now_ns) if isinstance(fact, str) else [dict(fact)]
