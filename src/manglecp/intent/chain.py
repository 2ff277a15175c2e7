"""The chain of a macro-tool: its steps, the sources of their arguments, its result and its interface.

A chain depends on derived facts only. A tool with two values of a single-valued predicate has no chain: the rules do
not determine what it does.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias, cast

from manglecp.base.digest import digest
from manglecp.base.text import escape_invisible, has_invisible
from manglecp.intent.definition import AmbiguousFlaw, Argument, ChainStep, Flaw, SafetyData, Undo
from manglecp.intent.input_schema import ExposedParameter, input_schema, result_schema
from manglecp.intent.kernel import SINGLE_VALUED
from manglecp.mangle import NotPlain, Value, plain
from manglecp.pack import ActionDescription
from manglecp.wire.messages import SIDE_EFFECTS

LONGEST_NAME: Final = 64  # TOOL-03

_SCRIPTS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "HEBREW", "ARABIC")


def name_problem(name: str) -> str | None:
    """Return what is wrong with a tool's name, as the end of a sentence, or None."""
    if not name.strip():
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters, and the longest that clients show is {LONGEST_NAME}"
    if "\n" in name or "\t" in name or has_invisible(name):
        return f"has invisible characters: {escape_invisible(name)}".replace("\n", "\\n").replace("\t", "\\t")
    if unicodedata.normalize("NFKC", name) != name:
        return "has characters that look like others; write it in its normal form (NFKC)"
    scripts = sorted({script for letter in name if letter.isalpha() for script in _script(letter)})
    if len(scripts) > 1:
        return f"mixes the scripts {' and '.join(script.title() for script in scripts)}, whose letters look alike"
    return None


def _script(letter: str) -> tuple[str, ...]:
    if letter.isascii():
        return ("LATIN",)
    first = unicodedata.name(letter, "").partition(" ")[0]
    return (first,) if first in _SCRIPTS else ()


# The chain digest covers the tool's name, its chain, input schema and side effects (TOOL-02, OPEN-32), not score,
# validity, descriptions and context. The same proof gives the same digest in every process. Offers, approvals and runs
# compare the whole digest; the macro_id is only a name for it, is not a secret and does not authorise a call.
_ID_DIGITS: Final = 32


def macro_id(chain_digest: str) -> str:
    """Return the id of a macro-tool: ``m-`` and the first 32 hexadecimal digits of its chain digest."""
    return "m-" + chain_digest.removeprefix("sha256:")[:_ID_DIGITS]


def digest_chain(
    tool: str,
    steps: Sequence[ChainStep],
    *,
    ordered: bool,
    results: Sequence[tuple[str, int, str]],
    input_schema: Mapping[str, Any],
    side_effects: Sequence[str],
) -> str:
    """Return the SHA-256 over the canonical JSON of everything that determines execution."""
    content = {
        "tool": tool,
        "steps": [_step(step) for step in steps],
        "ordered": ordered,
        "results": [list(result) for result in results],
        "input_schema": input_schema,
        "side_effects": sorted(side_effects),
    }
    return digest(content)


def _step(step: ChainStep) -> dict[str, Any]:
    return {
        "number": step.number,
        "action": step.action,
        "arguments": _arguments(step.arguments),
        "after": sorted(step.after),
        "on_error": step.on_error,
        "undo": step.undo and {"action": step.undo.action, "arguments": _arguments(step.undo.arguments)},
        **({} if step.lasting else {"lasting": False}),
    }


def _arguments(arguments: Sequence[Argument]) -> dict[str, Any]:
    return {one.param: [one.source, one.value, one.step] for one in arguments}


def side_effects(effects: Iterable[str]) -> tuple[str, ...]:
    """Return the side effects as they are shown: sorted, without duplicates."""
    # Effects that the specification does not define begin with x- (TOOL-16); "none" stands alone (OPEN-25).
    named = {effect if effect in SIDE_EFFECTS or effect.startswith("x-") else f"x-{effect}" for effect in effects}
    return tuple(sorted(named - {"none"})) or ("none",)


