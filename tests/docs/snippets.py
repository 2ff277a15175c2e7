"""Every fenced block of the documentation, and who makes sure that it is true.

A block is checked in one of four ways:

- it is written from the code (between the marks of :mod:`tools.reference`);
- its page stands in :data:`RUN_BY`, with the tests that run its blocks and how many there are, so that one that is
  added is noticed;
- it shows no more than the layout of things (a picture, a tree of folders), and its page stands in :data:`PICTURES`;
- it cannot be run, and the line before it says why: ``<!-- not run: REASON -->``.

Whatever is said here of a block, what it shows must at least be possible: commands have these options, files of TOML
and JSON can be read, Python can be compiled (``test_snippets.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "PICTURES", "ROOT", "RUN_BY", "Block", "blocks", "commands"]

ROOT: Final = Path(__file__).resolve().parents[2]
_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_GENERATED: Final = re.compile(r"^<!-- generated: .*?^<!-- end -->$", re.DOTALL | re.MULTILINE)
_REASON: Final = re.compile(r"<!-- not run: ([^\n]{5,}?) -->\n+\Z")
_PROMPT: Final = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)

PAGES: Final = sorted(
    str(page.relative_to(ROOT))
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md"))
)

RUN_BY: Final[dict[str, tuple[int, str]]] = {
    "README.md": (2, "tests/docs/test_readme.py"),
    "docs/explanation/engine.md": (1, "tests/docs/test_pages.py"),
    "docs/explanation/explanations.md": (1, "tests/docs/test_pages.py"),
    "docs/explanation/harness.md": (1, "tests/docs/test_pages.py"),
    "docs/explanation/incremental-bases.md": (1, "tests/docs/test_pages.py"),
    "docs/explanation/time.md": (2, "tests/docs/test_pages.py"),
    "docs/explanation/toolhost.md": (1, "tests/toolhost/dispatch/test_page.py"),
    "docs/how-to/check-a-toolhost.md": (3, "tests/docs/test_shown_commands.py"),
    "docs/how-to/check-a-transcript.md": (9, "tests/docs/test_harness_pages.py"),
    "docs/how-to/deploy.md": (7, "tests/replicas/proxies.py"),
    "docs/how-to/call-an-api.md": (6, "tests/docs/test_call_an_api_page.py"),
    "docs/how-to/feed-facts.md": (8, "tests/docs/test_facts_pages.py"),
    "docs/how-to/give-an-agent-tools.md": (5, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/explain-a-decision.md": (9, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/debug-rules.md": (4, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/langgraph.md": (1, "tests/interop/test_agents.py"),
    "docs/how-to/openai-agents.md": (1, "tests/interop/test_agents.py"),
    "docs/how-to/migrate-an-mcp-server.md": (9, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/workspace.md": (12, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/write-rules.md": (11, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/put-rules-in-front-of-mcp-servers.md": (1, "tests/guard/test_page.py"),
    "docs/how-to/run-a-goal.md": (7, "tests/docs/test_tutorial_pages.py"),
    "docs/how-to/needs-decision.md": (11, "tests/docs/test_invocation_pages.py"),
    "docs/how-to/promote-a-policy.md": (7, "tests/docs/test_shown_commands.py tests/docs/test_policy_pages.py"),
    "docs/how-to/serve-a-pack.md": (5, "tests/docs/test_shown_commands.py tests/docs/test_serving_pages.py"),
    "docs/how-to/test-a-pack.md": (7, "tests/docs/test_test_a_pack_page.py"),
    "docs/how-to/who-may-ask.md": (3, "tests/docs/test_shown_commands.py tests/docs/test_serving_pages.py"),
    "docs/reference/actions.md": (5, "tests/docs/test_actions_page.py"),
    "docs/reference/client.md": (2, "tests/client/test_page.py"),
    "docs/reference/conformance.md": (1, "tests/docs/test_shown_commands.py"),
    "docs/reference/fact-files.md": (6, "tests/pack/factfiles/test_page.py tests/docs/test_shown_commands.py"),
    "docs/reference/facts.md": (2, "tests/docs/test_facts_pages.py"),
    "docs/reference/harness-logs.md": (4, "tests/docs/test_harness_pages.py tests/docs/test_shown_commands.py"),
    "docs/reference/invocation.md": (1, "tests/docs/test_run_pages.py"),
    "docs/reference/issue-memory.md": (2, "tests/issues/test_page.py"),
    "docs/reference/mangle.md": (3, "tests/docs/test_pages.py"),
    "docs/reference/messages.md": (4, "tests/wire/test_errors.py tests/docs/test_shown_commands.py"),
    "docs/reference/packs.md": (
        14,
        "tests/pack/test_page.py tests/pack/test_generators_page.py tests/toolhost/test_interpreter.py",
    ),
    "docs/reference/policy-packages.md": (1, "tests/docs/test_policy_pages.py"),
    "docs/reference/requirements.md": (2, "tests/docs/test_shown_commands.py"),
    "docs/reference/run-rules.md": (3, "tests/docs/test_run_pages.py"),
    "docs/reference/seed-vocabulary.md": (2, "tests/intent/test_names.py"),
    "docs/reference/runner.md": (3, "tests/runner/test_page.py"),
    "docs/reference/store.md": (1, "tests/store/test_store_page.py"),
    "docs/tutorial/durable-chain.md": (12, "tests/docs/test_durable_chain_page.py"),
    "docs/tutorial/policy.md": (19, "tests/docs/test_tutorial_pages.py"),
    "docs/tutorial/ten-minutes.md": (11, "tests/docs/test_ten_minutes_page.py"),
    "docs/tutorial/transcript.md": (7, "tests/docs/test_tutorial_pages.py"),
    "docs/tutorial/first-pack.md": (17, "tests/docs/test_first_pack_page.py"),
    "docs/tutorial/first-program.md": (13, "tests/docs/test_pages.py"),
    "examples/first/README.md": (2, "tests/cli/test_examples.py"),
    "examples/incident/README.md": (3, "tests/examples/test_incident.py tests/docs/test_shown_commands.py"),
}
"""By page: how many blocks the tests behind it run or load."""

PICTURES: Final = {
    "docs/explanation/architecture.md": 2,
    "docs/explanation/harness.md": 1,
    "docs/explanation/the-gate.md": 1,
    "docs/reference/packs.md": 1,
}
"""By page: how many blocks are drawings."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    body: str
    generated: bool
    reason: str | None
    """Why it is not run, if it is not."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text("utf-8")
    generated = [found.span() for found in _GENERATED.finditer(text)]
    for fence in _FENCE.finditer(text):
        said = _REASON.search(text[: fence.start()])
        indent, language, body = fence.groups()
        yield Block(
            page=page,
            line=text.count("\n", 0, fence.start()) + 1,
            language=language,
            body=re.sub(f"^{indent}", "", body, flags=re.MULTILINE),
            generated=any(start < fence.start() < end for start, end in generated),
            reason=said[1] if said else None,
        )


def commands(block: Block) -> list[str]:
    """The lines that somebody would type."""
    if block.language in ("sh", "bash"):
        joined = block.body.replace("\\\n", " ")
        return [line.partition(" # ")[0].strip() for line in joined.splitlines() if line.strip()]
    return [found.replace("\\\n", " ") for found in _PROMPT.findall(block.body)]
