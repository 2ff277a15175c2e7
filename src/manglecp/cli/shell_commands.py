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
from manglecp.cli import tool_text
from manglecp.cli.intent_request import decode_value, read_client_facts
from manglecp.cli.invocation import decode_arguments, progress_callback
from manglecp.cli.output import ProgressLine, count
from manglecp.cli.servers import Approver
from manglecp.client import Client, EvaluationResult, InvocationResult
from manglecp.mangle import instant_text
from manglecp.wire import coverage_lines, derivation_lines, fact_text, parse_fact_argument
from manglecp.wire.messages import UNSET

T = TypeVar("T")
_PendingApproval: TypeAlias = tuple[str, "asyncio.Future[bool | None]"]  # the text of a request, and its decision


class LoopThread:
    """An event loop in a thread, so that the main thread can read lines and receive Ctrl-C.

    A context manager: ``stack`` is closed on the loop at the end.
    """

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self._thread_stack = ExitStack()  # ends the loop and its thread
        self._pending: SimpleQueue[_PendingApproval | None] = SimpleQueue()

    def __enter__(self) -> Self:
        self._loop = self._thread_stack.enter_context(background_loop("manglecp-shell"))
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread_stack:
            self.wait(self.stack.aclose())

    async def request_approval(self, text: str) -> bool | None:
        """Pass the text of an approval request to the main thread, and return its decision. Called on the loop."""
        decision: asyncio.Future[bool | None] = self._loop.create_future()
        self._pending.put((text, decision))
        return await decision

    def wait(self, work: Coroutine[Any, Any, T], approve: Callable[[str], bool | None] = lambda _: None) -> T:
        """Block until ``work`` ends on the loop, and return its result; call ``approve`` for its approval requests.

        An exception in this thread, such as ``KeyboardInterrupt``, cancels the work.
        """
        pending: SimpleQueue[_PendingApproval | None] = SimpleQueue()  # without the requests of cancelled work
        self._pending = pending
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: pending.put(None))  # ends the loop below
        try:
            while (request := pending.get()) is not None:
                text, decision = request
                self._loop.call_soon_threadsafe(_settle, decision, approve(text))
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _settle(decision: asyncio.Future[bool | None], approved: bool | None) -> None:
    if not decision.done():
        decision.set_result(approved)