def safety(
    effects: Iterable[str],
    chain: Sequence[ActionDescription],
    *,
    needs_confirmation: bool,
    reversible: bool = False,
    idempotent: bool = False,
    approver_roles: Iterable[str] = (),
    four_eyes: bool = False,
) -> SafetyData:
    """Combine what rules state with what the actions declare.

    A chain is reversible if all its actions are. It is not idempotent because its actions are: the first may revert
    what the second did. So only the action of a single step counts.
    """
    return SafetyData(
        requires_user_confirmation=needs_confirmation,
        side_effects=side_effects(effects),
        reversible=reversible or (bool(chain) and all(action.reversible for action in chain)),
        idempotent=idempotent or (len(chain) == 1 and chain[0].idempotent),
        approver_roles=tuple(sorted(approver_roles)),
        four_eyes=four_eyes,
    )


Row: TypeAlias = tuple[Value, ...]
Rows: TypeAlias = Mapping[str, Sequence[Row]]

PREDICATES: Final[Mapping[str, int]] = {
    "macro_step": 3,
    "arg_value": 4,
    "arg_from": 4,
    "arg_step": 5,
    "arg_kept": 5,
    "step_after": 3,
    "on_error": 3,
    "undo_step": 3,
    "undo_value": 4,
    "undo_in": 4,
    "undo_out": 4,
    "nothing_to_undo": 2,
    "macro_result": 4,
    "macro_param": 3,
    "optional_param": 2,
    "macro_output": 2,
    "macro_effect": 2,
}

