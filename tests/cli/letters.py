"""A pack whose letters may get lost, and `manglecp` as a process of its own.

`post` dies on its first letter, after it was put into the box: whether it got there nobody knows. `stamp` and `seal`
wait, where somebody made a file `wait`, until there is a file `go`; that one was reached is told by a file `reached`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.deadlines import patience

PACK_TOML = """
[pack]
name = "letters"
version = "1.0.0"
description = "Sends letters."

[domain]
id = "letters"
description = "Letters"
categories = ["infrastructure"]

[[intents]]
name = "send"
description = "Send a letter"

[[intents]]
name = "file"
description = "File a letter"

[[intents]]
name = "seal"
description = "Seal the box"

[[intents]]
name = "print"
description = "Print a letter"

[params.carrier]
description = "who carries letters"
default = "post"
"""

RULES = """
macro("send_letter", "Writes a letter, posts it and notes its number.").
mandatory("send_letter") :- intent("send").
macro_step("send_letter", 1, "write").
macro_step("send_letter", 2, "post").
arg_step("send_letter", 2, "letter", 1, "/letter").
macro_step("send_letter", 3, "stamp").
arg_step("send_letter", 3, "number", 2, "/number").

macro("file_letter", "Puts a letter into the cabinet, and notes it.").
mandatory("file_letter") :- intent("file").
reversible("file_letter").
macro_step("file_letter", 1, "store").
arg_call("file_letter", 1, "letter", "letter").
undo_step("file_letter", 1, "discard").
undo_in("file_letter", 1, "letter", "letter").
macro_step("file_letter", 2, "stamp").
arg_value("file_letter", 2, "number", "f1").
macro_step("file_letter", 3, "write").
arg_value("file_letter", 3, "text", "filed").
undo_step("file_letter", 2, "unstamp").

macro("seal_letter", "Posts a letter and seals the box.").
mandatory("seal_letter") :- intent("seal").
macro_step("seal_letter", 1, "post").
arg_call("seal_letter", 1, "letter", "letter").
macro_step("seal_letter", 2, "seal").
arg_value("seal_letter", 2, "with_what", "wax").

macro("print_letter", "Has a letter printed.").
mandatory("print_letter") :- intent("print").
macro_step("print_letter", 1, "press").
arg_call("print_letter", 1, "letter", "letter").
"""

ACTIONS = '''
"""Letters."""

import os
import signal
import subprocess
import time
from pathlib import Path

from manglecp import action


@action(effects=["none"], idempotent=True)
def write(text: str) -> dict[str, str]:
    """Write a letter."""
    return {"letter": text.upper()}


@action(effects=["filesystem"])
def post(letter: str) -> dict[str, str]:
    """Put a letter into the box."""
    box = Path("box.txt")
    first = not box.exists()
    with box.open("a") as letters:
        letters.write(letter + "\\\\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": "n1"}


@action(effects=["filesystem"])
def stamp(number: str) -> dict[str, str]:
    """Note the number of a letter."""
    Path("reached").touch()
    while Path("wait").exists() and not Path("go").exists():
        time.sleep(0.02)
    with Path("stamped.txt").open("a") as notes:
        notes.write(number + "\\\\n")
    return {"noted": number}


@action(effects=["filesystem"], idempotent=True)
def seal(with_what: str) -> dict[str, str]:
    """Seal the box; it may be sealed again."""
    Path("reached").touch()
    while Path("wait").exists() and not Path("go").exists():
        time.sleep(0.02)
    Path("sealed.txt").write_text(with_what)
    return {"sealed": with_what}


@action(effects=["process"], spawn=["echo"])
def press(letter: str) -> dict[str, str]:
    """Print a letter."""
    return {"printed": subprocess.run(["echo", letter], capture_output=True, text=True, check=True).stdout.strip()}


@action(effects=["filesystem"])
def unstamp() -> dict[str, str]:
    """Forget what was noted."""
    Path("stamped.txt").unlink()
    return {}


@action(effects=["filesystem"])
def store(letter: str) -> dict[str, str]:
    """Put a letter into the cabinet."""
    Path("cabinet.txt").write_text(letter)
    return {}


@action(effects=["filesystem"])
def discard(letter: str) -> dict[str, str]:
    """Take a letter out of the cabinet."""
    Path("cabinet.txt").unlink()
    return {}
'''.replace("\\\\n", "\\n")

PATIENCE = patience(60.0)


def write_pack(folder: Path) -> Path:
    (folder / "rules" / "domain").mkdir(parents=True)
    (folder / "pack.toml").write_text(PACK_TOML)
    (folder / "rules" / "domain" / "letters.mg").write_text(RULES)
    (folder / "actions.py").write_text(ACTIONS)
    return folder


def manglecp(*args: str, **more: Any) -> subprocess.Popen[str]:
    """Output and errors are pipes unless something else is said."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-m", "manglecp", *args],
        text=True,
        encoding="utf-8",
        env=dict(os.environ),
        # A test run in the background ignores interrupts, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **(streams | more),
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the file is there."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.02)
