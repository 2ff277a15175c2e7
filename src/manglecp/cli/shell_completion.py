"""What the tab key offers in the shell: names that are known at that place, and nothing that has to be asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from manglecp.cli.shell_commands import COMMANDS, Shell
from manglecp.cli.shown_tools import ShownTool

__all__ = ["candidates", "typing"]

HISTORY_FILE: Final = "shell_history"
_MOST_LINES: Final = 1_000


def candidates(shell: Shell, before: str, word: str) -> list[str]:
    """What could stand for ``word`` after what is ``before`` it on the line."""
    words = before.split()
    if not words:
        return _starting(word, (f"{name} " for name in COMMANDS))
    return _starting(word, _for(shell, words[0], words[1:], word))


def _for(shell: Shell, command: str, given: list[str], word: str) -> Iterable[str]:
    manifest = shell.client.manifest
    tools = {} if shell.evaluation is None else {tool.name: tool.definition for tool in shell.evaluation}
    if command == "help":
        return COMMANDS
    if command == "intent" and not given:
        return (f"{intent.name} " for intent in manifest.intents)
    if command in ("invoke", "call", "show", "why"):
        if not given:
            return [*(f"{name} " for name in tools), *(["not "] if command == "why" else [])]
        if command in ("invoke", "call") and given[0] in tools:
            return (f"{name}=" for name in ShownTool.of_message(tools[given[0]]).properties)
        return ()
    if command == "follow" and not given:
        return () if shell.outcome is None else (one.name for one in shell.outcome.suggestions)
    if command == "add" and not given:
        return (f"{one.predicate}(" for one in manifest.facts_profile.predicates)
    if command == "drop" and not given:
        return sorted({str(fact["pred"]) for fact in shell.client.state.facts})
    if command == "load" and not given:
        return _files(word)
    return ()


def _files(word: str) -> Iterator[str]:
    folder = Path(word).parent if word and not word.endswith("/") else Path(word or ".")
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                yield f"{path}/"
            elif path.suffix in (".mg", ".json"):
                yield str(path)


def _starting(word: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(word)]


@contextmanager
def typing(shell: Shell, folder: Path) -> Iterator[None]:
    """Completion and history, where there is a readline. The history is nobody else's to read."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = folder / HISTORY_FILE
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_MOST_LINES)
    readline.set_completer_delims(" \t\n")
    readline.set_completer(_completer(shell, readline.get_line_buffer, readline.get_begidx))
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
            readline.write_history_file(file)


def _completer(shell: Shell, line: Callable[[], str], begins: Callable[[], int]) -> Callable[[str, int], str | None]:
    def complete(word: str, number: int) -> str | None:
        try:
            found = candidates(shell, line()[: begins()], word)
        except Exception:  # readline would swallow it
            return None
        return found[number] if number < len(found) else None

    return complete
