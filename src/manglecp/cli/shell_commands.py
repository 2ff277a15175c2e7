"""The commands of the shell. Each is a method that sends a request and returns the lines to print."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Self, TypeAlias, TypeVar

from msgspec.structs import replace

from manglecp.base.background_loop import background_loop
from manglecp.base.text import escape_invisible
from manglecp.cli.intent_request import given_facts, value_of
from manglecp.cli.invocation import arguments, progress_callback
from manglecp.cli.output import ProgressLine, count
from manglecp.cli.servers import Approver
from manglecp.cli.tool_text import answer_lines, argument_schemas, assignment, result_lines, tool_lines
from manglecp.client import Client, EvaluationResult, InvocationResult
from manglecp.mangle import instant_text
from manglecp.wire import coverage_lines, derivation_lines, fact_text, parse_fact_argument, why_not_lines
from manglecp.wire.messages import UNSET

T = TypeVar("T")
_Pending: TypeAlias = tuple[str, "asyncio.Future[bool | None]"]


class LoopThread:
    """An event loop in a thread, so that the main thread can read lines and receive Ctrl-C.

    A context manager: ``stack`` is closed on the loop at the end. :meth:`wait` blocks the main thread, and handles the
    approval requests of the loop meanwhile.
    """

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self._end = ExitStack()
        self._events: SimpleQueue[_Pending | None] = SimpleQueue()

    def __enter__(self) -> Self:
        self._loop = self._end.enter_context(background_loop("manglecp-shell"))
        return self

    def __exit__(self, *_: object) -> None:
        with self._end:
            self.wait(self.stack.aclose())

    async def request_approval(self, text: str) -> bool | None:
        """Pass the text of an approval request to the main thread, and return its decision. Called on the loop."""
        decision: asyncio.Future[bool | None] = self._loop.create_future()
        self._events.put((text, decision))
        return await decision

    def wait(self, work: Coroutine[Any, Any, T], approve: Callable[[str], bool | None] = lambda _: None) -> T:
        """Return the result of ``work``; an exception in the main thread cancels it."""
        events: SimpleQueue[_Pending | None] = SimpleQueue()
        self._events = events
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                text, decision = event
                self._loop.call_soon_threadsafe(_settle, decision, approve(text))
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _settle(decision: asyncio.Future[bool | None], approved: bool | None) -> None:
    if not decision.done():
        decision.set_result(approved)


COMMANDS: Final = {
    "intents": ("", "list the intents of the server"),
    "predicates": ("", "list the predicates that clients may assert"),
    "intent": ("NAME [KEY=VALUE]...", "evaluate an intent with the working facts"),
    "tools": ("", "print the tools of the last intent"),
    "show": ("TOOL", "describe a tool in full"),
    "why": ("[not] TOOL", "explain why a tool is offered, or what blocks it"),
    "coverage": ("", "print for each rule whether it fired"),
    "invoke": ("TOOL [KEY=VALUE]...", "invoke a tool"),
    "next": ("", "list the intents that the last result suggests"),
    "follow": ("[NUMBER | NAME]", "evaluate a suggested intent with the continuation facts"),
    "facts": ("", "list the working facts"),
    "add": ("FACT", 'add a fact, such as p("a", 1)@[now]'),
    "load": ("FILE", "add the facts of a file: .mg, a JSON array, or a recorded request"),
    "drop": ("NUMBER | PREDICATE | FACT", "remove facts; _ matches any argument"),
    "clear": ("", "remove all facts"),
    "server": ("", "print the server and your identity"),
    "help": ("[COMMAND]", "print this list"),
    "quit": ("", "exit"),
}
_ALIASES: Final = {"call": "invoke", "exit": "quit", "?": "help"}


class CommandError(Exception):
    """A line that is not a valid command."""


class Quit(Exception):
    """The user exits the shell."""


class Shell:
    """The last evaluation, the last outcome, and the client's working facts.

    ``clock`` is ``now`` in facts. With ``timed`` it is also the evaluation time; otherwise that is the server's clock.
    """

    def __init__(
        self,
        client: Client,
        loop: LoopThread,
        approver: Approver,
        approve: Callable[[str], bool | None],
        *,
        clock: Callable[[], int],
        timed: bool = False,
        bold: Callable[[str], str] = str,
    ) -> None:
        self.client = client
        self.evaluation: EvaluationResult | None = None
        self.outcome: InvocationResult | None = None
        self.approval_options: str | None = None
        """The options of ``manglecp approvals`` for the server; None if no other process can approve."""
        self._loop = loop
        self._approver = approver
        self._approve = approve
        self._clock = clock
        self._timed = timed
        self._bold = bold

    def run(self, line: str) -> Iterator[str]:
        """Run a line and return the lines to print. Raises :class:`CommandError`, or an exception of the client."""
        word, _, rest = line.strip().partition(" ")
        if not word or word.startswith("#"):
            return iter(())
        name = _ALIASES.get(word, word)
        if name not in COMMANDS:
            raise CommandError(f"there is no command {word}; `help` lists them")
        takes: bool = bool(COMMANDS[name][0])
        if rest.strip() and not takes:
            raise CommandError(f"{name} takes no arguments")
        method: Callable[[str], Iterable[str]] = getattr(self, f"_{name}")
        return iter(method(rest.strip()))

    def _intents(self, _: str) -> Iterator[str]:
        for intent in self.client.manifest.intents:
            needs = () if intent.required_facts is UNSET else intent.required_facts
            yield escape_invisible(
                f"{intent.name}: {intent.description}" + (f" (needs {', '.join(needs)})" if needs else "")
            )

    def _predicates(self, _: str) -> Iterator[str]:
        for one in self.client.manifest.facts_profile.predicates:
            names = [f"_{n}" for n in range(one.arity)] if one.arg_names is UNSET else one.arg_names
            timed = "@[…]" if one.temporal else ""
            description = "" if one.description is UNSET else f": {one.description}"
            yield escape_invisible(f"{one.predicate}({', '.join(names)}){timed}{description}")

    def _server(self, _: str) -> Iterator[str]:
        manifest, identity = self.client.manifest, self.client.identity
        yield escape_invisible(
            f"{manifest.server_name} {manifest.server_version}, {manifest.status}: {manifest.domain.description}"
        )
        if identity is not None:
            permissions = f", with {', '.join(identity.permissions)}" if identity.permissions else ""
            yield escape_invisible(f"you are {identity.identity} ({identity.trust_level}){permissions}")

    def _help(self, name: str) -> Iterator[str]:
        name = _ALIASES.get(name, name)
        if name and name not in COMMANDS:
            raise CommandError(f"there is no command {name}; `help` lists them")
        usages = {word: f"{word} {takes}".rstrip() for word, (takes, _) in COMMANDS.items()}
        width = max(map(len, usages.values()))
        for word, usage in usages.items():
            if name in ("", word):
                yield f"{usage:<{width}}  {COMMANDS[word][1]}"

    def _quit(self, _: str) -> Iterator[str]:
        raise Quit

    def _intent(self, rest: str) -> Iterator[str]:
        name, params = _parse_words(rest, "an intent")
        yield from self._unannounced(name)
        given = {key: value_of(text) for key, text in params.items()}
        self.evaluation = self._wait(self.client.evaluate(name, given, eval_time=self._at()))
        yield from self._tools("")

    def _unannounced(self, name: str) -> Iterator[str]:
        announced = [intent.name for intent in self.client.manifest.intents]
        if announced and name not in announced:
            yield escape_invisible(f"(the server has no intent {name}, only {', '.join(announced)})")

    def _tools(self, _: str) -> Iterator[str]:
        return result_lines(self._evaluated().result, bold=self._bold)

    def _show(self, name: str) -> Iterator[str]:
        tool = self._wait(self.client.upgrade(self._tool(name)))
        return tool_lines(tool.definition, bold=self._bold)

    def _why(self, rest: str) -> Iterator[str]:
        first, _, name = rest.partition(" ")
        if first == "not" and name.strip():
            hints = self._repeat(why_not=(name.strip(),)).result.proof_hints
            blocked = () if hints is UNSET or hints.why_not is UNSET else hints.why_not
            lines = [line for one in blocked for line in why_not_lines(one)]
        else:
            tool = self._tool(rest)
            hints = self._repeat(include_proof_hints=True).result.proof_hints
            found = () if hints is UNSET else hints.derivations
            lines = [line for one in found if one.macro_id == tool for line in derivation_lines(rest, one)]
        if not lines:
            raise CommandError("the server does not disclose it")
        return map(escape_invisible, lines)

    def _coverage(self, _: str) -> Iterator[str]:
        diagnostics = self._repeat(rule_coverage=True).result.diagnostics
        if diagnostics is UNSET or diagnostics.rule_coverage is UNSET:
            raise CommandError("the server does not disclose it")
        return map(escape_invisible, coverage_lines(diagnostics.rule_coverage))

    def _repeat(self, **options: Any) -> EvaluationResult:
        """Repeat the last evaluation with other options."""
        last = self._evaluated().request
        evaluation = self.client.evaluate(
            last.intent.name,
            last.intent.params,
            last.facts,
            eval_time=last.eval_time,
            options=replace(last.options, **options),
            from_state="none",
        )
        return self._wait(evaluation)

    def _invoke(self, rest: str) -> Iterator[str]:
        name, given = _parse_words(rest, "a tool")
        macro_id = self._tool(name)
        with ExitStack() as line:
            progress = line.enter_context(ProgressLine("running"))

            def approve(text: str) -> bool | None:
                line.close()  # the progress line would overwrite a prompt
                return self._approve(text)

            async def invoked() -> InvocationResult:
                tool = await self.client.upgrade(macro_id)
                return await self.client.invoke(
                    tool,
                    arguments(given, tool.definition),
                    on_progress=progress_callback(progress),
                    on_confirm=self._approver.on_confirm,
                )

            self.outcome = self._loop.wait(invoked(), approve)
        return answer_lines(self.outcome.response, bold=self._bold)

    def _next(self, _: str) -> Iterator[str]:
        for number, one in enumerate(self._ended().suggestions, 1):
            params = {} if one.params is UNSET else one.params
            given = "".join(f" {assignment(name, value)}" for name, value in params.items())
            why = "" if one.description is UNSET else f": {one.description}"
            yield escape_invisible(f"{number}  {one.name}{given}{why}")
        yield from (escape_invisible(f"   with {fact_text(fact)}") for fact in self._ended().continuation_facts)

    def _follow(self, which: str) -> Iterator[str]:
        outcome = self._ended()
        place: int | str = int(which or 1) - 1 if which.isdecimal() or not which else which
        self.evaluation = self._wait(self.client.follow(outcome, place, eval_time=self._at()))
        return self._tools("")

    def _facts(self, _: str) -> Iterator[str]:
        return (
            escape_invisible(f"{number}  {fact_text(fact)}") for number, fact in enumerate(self.client.state.facts, 1)
        )

    def _add(self, text: str) -> Iterator[str]:
        if not text:
            raise CommandError("a fact is missing: `add FACT`, and `predicates` lists the predicates")
        self.client.state.add(parse_fact_argument("fact", text, self._clock()))
        return iter(())

    def _load(self, file: str) -> Iterator[str]:
        if not file:
            raise CommandError("a file is missing: `load FILE`")
        _, facts = given_facts((), (file,), instant_text(self._clock()))
        self.client.state.add(facts)
        yield count(len(facts), "fact")

    def _drop(self, text: str) -> Iterator[str]:
        facts = self.client.state.facts
        if text.isdecimal():
            wanted: list[Any] = list(facts[int(text) - 1 : int(text)]) if int(text) else []
        elif text.isidentifier():
            wanted = [fact for fact in facts if fact["pred"] == text]
        else:
            wanted = parse_fact_argument("fact", text, self._clock(), wildcards=True) if text else []
        removed = self.client.state.retract(wanted)
        if not removed:
            raise CommandError("there is no such fact; `facts` lists them")
        return (escape_invisible(f"- {fact_text(fact)}") for fact in removed)

    def _clear(self, _: str) -> Iterator[str]:
        self.client.state.clear()
        return iter(())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with ProgressLine("waiting for the server"):
            return self._loop.wait(work)

    def _at(self) -> str | None:
        return instant_text(self._clock()) if self._timed else None

    def _evaluated(self) -> EvaluationResult:
        if self.evaluation is None:
            raise CommandError("evaluate an intent first: `intent NAME`, and `intents` lists them")
        return self.evaluation

    def _ended(self) -> InvocationResult:
        if self.outcome is None:
            raise CommandError("invoke a tool first: `invoke TOOL`, and `tools` lists them")
        return self.outcome

    def _tool(self, name: str) -> str:
        for tool in self._evaluated():
            if tool.name == name:
                return tool.macro_id
        raise CommandError(
            f"the last intent has no tool {name}; `why not {name}` explains why"
            if name
            else "a tool is missing; `tools` lists them"
        )


def _parse_words(rest: str, expected: str) -> tuple[str, Mapping[str, str]]:
    """Split a name and ``KEY=VALUE`` pairs, quoted as in a shell."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise CommandError(str(error).lower()) from None
    if not words:
        raise CommandError(f"{expected} is missing; `help` shows the syntax")
    given: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise CommandError(f"{word!r} is not KEY=VALUE")
        given[name] = value
    return words[0], given


