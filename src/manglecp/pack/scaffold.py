"""The starter pack of ``manglecp new``, written under a temporary name and renamed: it is complete or absent."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from manglecp.pack.diagnostics import PackError
from manglecp.pack.settings import is_pack_name

INTENT: Final = "review"  # of the starter pack
_FILES: Final = {
    "pack.toml": """[pack]
name = "{name}"
version = "0.1.0"
description = "Looks at drafts before they are published"

[[intents]]
name = "review"
description = "Find out whether a draft is ready"
optional_facts = ["draft"]
""",
    "rules/schema/drafts.mg": """# The facts that clients may assert. Without a direction a predicate is internal.
Decl draft(Title, Status)
  descr [
    doc("A text in progress"),
    arg(Title, "its title"),
    arg(Status, "private, open or final"),
    direction("input"),
  ]
  bound [/string, /string].
""",
    "rules/policy/privacy.mg": """# Policy overrides all other rules. It permits tools by name; all others are excluded.
permitted("measure_text").
prohibited("measure_text", "private drafts are not looked at") :- draft(_, "private").

# Clients and models get every reason. Without these lines, reasons are for operators.
public_reason(Tool, Text) :- prohibited(Tool, Text).
public_reason(Tool, Text) :- effect_denied(Action, Text), macro_step(Tool, _, Action).
public_reason(Tool, Text) :- intent_denied(Text), macro(Tool, _).
public_reason(Tool, Text) :- fact_denied(_, Text), macro(Tool, _).
""",
    "rules/domain/tools.mg": """# Each action is a tool. Rules add what differs: a text for the agent, when needed.
needs_skill("measure_text", "plain_style") :- draft(_, "final").
""",
    "skills/plain_style.md": """---
name: Plain style
description: What to look for before a text is published.
---
- One thought per sentence; more than 25 words are two thoughts.
- Name the actor.
""",
    "actions.py": '''"""Actions: typed functions. Each is a tool, and runs in a sandboxed process."""

import re
from typing import TypedDict

from manglecp import action


class Measures(TypedDict):
    words: int
    sentences: int
    longest: str


@action(effects=[], deterministic=True)
def measure_text(text: str) -> Measures:
    """Count the words and sentences of a text, and find its longest sentence."""
    sentences = [part.strip() for part in re.split(r"(?<=[.!?])\\s+", text) if part.strip()]
    longest = max(sentences, key=lambda sentence: len(sentence.split()), default="")
    return {"words": len(text.split()), "sentences": len(sentences), "longest": longest}
''',
}


def write_scaffold(folder: Path) -> tuple[str, ...]:
    """Write a new pack and return the names of its files. Raises :class:`PackError` if the folder exists."""
    target = folder.absolute()
    name = target.name
    if not is_pack_name(name):
        fix = "use letters, digits, '.', '_' and '-'"
        raise PackError.at("", f"{name[:80]!r} is not a valid pack name", fix=fix)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{name}-{secrets.token_hex(8)}"
        temporary.mkdir()
    except OSError as error:
        raise _write_error(folder, error) from None
    try:
        for file, text in _FILES.items():
            path = temporary / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{name}", name), encoding="utf-8")
        target.mkdir()  # only one of two concurrent calls gets past this
        os.replace(temporary, target)  # noqa: PTH105  # atomic: replaces the empty folder
    except FileExistsError:
        raise PackError.at("", f"{str(folder)[:300]!r} exists already", fix="choose another name") from None
    except OSError as error:
        raise _write_error(folder, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return tuple(_FILES)


def _write_error(folder: Path, error: OSError) -> PackError:
    return PackError.at("", f"{str(folder)[:300]!r} cannot be written: {error.strerror}")
