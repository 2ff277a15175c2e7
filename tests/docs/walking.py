"""Whoever follows a page sees what it shows: files are written, commands are typed, and what comes is compared.

- A block that begins with ``$`` has commands and what each prints. Those of ``manglecp`` alone run in this process.
- A block of ``sh`` is pasted into one shell that stays the same; ``text`` behind it is what it printed.
- Any other block is a file: the one that was named last, in backticks and with a folder or an ending. Where the
  sentence says "at the end of", it is added.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Final

from manglecp.cli import cli
from tests.deadlines import patience

__all__ = ["Pasting", "comparable", "follow", "steps"]

ROOT: Final = Path(__file__).resolve().parents[2]
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r"`([\w./-]+\.(?:py|mg|toml|csv|json|jsonl|md))`")
_END: Final = re.compile(r"at the\s+end\s+of\s+`[^`]+`[^`]*\Z")
_PIPE: Final = re.compile(r"[|<>&;$]")
_PATIENCE: Final = patience(300.0)
_BIN: Final = str(Path(sys.executable).parent)


def comparable(shown: str) -> str:
    """Without what differs from one machine and moment to the next."""
    for pattern, word in (
        (r"\bap-[0-9a-f]{32}", "APPROVAL"),
        (r"\bd-[0-9a-f]{32}", "DECISION"),
        (r"r-[0-9a-f]{32}", "RUN"),
        (r"\d{4}-\d\d-\d\d[T ][\d:.,]+Z?", "TIME"),
        (r"(?:jw1_|sha256:|--head )[0-9a-f…]+", "DIGEST"),
        (r"\b[0-9a-f]{64}\b", "REVISION"),
        (r"\d+ tokens by \w+", "N tokens"),
        (r"\d+ ms", "N ms"),
        (r"in \d+\.\d+s", "in N s"),
    ):
        shown = re.sub(pattern, word, shown)
    return re.sub(" +", " ", shown).strip()


def follow(page: str) -> int:
    """Follow the page here, and say how many commands it has."""
    typed = 0
    for command, expected in steps((ROOT / page).read_text("utf-8")):
        assert comparable(_typed(command)) == comparable(expected), command
        typed += 1
    return typed


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a page and what each prints. Files are written here, when it is their turn."""
    for fence in _FENCE.finditer(text):
        language, body = fence.groups()
        before = text[: fence.start()]
        if re.search(r"<!-- not run: [^\n]+ -->\n+\Z", before):
            continue
        if body.startswith("$ "):
            for step in body.removeprefix("$ ").split("\n$ "):
                command, _, expected = step.partition("\n")
                yield command, expected
        elif language not in ("sh", "text"):
            file = Path(_FILE.findall(before)[-1])
            file.parent.mkdir(parents=True, exist_ok=True)
            added = file.exists() and _END.search(before)
            file.write_text((file.read_text("utf-8") + "\n" if added else "") + body, "utf-8")


def _typed(command: str) -> str:
    words = shlex.split(command)
    if words[0] == "manglecp" and not _PIPE.search(re.sub(r"'[^']*'", "", command)):
        return _printed(words[1:])
    ran = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": f"{_BIN}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    return ran.stdout


def _printed(words: list[str]) -> str:
    """Both streams in the order in which a terminal shows them."""
    both = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with redirect_stdout(both), redirect_stderr(both), suppress(SystemExit):
        cli(words, prog_name="manglecp")
    both.seek(0)
    return both.read()


class Pasting:
    """Paste the blocks of a page into a shell that has nothing but the commands of the machine and ``manglecp``."""

    def __init__(self, page: str) -> None:
        self.blocks = [(language, body) for language, body in _FENCE.findall((ROOT / page).read_text("utf-8"))]

    def paste(self, home: Path, before: str = "") -> list[tuple[str, str]]:
        """For each pasted block what it printed, and what the page says. ``before`` is typed first."""
        pasted = [number for number, (language, _) in enumerate(self.blocks) if language == "sh"]
        script = before + "".join(f"{self.blocks[number][1]}\necho; echo '@@@'\n" for number in pasted)
        ran = subprocess.run(
            ["bash", "-e"],
            input=script,
            cwd=home,
            env={"HOME": str(home), "PATH": f"{_BIN}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
        assert ran.returncode == 0, ran.stdout
        *printed, rest = ran.stdout.split("\n@@@\n")
        assert not rest.strip(), rest
        return [(out, self._said(number)) for number, out in zip(pasted, printed, strict=True)]

    def _said(self, number: int) -> str:
        language, body = self.blocks[number + 1] if number + 1 < len(self.blocks) else ("", "")
        return body if language == "text" else ""
