"""The chain of a macro-tool: its steps, the sources of their arguments, its result and its interface.

A chain depends on derived facts and the descriptions of actions only. A tool with two values of a single-valued
predicate has no chain: the rules do not determine what the tool does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias, cast

from manglecp.base.digest import digest
from manglecp.intent.definition import AmbiguousFlaw, Argument, ChainStep, Flaw, SafetyData, Undo
from manglecp.intent.input_schema import ExposedParameter, input_schema, result_schema
from manglecp.intent.kernel import SINGLE_VALUED
from manglecp.mangle import NotPlain, Value, plain_json
from manglecp.pack import ActionDescription
from manglecp.wire.messages import SIDE_EFFECTS

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # TOOL-03, and what model providers accept


def name_problem(name: str) -> str | None:
    """Return what is wrong with a tool's name, as the end of a sentence, or None."""
    if _NAME.fullmatch(name) is not None:
        return None
    return f"is {name[:80]!a}, and model providers accept 1 to 64 letters (a to z, A to Z), digits, _ and -"


def name_fix(name: str) -> str:
    """Return the advice for a tool with a name that is refused."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return f'write "{re.sub(r"[^a-zA-Z0-9_-]+", "_", ascii_name).strip("_")[:64] or "tool"}"'


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
        "steps": [_step_content(step) for step in steps],
        "ordered": ordered,
        "results": [list(result) for result in results],
        "input_schema": input_schema,
        "side_effects": sorted(side_effects),
    }
    return digest(content)


def _step_content(step: ChainStep) -> dict[str, Any]:
    return {
        "number": step.number,
        "action": step.action,
        "arguments": _argument_content(step.arguments),
        "after": sorted(step.after),
        "on_error": step.on_error,
        "undo": step.undo and {"action": step.undo.action, "arguments": _argument_content(step.undo.arguments)},
        **({} if step.lasting else {"lasting": False}),  # left out if true, as in digests from before this member
    }


def _argument_content(arguments: Sequence[Argument]) -> dict[str, Any]:
    return {argument.param: [argument.source, argument.value, argument.step] for argument in arguments}


def side_effects(effects: Iterable[str]) -> tuple[str, ...]:
    """Return the side effects as they are shown: sorted, without duplicates."""
    # Effects that the specification does not define begin with x- (TOOL-16); "none" stands alone (OPEN-25).
    names = {effect if effect in SIDE_EFFECTS or effect.startswith("x-") else f"x-{effect}" for effect in effects}
    return tuple(sorted(names - {"none"})) or ("none",)


def safety(
    effects: Iterable[str],
    actions: Sequence[ActionDescription],
    *,
    needs_confirmation: bool,
    reversible: bool = False,
    idempotent: bool = False,
    approver_roles: Iterable[str] = (),
    four_eyes: bool = False,
) -> SafetyData:
    """Combine what rules state about a tool with what the actions of its steps declare.

    A chain is reversible if all its actions are, but idempotent only if its single action is: when a chain of several
    idempotent actions is repeated, the first action may revert the effect of the second.
    """
    return SafetyData(
        requires_user_confirmation=needs_confirmation,
        side_effects=side_effects(effects),
        reversible=reversible or (bool(actions) and all(action.reversible for action in actions)),
        idempotent=idempotent or (len(actions) == 1 and actions[0].idempotent),
        approver_roles=tuple(sorted(approver_roles)),
        four_eyes=four_eyes,
    )


Row: TypeAlias = tuple[Value, ...]
Rows: TypeAlias = Mapping[str, Sequence[Row]]  # the facts about one tool by predicate; the first column is the tool

PREDICATES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("nothing_to_undo", "optional_param", "macro_output", "macro_effect"), 2),
    **dict.fromkeys(("macro_step", "macro_param", "step_after", "on_error", "undo_step"), 3),
    **dict.fromkeys(("arg_value", "arg_from", "undo_value", "undo_in", "undo_out", "macro_result"), 4),
    **dict.fromkeys(("arg_step", "arg_kept"), 5),
}
"""The arities of the predicates that a chain is made from."""

ON_ERROR: Final = ("stop", "continue", "undo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The part of a definition that determines execution."""

    digest: str
    steps: tuple[ChainStep, ...]
    ordered: bool  # whether steps run in the order of their numbers; otherwise their ``after`` orders them
    results: tuple[tuple[str, int, str], ...]  # members of the result object: key, step, JSON Pointer
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    side_effects: tuple[str, ...]
    actions: tuple[ActionDescription, ...]  # the action of each step