def candidates(shell: Shell, before: str, word: str) -> list[str]:
    """Return the completions of ``word`` after ``before``, without a request."""
    words = before.split()
    if not words:
        return _starting(word, (f"{name} " for name in COMMANDS))
    return _starting(word, _candidates(shell, words[0], words[1:], word))


def _candidates(shell: Shell, command: str, given: list[str], word: str) -> Iterable[str]:
    manifest = shell.client.manifest
    tools = {} if shell.evaluation is None else {tool.name: tool.definition for tool in shell.evaluation}
    if command == "help":
        return COMMANDS
    if command == "intent" and not given:
        return (f"{intent.name} " for intent in manifest.intents)
    if command in ("invoke", "call", "show", "why"):
        if not given:
            return [*(f"{name} " for name in tools), *(["not "] if command == "why" else [])]
        if command in ("invoke", "call") and given[0] in tools:
            return (f"{name}=" for name in argument_schemas(tools[given[0]]))
        return ()
    if command == "follow" and not given:
        return () if shell.outcome is None else (one.name for one in shell.outcome.suggestions)
    if command == "add" and not given:
        return (f"{one.predicate}(" for one in manifest.facts_profile.predicates)
    if command == "drop" and not given:
        return sorted({str(fact["pred"]) for fact in shell.client.state.facts})
    if command == "load" and not given:
        return _files(word)
    return ()


def _files(word: str) -> Iterator[str]:
    folder = Path(word).parent if word and not word.endswith("/") else Path(word or ".")
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                yield f"{path}/"
            elif path.suffix in (".mg", ".json"):
                yield str(path)


def _starting(word: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(word)]
