"""The policies of a pack: its own, pinned, or those that ship with manglecp."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from manglecp.harness.policy import package_of
from manglecp.pack.governance import default_governance
from manglecp.pack.loader import read_pack
from tests.pack.folders import RULES, problem, problems, read, write

RULE = {"rules/a.mg": RULES}
OWN = package_of({"name": "own", "version": "3"}, default_governance().contents)


def folder(**changes: Mapping[str, Any] | None) -> dict[str, str]:
    """Documents as files; a document that is None is left out."""
    said: dict[str, Any] = {"package": {"name": "own", "version": "3"}, **default_governance().contents}
    said.update({kind.replace("_", "-"): content for kind, content in changes.items()})
    return {f"governance/{kind}.json": json.dumps(content) for kind, content in said.items() if content is not None}


def pinned(digest: str) -> dict[str, str]:
    return {"pack.toml": f'[governance]\ndigest = "{digest}"\n'}


class TestWithoutAFolder:
    def test_the_shipped_package_applies(self, tmp_path: Path) -> None:
        assert read(tmp_path, RULE).governance == default_governance()

    def test_it_can_be_pinned(self, tmp_path: Path) -> None:
        assert read(tmp_path, {**RULE, **pinned(default_governance().digest)}).governance == default_governance()

    def test_another_pin_refuses_it_and_names_both(self, tmp_path: Path) -> None:
        found = problem(tmp_path, {**RULE, **pinned(OWN.digest)})
        assert found.file == "pack.toml"
        assert OWN.digest in found.message
        assert default_governance().digest in found.message

    def test_a_turn_under_it_owes_what_a_server_shows(self) -> None:
        package = default_governance()
        demanded = package.constraints(pinned=package.digest)["governanceConstraints"]
        assert demanded["bindGovernanceDigest"] is True
        assert demanded["humanCheckpointTiers"] == ["high"]
        controls = {"policyProvenance", "guardrailStages", "observabilityMode", "riskTier"}
        assert set(demanded["requiredControls"]) >= controls


class TestAFolder:
    def test_is_the_package_that_it_pins(self, tmp_path: Path) -> None:
        pack = read(tmp_path, {**RULE, **folder(), **pinned(OWN.digest)})
        assert (pack.governance.ref, pack.governance.digest) == ("own@3", OWN.digest)

    def test_may_be_written_in_toml(self, tmp_path: Path) -> None:
        files = folder(package=None, mutation=None)
        files["governance/package.toml"] = 'name = "own"\nversion = "3"\n'
        files["governance/mutation.toml"] = 'mode = "instruction_linked"\n'
        assert read(tmp_path, {**RULE, **files, **pinned(OWN.digest)}).governance.digest == OWN.digest

    def test_has_to_be_pinned(self, tmp_path: Path) -> None:
        found = problem(tmp_path, {**RULE, **folder()})
        assert (found.file, found.message) == ("pack.toml", "governance/ is not pinned")
        assert found.fix == f'add [governance] with digest = "{OWN.digest}"'

    def test_is_refused_if_it_is_not_the_pinned_one(self, tmp_path: Path) -> None:
        write(tmp_path, {**RULE, **folder(), **pinned(OWN.digest)})
        assert read_pack(tmp_path).governance.digest == OWN.digest
        changed = folder(stop={"maxTurns": 9_999})
        now = package_of(
            {"name": "own", "version": "3"}, {**default_governance().contents, "stop": {"maxTurns": 9_999}}
        )
        found = problem(tmp_path, changed)
        assert OWN.digest in found.message
        assert now.digest in found.message

    def test_nothing_is_said_of_a_pin_that_cannot_be_read(self, tmp_path: Path) -> None:
        found = problem(tmp_path, {**RULE, **folder(), "pack.toml": "[governance\n"})
        assert found.message.startswith("not TOML")

    @pytest.mark.parametrize(
        ("changes", "file", "about"),
        [
            ({"mutation": None}, "governance/mutation", "the document is missing"),
            ({"mutation": {"mode": "always"}}, "governance/mutation.json", "/mode: "),
            ({"mutations": {}}, "governance/mutations.json", "the document 'mutations' is unknown; did you mean"),
            ({"stop": {"checkpointEveryTurns": 3}}, "governance/stop.json", "/checkpointEveryTurns: "),
            ({"governance": {"claimed": False}}, "governance/governance", "every turn of a server claims governance"),
            ({"governance": {"claimed": True}, "risk_tiers": None}, "governance/risk-tiers", "the document is missing"),
            (
                {"risk_tiers": {"defaultTier": "low", "tiers": {"low": {"controlProfileRef": "x"}}}},
                "governance/risk-tiers",
                "the tier moderate has no control profile",
            ),
        ],
    )
    def test_what_is_wrong_is_told(self, tmp_path: Path, changes: dict[str, Any], file: str, about: str) -> None:
        found = [each for each in problems(tmp_path, {**RULE, **folder(**changes)}) if each.file != "pack.toml"]
        assert found[0].file == file
        assert found[0].message.startswith(about)

    @pytest.mark.parametrize(
        ("name", "text", "line", "about"),
        [
            ("stop.toml", '# so\n\nmaxTurns = "many"\n', 3, "/maxTurns: a whole number belongs here"),
            ("stop.toml", "maxTurns = \n", None, "not TOML"),
            ("stop.toml", f"maxTurns = {'9' * 5_000}\n", None, "a value is too large"),
            ("stop.toml", f"{'a.' * 50}a = 1\n", None, "a key has too many parts"),
            ("stop.toml", "# so\u202e\n", 1, "the text holds the invisible character U+202E"),
            ("stop.toml", "#" * 262_145, None, "the file has more than 262,144 bytes"),
            ("notes.txt", "x", None, "the name is not that of a policy document"),
            ("deep/stop.toml", "maxTurns = 3\n", None, "the name is not that of a policy document"),
        ],
    )
    def test_with_its_place(self, tmp_path: Path, name: str, text: str, line: int | None, about: str) -> None:
        found = problem(tmp_path, {**RULE, **folder(stop=None), **pinned(OWN.digest), f"governance/{name}": text})
        assert found.message.startswith(about)
        assert found.line == line
        assert found.file in (f"governance/{name}", "governance/")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    assert problem(tmp_path, {**RULE, "governance": "x"}).message.startswith("governance is a file")


def test_a_pin_is_a_digest(tmp_path: Path) -> None:
    found = problem(tmp_path, {**RULE, "pack.toml": '[governance]\ndigest = "abc"\n'})
    assert (found.line, found.message[:31]) == (2, "governance.digest: not a digest")


def test_policies_are_part_of_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(tmp_path, RULE).digest
    monkeypatch.setattr("manglecp.pack.governance.default_governance", lambda: OWN)
    assert read_pack(tmp_path).governance is OWN
    assert read_pack(tmp_path).digest != before