def chain(tool: str, rows: Rows, actions: Mapping[str, ActionDescription]) -> Chain:
    """Return the chain of a tool. Raises :class:`Flaw`."""
    for name, key_columns in SINGLE_VALUED.items():
        keys = [row[1:key_columns] for row in rows.get(name, ())]  # row[0] is the tool
        if len(set(keys)) < len(keys):
            key = next(key for key in keys if keys.count(key) > 1)
            key_text = "".join(f", {value!r}" for value in key)
            message = f"{name}(Tool{key_text}, …) has two values"
            raise AmbiguousFlaw(message, "let one of them hold only where the other does not")
    return _Builder(tool, rows, actions).build()


class _Builder:
    def __init__(self, tool: str, rows: Rows, actions: Mapping[str, ActionDescription]) -> None:
        self.tool = tool
        self.rows = rows
        self.actions = actions
        self.declared_schemas = {str(name): _plain(schema) for _, name, schema in rows["macro_param"]}
        self.exposed_parameters: list[ExposedParameter] = []
        self.action_names = {cast(int, number): str(action) for _, number, action in rows["macro_step"]}
        self.ordered = not rows["step_after"]

    def build(self) -> Chain:
        problem = name_problem(self.tool)
        if problem is not None:
            raise Flaw(f"the name of the tool {problem}", name_fix(self.tool))
        if not self.action_names:
            raise Flaw("it has no step", "write macro_step(Tool, 1, Action)")
        bound = self._bind("arg_value", "arg_from", "arg_step", "arg_kept")
        undos = self._undos()
        steps = tuple(self._step(n, bound.get(n, {}), undos.get(n)) for n in sorted(self.action_names))
        try:
            TopologicalSorter({step.number: step.after for step in steps}).prepare()
        except CycleError as error:
            raise Flaw(f"step {min(error.args[1])} waits for itself") from None
        schema = input_schema(
            self.exposed_parameters, self.declared_schemas, {str(name) for _, name in self.rows["optional_param"]}
        )
        results = self._results()
        effects = side_effects(str(effect) for _, effect in self.rows["macro_effect"])
        output = next((result_schema(_plain(schema)) for _, schema in self.rows["macro_output"]), None)
        return Chain(
            digest=digest_chain(
                self.tool, steps, ordered=self.ordered, results=results, input_schema=schema, side_effects=effects
            ),
            steps=steps,
            ordered=self.ordered,
            results=results,
            input_schema=schema,
            output_schema=output,
            side_effects=effects,
            actions=tuple(self._action(step.action) for step in steps),
        )

    def _step(self, number: int, bound: Mapping[str, Argument], undo: Undo | None) -> ChainStep:
        """Return a step; ``bound`` are the arguments that rules bind, by parameter."""
        action = self._action(self.action_names[number])
        arguments = tuple(self._arguments(action, bound, f"step {number}"))
        sources = {argument.step for argument in arguments if argument.step is not None}
        for source in sorted(sources):
            if source not in self.action_names or source == number or (self.ordered and source > number):
                raise Flaw(f"step {number} takes an argument from step {source}, which does not run before it")
        rows = [row[1:] for row in self.rows["step_after"]]  # row[0] is the tool
        after = {before for step, before in rows if step == number and before in self.action_names} | sources
        on_error = next((str(reaction) for _, n, reaction in self.rows["on_error"] if n == number), "stop")
        if on_error not in ON_ERROR:
            raise Flaw(f"on_error of step {number} is {on_error!r}", f"write one of {', '.join(ON_ERROR)}")
        return ChainStep(
            number=number,
            action=action.name,
            arguments=arguments,
            after=() if self.ordered else tuple(sorted(after)),
            on_error=on_error,  # type: ignore[arg-type]  # one of ON_ERROR
            undo=undo,
            lasting=not any(n == number for _, n in self.rows["nothing_to_undo"]),
        )

    def _arguments(self, action: ActionDescription, bound: Mapping[str, Argument], where: str) -> Iterable[Argument]:
        """Yield the arguments in the order of the parameters; unbound ones take the call argument of the same name."""
        schema = action.input_schema
        schema_params: Mapping[str, Any] = schema.get("properties", {})
        unlisted = [name for name in bound if name not in schema_params]
        if unlisted and schema.get("additionalProperties", True) is False:
            raise Flaw(f"{where} gives {unlisted[0]!r}, which {action.name} does not take")
        for param in (*schema_params, *unlisted):
            argument = bound.get(param)
            if param in action.previewed:
                if argument is not None:
                    raise Flaw(f"{where} binds {param!r}, which the preview of {action.name} provides")
                argument = Argument(param, "preview", param)
            if argument is None:
                if (
                    self.declared_schemas
                    and param not in self.declared_schemas
                    and param not in schema.get("required", ())
                ):
                    continue  # the tool declares its arguments, and this optional parameter is not among them
                argument = Argument(param, "call", param)
            if argument.source == "call":
                self.exposed_parameters.append(ExposedParameter(argument.value, param, action.name, schema))
            yield argument

    def _bind(
        self, value: str, call: str, step: str | None = None, kept: str | None = None
    ) -> dict[int, dict[str, Argument]]:
        """Return the bound arguments by step number, then by parameter.

        ``value``, ``call``, ``step`` and ``kept`` are predicates, in order of precedence. They bind parameters to a
        fixed value, a call argument, a step result, or a value kept by an earlier run.
        """
        bound: dict[int, dict[str, Argument]] = {}

        def bind(number: Value, argument: Argument) -> None:
            bound.setdefault(cast(int, number), {}).setdefault(argument.param, argument)

        for _, number, param, fixed_value in self.rows[value]:
            bind(number, Argument(str(param), "value", _plain(fixed_value)))
        for _, number, param, name in self.rows[call]:
            bind(number, Argument(str(param), "call", str(name)))
        for _, number, param, source, pointer in self.rows[step] if step else ():
            bind(number, Argument(str(param), "step", _pointer(pointer), cast(int, source)))
        for _, number, param, run, name in self.rows[kept] if kept else ():
            bind(number, Argument(str(param), "kept", {"run": str(run), "name": str(name)}))
        return bound

    def _undos(self) -> dict[int, Undo]:
        bound = self._bind("undo_value", "undo_in")
        for _, number, param, pointer in self.rows["undo_out"]:
            argument = Argument(str(param), "step", _pointer(pointer), cast(int, number))
            bound.setdefault(cast(int, number), {}).setdefault(str(param), argument)
        undos: dict[int, Undo] = {}
        for _, step, name in self.rows["undo_step"]:
            number = cast(int, step)
            action = self._action(str(name))
            arguments = bound.get(number, {})
            missing_params = [param for param in action.input_schema.get("required", ()) if param not in arguments]
            if missing_params:
                raise Flaw(f"undoing step {number} with {action.name} lacks {missing_params[0]!r}")
            undos[number] = Undo(action.name, tuple(arguments[param] for param in sorted(arguments)))
        return undos

    def _action(self, name: str) -> ActionDescription:
        action = self.actions.get(name)
        if action is None:
            raise Flaw(f"there is no action {name!r}")
        return action

    def _results(self) -> tuple[tuple[str, int, str], ...]:
        results = []
        for _, key, number, pointer in self.rows["macro_result"]:
            if number not in self.action_names:
                raise Flaw(f"{key!r} of the result comes from step {number}, which is not in the chain")
            results.append((str(key), number, _pointer(pointer)))
        return tuple(results)


def _plain(value: Value) -> Any:
    try:
        return plain_json(value)
    except NotPlain as error:
        raise Flaw(f"a value cannot be written as JSON: {error}") from None


def _pointer(value: Value) -> str:
    """Return the text of a JSON Pointer. Raises :class:`Flaw` for other text."""
    text = str(value)
    if text and not text.startswith("/"):
        raise Flaw(f"{text!r} is not a JSON Pointer", f"write {'/' + text!r}, or '' for the whole")
    return text