COMMANDS: Final = {  # the arguments in the help, and the description
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

    ``approve`` shows the text of an approval request in the main thread and returns the decision. ``clock`` is ``now``
    in facts and, with ``timed``, the evaluation time; without ``timed`` the server's clock is the evaluation time.
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
        if rest.strip() and not COMMANDS[name][0]:
            raise CommandError(f"{name} takes no arguments")
        method: Callable[[str], Iterable[str]] = getattr(self, f"_{name}")
        return tool_text.styled(method(rest.strip()), self._bold)

    def _intents(self, _: str) -> Iterator[str]:
        for intent in self.client.manifest.intents:
            needs = () if intent.required_facts is UNSET else intent.required_facts
            yield f"{intent.name}: {intent.description}" + (f" (needs {', '.join(needs)})" if needs else "")

    def _predicates(self, _: str) -> Iterator[str]:
        for declared in self.client.manifest.facts_profile.predicates:
            names = [f"_{n}" for n in range(declared.arity)] if declared.arg_names is UNSET else declared.arg_names
            interval = "@[…]" if declared.temporal else ""
            description = "" if declared.description is UNSET else f": {declared.description}"
            yield f"{declared.predicate}({', '.join(names)}){interval}{description}"

    def _server(self, _: str) -> Iterator[str]:
        manifest, identity = self.client.manifest, self.client.identity
        yield f"{manifest.server_name} {manifest.server_version}, {manifest.status}: {manifest.domain.description}"
        if identity is not None:
            permissions = f", with {', '.join(identity.permissions)}" if identity.permissions else ""
            yield f"you are {identity.identity} ({identity.trust_level}){permissions}"

    def _help(self, name: str) -> Iterator[str]:
        name = _ALIASES.get(name, name)
        if name and name not in COMMANDS:
            raise CommandError(f"there is no command {name}; `help` lists them")
        usages = {command: f"{command} {arguments}".rstrip() for command, (arguments, _) in COMMANDS.items()}
        width = max(map(len, usages.values()))
        for command, usage in usages.items():
            if name in ("", command):
                yield f"{usage:<{width}}  {COMMANDS[command][1]}"

    def _quit(self, _: str) -> Iterator[str]:
        raise Quit

    def _intent(self, rest: str) -> Iterator[str]:
        name, params = _parse_words(rest, "an intent")
        values = {key: decode_value(text) for key, text in params.items()}
        self.evaluation = self._wait(self.client.evaluate(name, values, eval_time=self._eval_time()))
        yield from self._tools("")

    def _tools(self, _: str) -> Iterator[str]:
        return tool_text.result_lines(self._last_evaluation().result)

    def _show(self, name: str) -> Iterator[str]:
        return tool_text.tool_lines(self._wait(self.client.upgrade(self._tool_id(name))).definition)

    def _why(self, rest: str) -> Iterable[str]:
        first, _, name = rest.partition(" ")
        if first == "not" and name.strip():
            hints = self._repeat(why_not=(name.strip(),)).result.proof_hints
            lines = list(tool_text.blocked_tool_lines(hints))[1:]  # without the empty line
        else:
            tool_id = self._tool_id(rest)
            hints = self._repeat(include_proof_hints=True).result.proof_hints
            derivations = () if hints is UNSET else hints.derivations
            lines = [line for d in derivations if d.macro_id == tool_id for line in derivation_lines(rest, d)]
        if not lines:
            raise CommandError("the server does not disclose it")
        return lines

    def _coverage(self, _: str) -> Iterable[str]:
        diagnostics = self._repeat(rule_coverage=True).result.diagnostics
        if diagnostics is UNSET or diagnostics.rule_coverage is UNSET:
            raise CommandError("the server does not disclose it")
        return coverage_lines(diagnostics.rule_coverage)

    def _repeat(self, **options: Any) -> EvaluationResult:
        """Repeat the last evaluation with other options."""
        last = self._last_evaluation().request
        evaluation = self.client.evaluate(
            last.intent.name,
            last.intent.params,
            last.facts,
            eval_time=last.eval_time,
            options=replace(last.options, **options),
            from_state="none",  # the facts of that request, not the current ones
        )
        return self._wait(evaluation)

    def _invoke(self, rest: str) -> Iterator[str]:
        name, texts = _parse_words(rest, "a tool")
        tool_id = self._tool_id(name)
        with ExitStack() as progress_stack:
            progress = progress_stack.enter_context(ProgressLine("running"))

            def approve(text: str) -> bool | None:
                progress_stack.close()  # the progress line would overwrite a prompt
                return self._approve(text)

            async def invoke() -> InvocationResult:
                tool = await self.client.upgrade(tool_id)
                return await self.client.invoke(
                    tool,
                    decode_arguments(texts, tool.definition),
                    on_progress=progress_callback(progress),
                    on_confirm=self._approver.on_confirm,
                )

            self.outcome = self._loop.wait(invoke(), approve)
        return tool_text.answer_lines(self.outcome.response)

    def _next(self, _: str) -> Iterator[str]:
        for number, intent in enumerate(self._last_outcome().suggestions, 1):
            yield f"{number}  {tool_text.suggestion_text(intent)}"
        yield from (f"   with {fact_text(fact)}" for fact in self._last_outcome().continuation_facts)

    def _follow(self, which: str) -> Iterator[str]:
        outcome = self._last_outcome()
        suggestion: int | str = int(which or 1) - 1 if which.isdecimal() or not which else which
        self.evaluation = self._wait(self.client.follow(outcome, suggestion, eval_time=self._eval_time()))
        return self._tools("")

    def _facts(self, _: str) -> Iterator[str]:
        return (f"{number}  {fact_text(fact)}" for number, fact in enumerate(self.client.state.facts, 1))

    def _add(self, text: str) -> Iterable[str]:
        if not text:
            raise CommandError("a fact is missing: `add FACT`, and `predicates` lists the predicates")
        self.client.state.add(parse_fact_argument("fact", text, self._clock()))
        return ()

    def _load(self, file: str) -> Iterator[str]:
        if not file:
            raise CommandError("a file is missing: `load FILE`")
        _, facts = read_client_facts((), (file,), instant_text(self._clock()))
        self.client.state.add(facts)
        yield count(len(facts), "fact")

    def _drop(self, text: str) -> Iterator[str]:
        facts = self.client.state.facts
        if text.isdecimal():
            patterns: list[Any] = list(facts[int(text) - 1 : int(text)]) if int(text) else []
        elif text.isidentifier():
            patterns = [fact for fact in facts if fact["pred"] == text]
        else:
            patterns = parse_fact_argument("fact", text, self._clock(), wildcards=True) if text else []
        removed = self.client.state.retract(patterns)
        if not removed:
            raise CommandError("there is no such fact; `facts` lists them")
        return (f"- {fact_text(fact)}" for fact in removed)

    def _clear(self, _: str) -> Iterable[str]:
        self.client.state.clear()
        return ()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with ProgressLine("waiting for the server"):
            return self._loop.wait(work)

    def _eval_time(self) -> str | None:
        return instant_text(self._clock()) if self._timed else None

    def _last_evaluation(self) -> EvaluationResult:
        if self.evaluation is None:
            raise CommandError("evaluate an intent first: `intent NAME`, and `intents` lists them")
        return self.evaluation

    def _last_outcome(self) -> InvocationResult:
        if self.outcome is None:
            raise CommandError("invoke a tool first: `invoke TOOL`, and `tools` lists them")
        return self.outcome

    def _tool_id(self, name: str) -> str:
        for tool in self._last_evaluation():
            if tool.name == name:
                return tool.macro_id
        missing = "a tool is missing; `tools` lists them"
        raise CommandError(f"the last intent has no tool {name}; `why not {name}` explains why" if name else missing)


def _parse_words(rest: str, expected: str) -> tuple[str, Mapping[str, str]]:
    """Split a name and ``KEY=VALUE`` pairs, quoted as in a shell; the error for no words names ``expected``."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise CommandError(str(error).lower()) from None
    if not words:
        raise CommandError(f"{expected} is missing; `help` shows the syntax")
    values: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise CommandError(f"{word!r} is not KEY=VALUE")
        values[key] = value
    return words[0], values


def candidates(shell: Shell, before: str, word: str) -> list[str]:
    """Return the completions of ``word``, the end of a line that begins with ``before``, without a request."""
    words = before.split()
    texts = _continuations(shell, words[0], words[1:], word) if words else (f"{name} " for name in COMMANDS)
    return [text for text in texts if text.startswith(word)]


def _continuations(shell: Shell, command: str, arguments: list[str], word: str) -> Iterable[str]:
    """Return what may follow the command and its arguments, also texts that do not begin with ``word``."""
    manifest = shell.client.manifest
    tools = {} if shell.evaluation is None else {tool.name: tool.definition for tool in shell.evaluation}
    if command == "help":
        return COMMANDS
    if arguments:
        if command in ("invoke", "call") and arguments[0] in tools:
            return (f"{name}=" for name in tool_text.argument_schemas(tools[arguments[0]]))
        return ()
    if command == "intent":
        return (f"{intent.name} " for intent in manifest.intents)
    if command in ("invoke", "call", "show", "why"):
        return [*(f"{name} " for name in tools), *(["not "] if command == "why" else [])]
    if command == "follow":
        return () if shell.outcome is None else (intent.name for intent in shell.outcome.suggestions)
    if command == "add":
        return (f"{declared.predicate}(" for declared in manifest.facts_profile.predicates)
    if command == "drop":
        return sorted({str(fact["pred"]) for fact in shell.client.state.facts})
    return _fact_files(word) if command == "load" else ()


def _fact_files(word: str) -> Iterator[str]:
    """Yield the folders and fact files of the folder that ``word`` names."""
    folder = Path(word).parent if word and not word.endswith("/") else Path(word or ".")
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                yield f"{path}/"
            elif path.suffix in (".mg", ".json"):
                yield str(path)