_ON_ERROR: Final = ("stop", "continue", "undo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The part of a definition that determines execution."""

    digest: str
    steps: tuple[ChainStep, ...]
    ordered: bool
    results: tuple[tuple[str, int, str], ...]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    side_effects: tuple[str, ...]
    actions: tuple[ActionDescription, ...]


def chain(tool: str, rows: Rows, actions: Mapping[str, ActionDescription]) -> Chain:
    """Return the chain of a tool. Raises :class:`Flaw`."""
    for name, columns in SINGLE_VALUED.items():
        keys = [row[1:columns] for row in rows.get(name, ())]
        if len(set(keys)) < len(keys):
            key = next(key for key in keys if keys.count(key) > 1)
            shown = "".join(f", {value!r}" for value in key)
            message = f"{name}(Tool{shown}, …) has two values"
            raise AmbiguousFlaw(message, "let one of them hold only where the other does not")
    return _Builder(tool, rows, actions).build()


class _Builder:
    def __init__(self, tool: str, rows: Rows, actions: Mapping[str, ActionDescription]) -> None:
        self.tool = tool
        self.rows = rows
        self.actions = actions
        self.declared = {str(name): _plain(schema) for _, name, schema in rows["macro_param"]}
        self.exposed: list[ExposedParameter] = []

    def build(self) -> Chain:
        problem = name_problem(self.tool)
        if problem is not None:
            raise Flaw(f"the name of the tool {problem}")
        numbers = {int(cast(int, n)): str(action) for _, n, action in self.rows["macro_step"]}
        if not numbers:
            raise Flaw("it has no step", "write macro_step(Tool, 1, Action)")
        ordered = not self.rows["step_after"]
        bound = self._bound("arg_value", "arg_from", "arg_step", "arg_kept")
        undos = self._undos()
        steps = tuple(self._step(n, numbers, bound.get(n, {}), undos.get(n), ordered) for n in sorted(numbers))
        try:
            TopologicalSorter({step.number: step.after for step in steps}).prepare()
        except CycleError as error:
            raise Flaw(f"step {min(error.args[1])} waits for itself") from None
        schema = input_schema(self.exposed, self.declared, {str(name) for _, name in self.rows["optional_param"]})
        results = self._results(numbers)
        effects = side_effects(str(effect) for _, effect in self.rows["macro_effect"])
        output = next((result_schema(_plain(schema)) for _, schema in self.rows["macro_output"]), None)
        return Chain(
            digest=digest_chain(
                self.tool, steps, ordered=ordered, results=results, input_schema=schema, side_effects=effects
            ),
            steps=steps,
            ordered=ordered,
            results=results,
            input_schema=schema,
            output_schema=output,
            side_effects=effects,
            actions=tuple(self._action(step.action) for step in steps),
        )

    def _step(
        self, number: int, numbers: Mapping[int, str], bound: Mapping[str, Argument], undo: Undo | None, ordered: bool
    ) -> ChainStep:
        action = self._action(numbers[number])
        arguments = tuple(self._arguments(action, bound, f"step {number}"))
        sources = {one.step for one in arguments if one.step is not None}
        for source in sorted(sources):
            if source not in numbers or source == number or (ordered and source > number):
                raise Flaw(f"step {number} takes an argument from step {source}, which does not run before it")
        waits = {m for _, n, m in self.rows["step_after"] if n == number and m in numbers} | sources
        on_error = next((str(value) for _, n, value in self.rows["on_error"] if n == number), "stop")
        if on_error not in _ON_ERROR:
            raise Flaw(f"on_error of step {number} is {on_error!r}", f"write one of {', '.join(_ON_ERROR)}")
        return ChainStep(
            number=number,
            action=action.name,
            arguments=arguments,
            after=() if ordered else tuple(sorted(cast("set[int]", waits))),
            on_error=on_error,  # type: ignore[arg-type]  # one of them
            undo=undo,
            lasting=not any(n == number for _, n in self.rows["nothing_to_undo"]),
        )

    def _arguments(self, action: ActionDescription, bound: Mapping[str, Argument], where: str) -> Iterable[Argument]:
        """Yield arguments in the order of parameters. An unbound parameter is a call argument of its name."""
        schema = action.input_schema
        known: Mapping[str, Any] = schema.get("properties", {})
        unknown = [name for name in bound if name not in known]
        if unknown and schema.get("additionalProperties", True) is False:
            raise Flaw(f"{where} gives {unknown[0]!r}, which {action.name} does not take")
        for param in (*known, *unknown):
            one = bound.get(param)
            if one is None and param in action.previewed:
                one = Argument(param, "preview", param)
            if one is None:
                if self.declared and param not in self.declared and param not in schema.get("required", ()):
                    continue  # the tool declares its arguments, and this one is optional
                one = Argument(param, "call", param)
            if one.source == "call":
                self.exposed.append(ExposedParameter(one.value, param, action.name, schema))
            yield one

    def _bound(
        self, value: str, named: str, found: str | None = None, kept: str | None = None
    ) -> dict[int, dict[str, Argument]]:
        """Bind by step and parameter, in order of precedence: fixed value, call argument, step result, kept value."""
        bound: dict[int, dict[str, Argument]] = {}

        def bind(number: Value, argument: Argument) -> None:
            bound.setdefault(cast(int, number), {}).setdefault(argument.param, argument)

        for _, number, param, one in self.rows[value]:
            bind(number, Argument(str(param), "value", _plain(one)))
        for _, number, param, name in self.rows[named]:
            bind(number, Argument(str(param), "call", str(name)))
        for _, number, param, source, pointer in self.rows[found] if found else ():
            bind(number, Argument(str(param), "step", _pointer(pointer), cast(int, source)))
        for _, number, param, run, name in self.rows[kept] if kept else ():
            bind(number, Argument(str(param), "kept", {"run": str(run), "name": str(name)}))
        return bound

    def _undos(self) -> dict[int, Undo]:
        bound = self._bound("undo_value", "undo_in")
        for _, number, param, pointer in self.rows["undo_out"]:
            argument = Argument(str(param), "step", _pointer(pointer), cast(int, number))
            bound.setdefault(cast(int, number), {}).setdefault(str(param), argument)
        undos: dict[int, Undo] = {}
        for _, value, name in self.rows["undo_step"]:
            number = cast(int, value)
            action = self._action(str(name))
            given = bound.get(number, {})
            missing = [param for param in action.input_schema.get("required", ()) if param not in given]
            if missing:
                raise Flaw(f"undoing step {number} with {action.name} lacks {missing[0]!r}")
            undos[number] = Undo(action.name, tuple(given[param] for param in sorted(given)))
        return undos

    def _action(self, name: str) -> ActionDescription:
        found = self.actions.get(name)
        if found is None:
            raise Flaw(f"there is no action {name!r}")
        return found

    def _results(self, numbers: Mapping[int, str]) -> tuple[tuple[str, int, str], ...]:
        results = []
        for _, key, number, pointer in self.rows["macro_result"]:
            if number not in numbers:
                raise Flaw(f"{key!r} of the result comes from step {number}, which is not in the chain")
            results.append((str(key), cast(int, number), _pointer(pointer)))
        return tuple(results)


def _plain(value: Value) -> Any:
    try:
        return plain(value)
    except NotPlain as error:
        raise Flaw(f"a value cannot be written as JSON: {error}") from None


def _pointer(value: Value) -> str:
    text = str(value)
    if text and not text.startswith("/"):
        raise Flaw(f"{text!r} is not a JSON Pointer", f"write {'/' + text!r}, or '' for the whole")
    return text
