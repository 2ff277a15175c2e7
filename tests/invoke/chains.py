"""One tool ``t`` with a chain of actions that take a number; enough for most tests about invocations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from manglecp.pack import ActionDescription, Invocation, Pack
from tests.intent.packs import action, pack

NUMBER: Final = {"n": {"type": "integer"}}
PUBLISHED: Final = """
Decl done(N) descr [doc("It is done."), direction("both")] bound [/number].
Decl text_of(N, Text) descr [doc("What was found."), direction("both")] bound [/number, /string].
Decl held(N, Status) descr [doc("What holds."), direction("both")] bound [/number, /string].
Decl lasted(N) temporal descr [doc("It lasted."), direction("both")] bound [/number].
Decl asked(N) descr [doc("Only asked."), direction("input")] bound [/number].
Decl told(N) descr [doc("Only told."), direction("output")] bound [/number].
Decl inner(N) bound [/number].
"""


def effect(name: str, tier: int = 1, effects: tuple[str, ...] = ("filesystem",), **changes: Any) -> ActionDescription:
    changes.setdefault("params", NUMBER)
    return action(name, effects=effects, tier=tier, mutates=True, **changes)


def steps(*names: str) -> str:
    return " ".join(f'macro_step("t", {n}, "{name}").' for n, name in enumerate(names, 1))


def chain(
    *rules: str,
    actions: tuple[ActionDescription, ...] = (),
    invocation: Any = None,
    when: str = 'mandatory("t") :- intent("go").',
    **more: Any,
) -> Pack:
    """``invocation`` are limits of ``pack.toml``; ``when`` says when the tool is there."""
    text = "\n".join(('macro("t", "A tool.").', when, *rules))
    known = (action("look", params=NUMBER), effect("write"), effect("erase"), *actions)
    more.setdefault("schema", PUBLISHED)
    made = pack(text, actions=known, intents=("go", "later"), **more)
    if invocation is None:
        return made
    return replace(made, settings=replace(made.settings, invocation=Invocation(**invocation)))
