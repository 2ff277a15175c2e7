"""The rules on docs/how-to/put-rules-in-front-of-mcp-servers.md."""

from __future__ import annotations

from tests.docs.snippets import blocks
from tests.guard.hosts import READ, Setup, tool


def test_the_rules_of_the_page_decide_as_it_says(setup: Setup) -> None:
    [rules] = [
        block.body for block in blocks("docs/how-to/put-rules-in-front-of-mcp-servers.md") if block.language == "mangle"
    ]
    folder = setup.folder / "rules"
    folder.mkdir()
    (folder / "page.mg").write_text(rules)
    setup.set_state(tools=[tool("write_file", {"readOnlyHint": False}), tool("read", READ)])
    setup.write_config({"filesystem": setup.entry()})
    setup.install("--rules", str(folder), "--enforce")
    with setup.host("filesystem") as host:
        assert host.call("write_file", path="/home/me/notes/a")[0] is False
        assert host.call("write_file", path="/home/me/notes/../a")[0] is True
        assert host.call("write_file", path="/home/me/notes/diary.md")[0] is True
        failed, text = host.call("read", path="/home/me/.ssh/id_rsa")
    assert failed
    assert "keys are never read or written" in text
