"""The pages about requirements and decisions say what the register says."""

import re

from .register import load
from .report import ROOT

DECISIONS = ROOT / "docs" / "explanation" / "decisions.md"
REFERENCE = ROOT / "docs" / "reference" / "requirements.md"
OPEN = [f"OPEN-{n:02d}" for n in range(1, 75)]


def test_every_open_point_has_one_heading_with_its_anchor() -> None:
    text = DECISIONS.read_text("utf-8")
    headings = re.findall(r'^### <a id="([a-z0-9-]+)"></a>(OPEN-[0-9]+): \S', text, re.MULTILINE)
    assert sorted(heading for _, heading in headings) == OPEN
    assert all(anchor == heading.lower() for anchor, heading in headings)
    assert text.count("<a id=") == text.count("\n### ") == len(OPEN)


def test_every_decision_names_gap_decision_and_reason() -> None:
    sections = re.split(r"^##.*\n", DECISIONS.read_text("utf-8"), flags=re.MULTILINE)
    decisions = [section for section in sections if "**Gap:**" in section]
    assert len(decisions) == len(OPEN)
    for section in decisions:
        assert re.findall(r"^- \*\*(\w+):\*\* \S", section, re.MULTILINE) == ["Gap", "Decision", "Why"]


def test_decisions_stand_in_the_order_of_areas() -> None:
    groups = re.findall(r"^## .* \(([A-Z]+)\)$", DECISIONS.read_text("utf-8"), re.MULTILINE)
    assert groups == [area.name for area in load().areas if area.name in groups]


def test_rows_cite_only_decisions_that_exist() -> None:
    cited = {name for row in load().by_id.values() for name in re.findall(r"OPEN-[0-9]+", row.statement)}
    assert cited <= set(OPEN)


def test_decisions_cite_only_rows_that_exist() -> None:
    cited = set(re.findall(r"\b[A-Z]{3,5}-[0-9]{2}\b", DECISIONS.read_text("utf-8")))
    assert cited <= {*OPEN, *load().by_id}


def test_the_table_of_areas_agrees_with_the_register() -> None:
    table = re.findall(r"^\| `([A-Z]+)` \| (.+) \| ([0-9]+) \|$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    assert table == [(area.name, area.covers, str(len(area.rows))) for area in load().areas]
    assert f"| total | | {len(load().by_id)} |" in REFERENCE.read_text("utf-8")
