"""A pack with a tool that only reads, tools that need approvals, one that needs a fact, and a slow one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ACTIONS: Final = '''
import os, time
from manglecp import Context, action


@action(effects=[], deterministic=True)
def look_up(order: str, depth: int = 1) -> dict:
    """Read an order."""
    return {"order": order, "depth": depth}


@action(effects=["payments"])
def pay_back(amount: int) -> dict:
    """Pay an amount back."""
    with open("paid", "a") as file:
        file.write(f"{amount}\\n")
    return {"paid": amount}


@action(effects=["filesystem"])
def close_desk() -> dict:
    """Close the desk."""
    return {"closed": True}


@action(effects=["authentication"])
def lock_up(door: str = "front") -> dict:
    """Lock a door."""
    return {"locked": door}


@action(effects=[])
def count_stock(shelf: str) -> dict:
    """Count the stock."""
    raise RuntimeError("the password of the stock is swordfish")


@action(effects=[], timeout=60)
def wait_for(gate: str, context: Context) -> dict:
    """Wait for a file."""
    context.progress(1, 2, "half of it")
    while not os.path.exists(gate):
        time.sleep(0.01)
    return {"gate": gate}
'''
RULES: Final = """
Decl complaint(Order) descr [direction("input")] bound [/string].
mandatory("look_up") :- intent("help").
mandatory("wait_for") :- intent("help").
mandatory("pay_back") :- intent("help"), complaint(_).
mandatory("close_desk") :- intent("evening").
mandatory("pay_back") :- intent("evening").
mandatory("lock_up") :- intent("evening").
mandatory("count_stock") :- intent("evening").
mandatory("count_stock") :- intent("complain").
mandatory("pay_back") :- intent("complain"), complaint(_).
needs_skill("look_up", "orders") :- intent("help").
"""
POLICY: Final = """
permitted(Tool) :- free(Tool).
Decl free(Tool) bound [/string].
free("look_up"). free("wait_for"). free("count_stock"). free("close_desk").
permitted("pay_back"). permitted("lock_up").
prohibited("pay_back", "more than 100 is for managers") :- call("pay_back"), call_arg("amount", Amount), Amount > 100.
public_reason("pay_back", Reason) :- prohibited("pay_back", Reason).
needs_approval("close_desk", "manager").
prohibited("count_stock", "the stock is a secret") :- intent("complain").
"""
PACK: Final = """
[pack]
name = "desk"
version = "1.0.0"
permissions = ["manager"]
[[intents]]
name = "help"
description = "A customer needs help with an order."
optional_facts = ["complaint"]
[[intents]]
name = "evening"
description = "The desk closes."
[[intents]]
name = "complain"
description = "A customer complains."
optional_facts = ["complaint"]
"""
SKILL: Final = """---
name: orders
description: How to read orders
---
Orders begin with A.
"""


def write_pack(folder: Path) -> Path:
    """Write the pack into a new folder ``desk`` and return it."""
    pack = folder / "desk"
    files = {
        "actions.py": ACTIONS,
        "pack.toml": PACK,
        "rules/desk.mg": RULES,
        "rules/policy/desk.mg": POLICY,
        "skills/orders.md": SKILL,
    }
    for name, text in files.items():
        (pack / name).parent.mkdir(parents=True, exist_ok=True)
        (pack / name).write_text(text)
    return pack
