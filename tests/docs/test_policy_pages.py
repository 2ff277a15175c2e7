"""The pages on policies: every document is there, and what is shown works."""

from __future__ import annotations

import json
import re

import pytest

from manglecp.harness.policy import Pin, promote, read_reports
from manglecp.harness.policy.kinds import KINDS, DocumentKind
from tests.docs.test_pages import ROOT, fences
from tests.harness.policy.packages import AT, careful, changed

REFERENCE = (ROOT / "docs/reference/policy-packages.md").read_text("utf-8")


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_document_has_a_row(kind: DocumentKind) -> None:
    (row,) = re.findall(rf"^\| `{kind.name}` \|.*$", REFERENCE, re.MULTILINE)
    assert "inline" in row if kind.inline_field else "inline" not in row
    for field in (kind.inline_field, kind.digest_field):
        assert field is None or f"`{field}`" in row
    for member in careful().contents[kind.name]:
        assert f"`{member}`" in row


def test_python_in_the_reference() -> None:
    (code,) = (body for body in fences("reference/policy-packages.md") if body.startswith("from manglecp"))
    *lines, last = code.strip().splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)  # our own pages
    question, _, answer = last.partition("  # ")
    assert str(eval(question, scope)) == answer


def test_the_how_to_promotes() -> None:
    pin, candidate = Pin.first(careful(), at=AT), changed(careful(), stop={"maxTurns": 30})
    shown = [
        body.replace("sha256:NEW", candidate.digest).replace("sha256:OLD", pin.digest)
        for body in fences("how-to/promote-a-policy.md")
        if body.startswith("{")
    ]
    assert all(json.loads(body) for body in shown)
    evaluation, red_team, *evidence = [(f"{number}.json", body.encode()) for number, body in enumerate(shown)]
    promoted = promote(pin, candidate, read_reports(evaluation, red_team, evidence), at=AT)
    assert promoted.digest == candidate.digest
