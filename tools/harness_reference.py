"""Write docs/reference/harness-states.md from the table of classes."""

from __future__ import annotations

from pathlib import Path

from manglecp.harness.classes import CLASSES, Retry, State, diagram

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "harness-states.md"
HEAD = """# States and classes of a turn

<!-- Written by tools/harness_reference.py from manglecp.harness.classes; edit those. -->

A turn goes through six states, and each is made only from the one before it. Below each state stand the classes that
keep a turn from reaching it.

```
{diagram}```

A turn is *closed* if none of the classes at JoinClosed or above it is active; it may *mutate* if no class is active at
all and it says what it wants to mutate. The classes at MutationReady forbid only the mutation.

What may be tried again: *evidence* means that the missing evidence can be gathered and the same turn checked again;
*turn* that another model turn can be spent on it, with the typed failure; *never* that a human has to look.

## Rights to calls

A mutation of kind `effect` may name calls: `calls`, each with `toolCallId`, `toolName` and `inputDigest` (`sha256:`
of the input bytes). Without the member nothing about a mutation, its bytes or its digests is different. Two calls
under one id are no evidence.

| whoever holds | has the right to |
|---|---|
| `MutationReady` of kind `effect` | each call that its mutation names |
| `ToolRequests` | each call that is one of its requests with an input digest; for whoever runs what has no effects |

`permits(call_id, tool_name, input_digest)` of either state says whether the right is there and not spent.
`redeem_call(authority, call_id=…, tool_name=…, input_digest=…)` spends it: once per call, also if the state is gone
through twice. Another tool, other bytes, a second time, or a state that nobody issued is a `WrongMutation` or another
refusal, and then nothing is spent.

`CallSpec.request(rows)` makes `ToolRequests`; `ToolRequests.request(rows)` makes another one with more rows, so that
a turn can ask for calls after it has seen the results of others. Rights that were spent stay spent in it.

"""
RETRIES = {Retry.EVIDENCE: "evidence", Retry.TURN: "turn", Retry.NEVER: "never"}


def page() -> str:
    parts = [HEAD.format(diagram=diagram())]
    for state in State:
        rows = [one for one in CLASSES.values() if one.blocks is state]
        if not rows:
            continue
        parts.append(f"## {state.title}\n\n| class | when | what helps | again |\n|---|---|---|---|\n")
        parts += [f"| `{one.name}` | {one.trigger} | {one.remedy} | {RETRIES[one.retry]} |\n" for one in rows]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
