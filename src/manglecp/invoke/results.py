"""The result object: what the chain says it consists of, checked against the schema that the tool promises.

Without ``macro_result`` it is the result of the last step that has one. An object is expected on the wire, so anything
else becomes the member ``value`` of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from manglecp.intent import Definition, scrub
from manglecp.invoke.argument_errors import schema_errors
from manglecp.invoke.model import Outcome
from manglecp.invoke.pointers import Missing, resolve
from manglecp.wire import SchemaError

__all__ = ["hiding", "result_errors", "result_of", "scrubbed", "unchanged"]

_LEAST_SECRET: Final = 4
"""Shorter texts are everywhere; to hide them would tell more than it hides."""
REDACTED: Final = "[redacted]"


def result_of(definition: Definition, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Out of the steps that are done. What is not there is left out; the schema says whether it has to be."""
    outputs = {one.number: one.output for one in outcomes if one.kind == "do" and one.status == "done"}
    if not definition.results:
        return _object(outputs[max(outputs)]) if outputs else {}
    found: dict[str, Any] = {}
    for key, number, pointer in definition.results:
        if number not in outputs:
            continue
        try:
            found[key] = resolve(outputs[number], pointer)
        except Missing:
            continue  # if the tool promises it, the schema of its result says so
    return found


def _object(output: Any) -> dict[str, Any]:
    return output if isinstance(output, dict) else {"value": output}


def result_errors(definition: Definition, result: dict[str, Any]) -> list[SchemaError]:
    """INVK-15."""
    return [] if definition.output_schema is None else schema_errors(result, definition.output_schema)


def scrubbed(value: Any) -> Any:
    """JSON without what looks like a credential."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: scrubbed(member) for name, member in value.items()}
    return [scrubbed(item) for item in value] if isinstance(value, (list, tuple)) else value


def hiding(secrets: Iterable[str]) -> Callable[[Any], Any]:
    """JSON without these texts, wherever they stand; the longest are looked for first."""
    texts = sorted({text for text in secrets if len(text) >= _LEAST_SECRET}, key=lambda text: (-len(text), text))

    def hide(value: Any) -> Any:
        if isinstance(value, str):
            for text in texts:
                value = value.replace(text, REDACTED)
            return value
        if isinstance(value, dict):
            return {hide(name): hide(member) for name, member in value.items()}
        if isinstance(value, (list, tuple)):
            return [hide(item) for item in value]
        return value

    return hide if texts else unchanged


def unchanged(value: Any) -> Any:
    """JSON as it is: nothing is hidden in it."""
    return value
