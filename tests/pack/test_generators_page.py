"""What docs/reference/packs.md says about facts that are found out."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest

from manglecp.intent import Domain
from manglecp.invoke.fact_refresh import SETTLE_SECONDS
from manglecp.toolhost.generator import facts
from manglecp.toolhost.passes import MAX_BYTES
from tests.pack.folders import SMALL, write
from tests.pack.test_page import PAGE, fence

SECTION = PAGE.partition("\n## Facts that are found out\n")[2].partition("\n## ")[0]
DECL = "Decl line_count(Name, Lines) bound [/string, /number].\n"


def test_the_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANGLECP_CACHE_DIR", str(tmp_path / "cache"))
    write(tmp_path / "logs", {"a": "1\n2\n", "b": "1\n"})
    settings = '[params.root]\nkind = "folder"\n'
    files = {"pack.toml": settings, "rules/lines.mg": DECL, "facts.py": fence("import os\n")}
    write(tmp_path / "lines", {**SMALL, **files})
    program = fence("from manglecp.toolhost import serve_facts").replace("/srv/logs", str(tmp_path / "logs"))
    changing, sure = program.split("    looked = ")
    names: dict[str, object] = {}
    edit = f"    import os; os.remove({str(tmp_path / 'logs/a')!r})\n"
    exec(f"{changing}    first = domain\n{edit}    looked = {sure}", names)
    first, domain = names["first"], names["domain"]
    assert isinstance(first, Domain)
    assert isinstance(domain, Domain)
    assert first.base.evaluate().query("line_count(F, N)") == ['line_count("a",2)', 'line_count("b",1)']
    assert domain.base.evaluate().query("line_count(F, N)") == ['line_count("b",1)']
    assert not os.path.lexists(tmp_path / "logs/.tmp")


def test_the_table_has_every_option_and_its_default() -> None:
    table = dict(re.findall(r"^\| `?([a-z]+)`?[^|]*\| (.*?) \|$", SECTION, re.MULTILINE))
    parameters = inspect.signature(facts).parameters
    assert table.keys() == parameters.keys()
    for name in ("every", "seconds"):
        assert f"{parameters[name].default:g} by default" in table[name]


def test_its_numbers_are_true() -> None:
    assert f"{MAX_BYTES >> 20} MiB in one pass" in SECTION
    assert SETTLE_SECONDS == 2.0
    assert "up to two seconds" in SECTION
