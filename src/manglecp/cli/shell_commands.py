"""What can be typed in the shell, one method for each: it asks the server, and gives lines to print.

The shell remembers two things: the last evaluation, which tools, reasons and invocations are about, and the last
outcome, whose suggestions can be followed. The facts are those of the client's working state: deltas change them, and
so may whoever types.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from manglecp.base.text import escape_invisible
from manglecp.cli.calling import arguments, showing
from manglecp.cli.intent_request import given_facts, value_of
from manglecp.cli.intent_text import result_lines, tool_lines
from manglecp.cli.invocation_text import answer_lines, assignment
from manglecp.cli.looping import Beside
from manglecp.cli.outputs import Progress, count
from manglecp.cli.servers import Person
from manglecp.cli.shown_tools import ShownTool
from manglecp.client import Client, Evaluation, Outcome, Question
from manglecp.mangle import instant_text
from manglecp.wire import (
    coverage_lines,
    derivation_lines,
    fact_text,
    parse_fact_argument,
    why_not_lines,
)
from manglecp.wire.messages import UNSET

__all__ = ["COMMANDS", "Leave", "Mistake", "Shell"]

T = TypeVar("T")
COMMANDS: Final = {
    "intents": ("", "what can be asked for"),
    "predicates": ("", "which facts the server takes"),
    "intent": ("NAME [KEY=VALUE]...", "declare an intent, with the working facts"),
    "tools": ("", "the tools of the last intent again"),
    "show": ("TOOL", "all that is told of a tool"),
    "why": ("[not] TOOL", "why a tool is there, or what blocks it"),
    "coverage": ("", "what became of the rules"),
    "invoke": ("TOOL [KEY=VALUE]...", "invoke a tool"),
    "next": ("", "what to ask for next"),
    "follow": ("[NUMBER | NAME]", "declare a suggested intent, with the facts to go on with"),
    "facts": ("", "the working facts"),
    "add": ("FACT", 'state a fact, such as p("a", 1)@[now]'),
    "load": ("FILE", "state the facts of a file: .mg, a JSON array, or a recorded request"),
    "drop": ("NUMBER | PREDICATE | FACT", "take facts back; _ stands for any argument"),
    "clear": ("", "take all facts back"),
    "server": ("", "who is asked, and as whom"),
    "help": ("[COMMAND]", "this"),
    "quit": ("", "leave"),
}
_OTHERWISE: Final = {"call": "invoke", "exit": "quit", "?": "help"}


class Mistake(Exception):
    """What was typed makes no sense here."""


class Leave(Exception):
    """Enough."""


class Shell:
    """``at`` is a fixed evaluation time, or None for the server's clock; ``clock`` is what ``now`` in facts means."""

    def __init__(
        self,
        client: Client,
        beside: Beside[Question],
        person: Person,
        answering: Callable[[Question], bool],
        *,
        clock: Callable[[], int],
        timed: bool = False,
        bold: Callable[[str], str] = str,
    ) -> None:
        self.client = client
        self.evaluation: Evaluation | None = None
        self.outcome: Outcome | None = None
        self._beside = beside
        self._person = person
        self._answering = answering
        self._clock = clock
        self._timed = timed
        self._bold = bold

    def run(self, line: str) -> Iterator[str]:
        """The lines that answer a line. A :class:`Mistake`, or whatever the client raises, says what is wrong."""
        word, _, rest = line.strip().partition(" ")
        if not word or word.startswith("#"):
            return iter(())
        name = _OTHERWISE.get(word, word)
        if name not in COMMANDS:
            raise Mistake(f"there is no command {word}; `help` lists them")
        takes: bool = bool(COMMANDS[name][0])
        if rest.strip() and not takes:
            raise Mistake(f"{name} takes nothing")
        method: Callable[[str], Iterable[str]] = getattr(self, f"_{name}")
        return iter(method(rest.strip()))

    # --- what there is ---------------------------------------------------------------------------------------------

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
            said = "" if one.description is UNSET else f": {one.description}"
            yield escape_invisible(f"{one.predicate}({', '.join(names)}){timed}{said}")

    def _server(self, _: str) -> Iterator[str]:
        manifest, known = self.client.manifest, self.client.identity
        yield escape_invisible(
            f"{manifest.server_name} {manifest.server_version}, {manifest.status}: {manifest.domain.description}"
        )
        if known is not None:
            permissions = f", with {', '.join(known.permissions)}" if known.permissions else ""
            yield escape_invisible(f"you are {known.identity} ({known.trust_level}){permissions}")

    def _help(self, name: str) -> Iterator[str]:
        name = _OTHERWISE.get(name, name)
        if name and name not in COMMANDS:
            raise Mistake(f"there is no command {name}; `help` lists them")
        usages = {word: f"{word} {takes}".rstrip() for word, (takes, _) in COMMANDS.items()}
        width = max(map(len, usages.values()))
        for word, usage in usages.items():
            if name in ("", word):
                yield f"{usage:<{width}}  {COMMANDS[word][1]}"

    def _quit(self, _: str) -> Iterator[str]:
        raise Leave

    # --- intents ---------------------------------------------------------------------------------------------------

    def _intent(self, rest: str) -> Iterator[str]:
        name, params = _words(rest, "an intent")
        yield from self._unannounced(name)
        given = {key: value_of(text) for key, text in params.items()}
        self._take(self._wait(self.client.evaluate(name, given, eval_time=self._at())))
        yield from self._tools("")

    def _unannounced(self, name: str) -> Iterator[str]:
        announced = [intent.name for intent in self.client.manifest.intents]
        if announced and name not in announced:
            yield escape_invisible(f"(the server announces no intent {name}, only {', '.join(announced)})")

    def _tools(self, _: str) -> Iterator[str]:
        return result_lines(self._evaluated().result, bold=self._bold)

    def _show(self, name: str) -> Iterator[str]:
        tool = self._wait(self.client.upgrade(self._tool(name)))
        return tool_lines(ShownTool.of_message(tool.definition), bold=self._bold)

    def _why(self, rest: str) -> Iterator[str]:
        first, _, name = rest.partition(" ")
        if first == "not" and name.strip():
            hints = self._again(why_not=(name.strip(),)).result.proof_hints
            blocked = () if hints is UNSET or hints.why_not is UNSET else hints.why_not
            lines = [line for one in blocked for line in why_not_lines(one)]
        else:
            tool = self._tool(rest)
            hints = self._again(include_proof_hints=True).result.proof_hints
            found = () if hints is UNSET else hints.derivations
            lines = [line for one in found if one.macro_id == tool for line in derivation_lines(rest, one)]
        if not lines:
            raise Mistake("the server does not say")
        return map(escape_invisible, lines)

    def _coverage(self, _: str) -> Iterator[str]:
        told = self._again(rule_coverage=True).result.diagnostics
        if told is UNSET or told.rule_coverage is UNSET:
            raise Mistake("the server does not say")
        return map(escape_invisible, coverage_lines(told.rule_coverage))

    def _again(self, **options: Any) -> Evaluation:
        """The last question, exactly as it was asked, with other options."""
        asked = self._evaluated().asked
        question = self.client.evaluate(
            asked.intent,
            asked.params,
            asked.facts,
            eval_time=asked.eval_time,
            options=replace(asked.options, **options),
            from_state="none",
        )
        return self._wait(question)

    # --- invocations -----------------------------------------------------------------------------------------------

    def _invoke(self, rest: str) -> Iterator[str]:
        name, given = _words(rest, "a tool")
        macro_id = self._tool(name)
        with ExitStack() as line:
            progress = line.enter_context(Progress("running"))

            def answer(question: Question) -> bool:
                line.close()  # a question is not written over
                return self._answering(question)

            async def invoked() -> Outcome:
                tool = await self.client.upgrade(macro_id)
                return await self.client.invoke(
                    tool,
                    arguments(given, tool.definition),
                    on_progress=showing(progress),
                    on_confirm=self._person.on_confirm(),
                )

            self.outcome = self._beside.wait(invoked(), answer)
        return answer_lines(self.outcome.answer, bold=self._bold)

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
        self._take(self._wait(self.client.follow(outcome, place, eval_time=self._at())))
        return self._tools("")

    # --- facts -----------------------------------------------------------------------------------------------------

    def _facts(self, _: str) -> Iterator[str]:
        return (
            escape_invisible(f"{number}  {fact_text(fact)}") for number, fact in enumerate(self.client.state.facts, 1)
        )

    def _add(self, text: str) -> Iterator[str]:
        if not text:
            raise Mistake("a fact is missing: `add FACT`, and `predicates` lists what can be said")
        self.client.state.add(parse_fact_argument("fact", text, self._clock()))
        return iter(())

    def _load(self, file: str) -> Iterator[str]:
        if not file:
            raise Mistake("a file is missing: `load FILE`")
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
        gone = self.client.state.retract(wanted)
        if not gone:
            raise Mistake("there is no such fact; `facts` lists them")
        return (escape_invisible(f"- {fact_text(fact)}") for fact in gone)

    def _clear(self, _: str) -> Iterator[str]:
        self.client.state.clear()
        return iter(())

    # --- small things ----------------------------------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with Progress("asking"):
            return self._beside.wait(work)

    def _at(self) -> str | None:
        return instant_text(self._clock()) if self._timed else None

    def _take(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    def _evaluated(self) -> Evaluation:
        if self.evaluation is None:
            raise Mistake("declare an intent first: `intent NAME`, and `intents` lists them")
        return self.evaluation

    def _ended(self) -> Outcome:
        if self.outcome is None:
            raise Mistake("invoke a tool first: `invoke TOOL`, and `tools` lists them")
        return self.outcome

    def _tool(self, name: str) -> str:
        """The id of a tool of the last intent."""
        for tool in self._evaluated():
            if tool.name == name:
                return tool.macro_id
        raise Mistake(
            f"the last intent brought no tool {name}; `why not {name}` asks why"
            if name
            else "a tool is missing; `tools` lists them"
        )


def _words(rest: str, what: str) -> tuple[str, Mapping[str, str]]:
    """A name and ``KEY=VALUE``, quoted as in a shell."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise Mistake(str(error).lower()) from None
    if not words:
        raise Mistake(f"{what} is missing; `help` shows how it is said")
    given: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise Mistake(f"{word!r} is not KEY=VALUE")
        given[name] = value
    return words[0], given
