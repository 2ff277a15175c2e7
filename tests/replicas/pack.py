"""A pack whose effects can be counted by whoever survives, and whose reads last as long as a test wants.

Effects append a line to a file of the workspace, which both replicas write. ``wait`` is a read that ends when a file of
the given name is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["write_pack"]

ACTIONS: Final = '''
import os, time
from manglecp import action


def _write(line):
    file = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{line}\\n".encode())
    os.close(file)


@action(effects=["none"], idempotent=True)
def look(case: str) -> dict:
    """Change nothing."""
    return {"case": case, "pid": os.getppid()}


@action(effects=["none"], idempotent=True, timeout=300)
def wait(case: str, gate: str) -> dict:
    """Change nothing, and be slow about it."""
    open(f"waiting.{case}", "w").close()
    while not os.path.exists(gate):
        time.sleep(0.02)
    return {"case": case}


@action(effects=["filesystem"])
def note(case: str, label: str) -> dict:
    """Once is enough."""
    _write(f"{case} {label}")
    return {"case": case, "label": label}


@action(effects=["filesystem"], idempotent=True)
def keep(case: str, label: str) -> dict:
    """As often as one likes."""
    _write(f"{case} {label}")
    return {"case": case, "label": label}
'''

RULES: Final = """
macro("see", "Reads."). macro_step("see", 1, "look").
macro("once", "Writes a line."). macro_step("once", 1, "note").
macro("often", "Writes a line, perhaps again."). macro_step("often", 1, "look"). macro_step("often", 2, "keep").
macro("long", "Writes, waits, and writes again.").
macro_step("long", 1, "note"). macro_step("long", 2, "wait"). macro_step("long", 3, "note").
macro("asked", "Writes a line, if a person agrees."). macro_step("asked", 1, "note"). needs_confirmation("asked").
mandatory(Tool) :- intent("go"), macro(Tool, _).
arg_value("once", 1, "label", "only"). arg_value("asked", 1, "label", "agreed"). arg_value("often", 2, "label", "kept").
arg_value("long", 1, "label", "first"). arg_value("long", 3, "label", "last").
"""


def write_pack(folder: Path) -> None:
    (folder / "rules").mkdir(parents=True)
    (folder / "actions.py").write_text(ACTIONS)
    (folder / "rules" / "tools.mg").write_text(RULES)
    (folder / "pack.toml").write_text('[pack]\nname = "replicated"\n\n[[intents]]\nname = "go"\ndescription = "Go"\n')
