"""What was compiled, for people: per component how it is evaluated, and the functions that were made so far."""

from __future__ import annotations

from collections.abc import Iterator

from manglecp.mangle import printer
from manglecp.mangle.engine.compiled import CompiledComponent, CompiledProgram
from manglecp.mangle.engine.maintenance import maintainable


def show_plan(compiled: CompiledProgram) -> str:
    """Source text with comments; functions that no evaluation has needed yet are not in it."""
    return "\n".join(line for component in compiled.components for line in _component(compiled, component))


def _component(compiled: CompiledProgram, component: CompiledComponent) -> Iterator[str]:
    names = ", ".join(f"{name}/{arity}" for name, arity in component.component.predicates)
    yield f"# {names}: {'; '.join(_traits(compiled, component))}"
    for rule in component.rules:
        yield f"#   {rule.name}: {printer.clause(rule.steps.rule.clause)}"
    shown: set[str] = set()
    for functions in component.variants.values():
        for function in functions:
            if function.compiled.source not in shown:
                shown.add(function.compiled.source)
                yield function.compiled.source
    yield ""


def _traits(compiled: CompiledProgram, component: CompiledComponent) -> Iterator[str]:
    yield "recursive" if component.recursive else "not recursive"
    if component.volatile:
        yield "evaluated for each request, because it looks at the clock or outside"
    if component.interpreted:
        yield f"interpreted, because {component.interpreted}"
        return
    if component.grouped:
        yield "kept as one set of second values per first value"
    reason = maintainable(compiled, component)
    if not component.volatile and isinstance(reason, str):
        yield f"evaluated again when it may lose facts, because {reason}"
