"""A pack with something for each of two tenants, and what each of them says to its server all the time.

Everything that is ann's has *amber* in it, everything that is bob's *birch*: names, rights, tokens, facts, arguments,
ids. So whatever reaches the wrong one shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from tests.server.desk import PATIENCE, intent, invoke
from tests.server.lines import Line, Way, line

__all__ = ["ANN", "BOB", "Tenant", "write_pack", "write_tokens"]

NOW: Final = "2026-01-15T12:00:00Z"
NAMES: Final = ["tell", "vault", "cellar", "nothing"]
PATHS: Final = ("/.well-known/manglecp/manifest.json", "/metrics", "/skills/guide", "/skills/none", "/ready")
ACTIONS: Final = '''
from manglecp import Context, action


@action(effects=["none"])
def tell(context: Context, word: str) -> dict:
    """Say it back."""
    context.progress(1, 2, word)
    return {"word": word, "reply": f"told-{word}"}


@action(effects=["payments"])
def keep(word: str) -> dict:
    """Keep it."""
    return {"kept": word}
'''
SCHEMA: Final = """
Decl seen(Word) descr [doc("What was seen."), direction("input")] bound [/string].
Decl note(Text) descr [doc("What was noted."), direction("both")] bound [/string].
"""
RULES: Final = """
macro("tell", "Tells."). macro_step("tell", 1, "tell"). needs_skill("tell", "guide").
macro("vault", "Opens the vault."). macro_step("vault", 1, "keep").
macro("cellar", "Opens the cellar."). macro_step("cellar", 1, "keep").
relevant("tell", 90) :- intent("observe"), seen(_).
relevant(T, 80) :- intent("observe"), kept_place(T).
kept_place("vault"). kept_place("cellar").
instruction("tell", 1, W) :- seen(W).
extract("tell", "reply", "/reply").
asserts("note", [V], "server") :- step_value(1, "reply", V).
continues_with("note", [W]) :- run_arg("word", W).
summary(T) :- ran("tell"), client(C), T = fn:string:concat("For ", C, ".").
"""
POLICY: Final = """
prohibited("vault", "only for right-amber") :- !client_permission("right-amber").
prohibited("cellar", "only for right-birch") :- !client_permission("right-birch").
"""


def write_pack(folder: Path) -> None:
    for name, text in (("schema/facts", SCHEMA), ("domain/tools", RULES), ("policy/places", POLICY)):
        (folder / "rules" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "rules" / f"{name}.mg").write_text(text)
    (folder / "skills").mkdir()
    (folder / "skills" / "guide.md").write_text("---\nname: Guide\ndescription: About telling.\n---\nTell it slowly.\n")
    (folder / "actions.py").write_text(ACTIONS)
    (folder / "pack.toml").write_text(
        '[pack]\nname = "house"\npermissions = ["right-amber", "right-birch"]\n'
        '[[intents]]\nname = "observe"\ndescription = "See"\n'
        "[disclosure]\ninline_skill_tokens = 1\n"
    )


@dataclass
class Tenant:
    name: str
    mark: str
    other: str
    """What must never reach this one."""
    place: str
    """The tool that only this one has."""
    heard: list[bytes] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def token(self) -> str:
        return f"token-{self.mark}-0123456789abcdef"

    def question(self, word: str) -> dict[str, Any]:
        options = {"include_proof_hints": True, "x-why_not": NAMES, "x-rule_coverage": True}
        facts = [{"pred": name, "args": [word]} for name in ("seen", "note")]
        return intent(f"id-{self.mark}-{next(self.numbers)}", "observe", facts=facts, options=options, eval_time=NOW)

    async def told(self, asking: Line, word: str) -> str:
        """The answer to a question, as it is for whoever asks it at any time."""
        answer = await asking.ask(self.question(word))
        assert answer["type"] == "intent_response", answer
        return re.sub(r'"eval_duration_ms": \d+|"id": "[^"]*"', "", json.dumps(answer))

    async def visit(self, url: str, way: Way, others: dict[str, str], rounds: int) -> None:
        """Ask for everything, and for what is another's; ``others`` has the ids of tools of all of them."""
        async with line(url, way, self.token) as asking:
            same = await self.told(asking, "same")
            for n in range(rounds):
                found = await asking.ask(self.question(f"fact-{self.mark}-{n}"))
                tools = {tool["name"]: tool["macro_id"] for tool in found["payload"]["macro_tools"]}
                assert set(tools) == {"tell", self.place}, tools
                others[self.mark] = tools[self.place]
                assert await self.told(asking, "same") == same
                await self._invoke(asking, tools, others, n)
                wrong = self.question("x")
                wrong["payload"]["facts"] = [{"pred": f"unknown_{self.mark}", "args": [f"fact-{self.mark}"]}]
                assert (await asking.ask(wrong))["type"] == "error"
            self.heard += asking.heard

    async def _invoke(self, asking: Line, tools: dict[str, str], others: dict[str, str], n: int) -> None:
        def message(macro_id: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
            return invoke(f"id-{self.mark}-{next(self.numbers)}", macro_id, args, **more)

        word = {"word": f"arg-{self.mark}-{n}"}
        answer = await asking.ask(message(tools["tell"], word, **{"x-request_key": f"key-{n}"}))  # the same for all
        assert answer["payload"]["result"]["reply"] == f"told-arg-{self.mark}-{n}"
        refused = await asking.ask(message(tools["tell"], {"word": 5, f"extra_{self.mark}": 1}))
        assert refused["payload"]["code"] == "schema_validation_failed"
        asked = await asking.ask(message(tools[self.place], word))
        assert asked["payload"]["code"] == "confirmation_required"
        for mark, macro_id in others.items():
            if mark != self.mark:
                foreign = await asking.ask(message(macro_id, word))
                assert foreign["payload"]["code"] == "macro_not_found"

    async def look_around(self, url: str) -> None:
        """At what is no message."""
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http:
            for token in (self.token, f"{self.token}-wrong"):
                for path in (
                    "/.well-known/manglecp/manifest.json",
                    "/metrics",
                    "/skills/guide",
                    "/skills/none",
                    "/ready",
                ):
                    answer = await http.get(path, headers={"authorization": f"Bearer {token}"})
                    self.heard += [str(answer.headers).encode(), answer.content]
                    await asyncio.sleep(0)


ANN: Final = ("ann-amber", "amber", "birch", "vault")
BOB: Final = ("bob-birch", "birch", "amber", "cellar")


def write_tokens(path: Path, *tenants: Tenant) -> None:
    path.touch(0o600)
    path.write_text(
        "\n".join(
            f'[[token]]\nsha256 = "{hashlib.sha256(one.token.encode()).hexdigest()}"\nidentity = "{one.name}"\n'
            f'permissions = ["right-{one.mark}", "read_metrics"]\n'
            for one in tenants
        )
    )
