"""Hold a toolhost against the contract.

    python -m tests.toolhost.conversations PLUGIN [--cast FILE] [--without-ours] [--only TEXT] -- HOST [ARGUMENT ...]

The exit status is 1 if something was wrong. Conversations that were left out are listed with the reason: they are not
known to be right.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.toolhost.conversations.playing import Host, play
from tests.toolhost.conversations.script import Cast, conversations, read_cast


def main(argv: list[str]) -> int:
    """Play all that can be played, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.toolhost.conversations", description=__doc__)
    parser.add_argument("plugin", help="what the host is given as its plugin")
    parser.add_argument("--cast", type=Path, help="who plays which role; without it only what needs no tool is played")
    parser.add_argument("--without-ours", action="store_true", help="leave out where manglecp differs from C++")
    parser.add_argument("--only", default="", metavar="TEXT", help="only conversations whose name holds this")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for an answer")
    parser.add_argument("host", nargs="+", help="the program, after --")
    options = parser.parse_args(argv)
    host = Host(tuple(options.host), options.plugin, read_cast(options.cast) if options.cast else Cast())
    counts = {"ok": 0, "wrong": 0, "left out": 0}
    for conversation in conversations():
        name = f"{conversation.script}: {conversation.name}"
        if options.only not in name:
            continue
        missing = [role for role in conversation.needs if role not in host.cast.roles]
        if missing or (conversation.ours and options.without_ours):
            verdict, details = "left out", [f"nobody plays {', '.join(missing)}" if missing else "ours"]
        else:
            details = play(conversation, host, patience=options.patience)
            verdict = "wrong" if details else "ok"
        counts[verdict] += 1
        print(f"{verdict:8}  {name}", *(f"          {detail}" for detail in details), sep="\n", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
