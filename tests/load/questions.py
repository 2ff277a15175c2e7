"""Questions whose right answers are known, and the pack that is asked.

It is the one that ``manglecp new`` makes: which tools there are depends on the status of a draft, and what a tool says
depends on a text. Both are different in every question, so that an answer to another one is a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.load.wires import message

__all__ = ["PACK", "Asker", "Question", "rest"]

PACK: Final = {
    "pack.toml": """
[[intents]]
name = "wait"
description = "Wait a little"
""",
    "rules/policy/privacy.mg": """
permitted("rest").
""",
    "rules/domain/tools.mg": """
relevant("rest", 80) :- intent("wait").
macro("rest", "Wait a little").
macro_step("rest", 1, "rest").
""",
    "actions.py": '''

@action(effects=[], deterministic=True)
def rest(seconds: float) -> dict[str, float]:
    """Wait, and say how long."""
    import time

    time.sleep(seconds)
    return {"rested": seconds}
''',
}
"""What is added to the pack: an action that takes its time."""
Told = dict[str, Any]


@dataclass(frozen=True)
class Question:
    id: str
    path: bytes
    data: bytes
    wrong: Callable[[Told], str | None]
    """What is wrong with the payload of an answer that is no error."""


class Asker:
    """Makes questions, each with an id of its own; remembers a tool to invoke."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._name = f"c{seed}"
        self._count = 0
        self._tool: str | None = None

    def next(self) -> Question:
        self._count += 1
        id_ = f"{self._name}-{self._count}"
        if self._tool is not None and self._random.random() < 0.2:
            return self._invocation(id_, self._tool)
        return self._evaluation(id_)

    def _evaluation(self, id_: str) -> Question:
        status = self._random.choice(("open", "final", "private"))
        fact = {"pred": "draft", "args": [f"draft of {id_}", status]}
        tools = [] if status == "private" else ["measure_text"]
        skills = ["plain_style"] if status == "final" else []

        def wrong(payload: Told) -> str | None:
            found = payload["macro_tools"]
            if [tool["name"] for tool in found] != tools:
                return f"tools are {[tool['name'] for tool in found]} and should be {tools}"
            given = [
                skill["skill_id"] for tool in found for skill in tool.get("context_injection", {}).get("skills", ())
            ]
            if given != skills:
                return f"skills are {given} and should be {skills}"
            if found:
                self._tool = found[0]["macro_id"]
            return None

        data = message("intent_request", id_, {"intent": {"name": "review"}, "facts": [fact]})
        return Question(id_, b"/evaluate", data, wrong)

    def _invocation(self, id_: str, tool: str) -> Question:
        words = self._random.randrange(2, 30)
        longest = " ".join([id_, *("word" for _ in range(words - 1))]) + "."
        right = {"words": words + 1, "sentences": 2, "longest": longest}

        def wrong(payload: Told) -> str | None:
            return None if payload["result"] == right else f"the result is {payload['result']} and should be {right}"

        data = message("invoke_request", id_, {"macro_id": tool, "args": {"text": f"{longest} End."}})
        return Question(id_, b"/invoke", data, wrong)


def rest(id_: str, tool: str, seconds: float) -> Question:
    """An invocation that takes its time."""

    def wrong(payload: Told) -> str | None:
        return None if payload["result"] == {"rested": seconds} else f"the result is {payload['result']}"

    return Question(
        id_, b"/invoke", message("invoke_request", id_, {"macro_id": tool, "args": {"seconds": seconds}}), wrong
    )
