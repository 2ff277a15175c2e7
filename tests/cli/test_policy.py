"""`manglecp policy`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from manglecp.cli.policy import default_pin, load_package, load_pin, write_pin
from manglecp.harness.policy import Pin, PolicyPackage, observe_package
from tests.cli.conftest import Run
from tests.harness.policy.packages import CAREFUL, brought, careful

PIN = Path("careful.pin.json")


@pytest.fixture
def package(folder: Path) -> Path:
    """A copy of the example in the folder, to be changed."""
    return Path(shutil.copytree(CAREFUL, folder / "careful"))


@pytest.fixture
def change(package: Path) -> Callable[..., PolicyPackage]:
    def change(file: str = "stop.toml", text: str = "maxTurns = 30\n") -> PolicyPackage:
        package.joinpath(file).write_text(text)
        return load_package("careful")

    return change


@pytest.fixture
def bring(folder: Path) -> Callable[..., list[str]]:
    """Write what a promotion needs, and give the options for it."""

    def bring(candidate: PolicyPackage, **edits: dict[str, Any] | None) -> list[str]:
        pin = load_pin(PIN)
        assert pin is not None
        options: list[str] = []
        names = {"evaluation": "--eval", "red_team": "--redteam", "instruction": "--evidence", "approval": "--evidence"}
        for name, document in brought(pin, candidate).items():
            edit = edits.get(name, {})
            if edit is not None:
                folder.joinpath(f"{name}.json").write_text(json.dumps({**document, **edit}))
                options += [names[name], f"{name}.json"]
        return options

    return bring


Change = Callable[..., PolicyPackage]
Bring = Callable[..., list[str]]


def test_show(run: Run, package: Path) -> None:
    shown = run("policy", "show", package.name)
    assert shown.exit_code == 0
    first, *rest = shown.stdout.splitlines()
    assert first.split() == ["careful@1.0.0", careful().digest]
    assert [tuple(line.split()) for line in rest] == list(careful().digests.items())


def test_show_as_json(run: Run, package: Path) -> None:
    document = json.loads(run("policy", "show", package.name, "--json").stdout)
    assert (document["result"], document["packageRef"], document["packageDigest"]) == (
        "valid",
        "careful@1.0.0",
        careful().digest,
    )
    assert document["documents"] == careful().digests
    assert document["policyDocuments"] == careful().documents()
    assert document["constraints"] == careful().constraints()


def test_the_built_in_package(run: Run) -> None:
    assert observe_package().digest in run("policy", "show", "observe").stdout


def test_everything_that_is_wrong_with_a_package(run: Run, package: Path) -> None:
    package.joinpath("stop.toml").write_text("maxTurn = 30\n")
    package.joinpath("tolos.toml").touch()
    shown = run("policy", "show", "careful")
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.splitlines() == [
        "error[policy]: stop.toml: /maxTurn: the key 'maxTurn' is unknown; did you mean maxTurns?",
        "error[policy]: tolos.toml: the document 'tolos' is unknown; did you mean tools?",
    ]
    shown = run("policy", "pin", "careful", "--json")
    assert shown.exit_code == 2
    assert json.loads(shown.stdout)["problems"][0] == {
        "file": "stop.toml",
        "pointer": "/maxTurn",
        "message": "the key 'maxTurn' is unknown; did you mean maxTurns?",
    }
    assert not PIN.exists()


def test_no_package(run: Run) -> None:
    shown = run("policy", "show", "nowhere")
    assert shown.exit_code == 2
    assert "there is no folder nowhere" in shown.stderr


def test_the_first_pin(run: Run, package: Path) -> None:
    shown = run("policy", "pin", f"{package.name}/")
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"pinned: careful@1.0.0 {careful().digest}\n")
    pin = load_pin(PIN)
    assert pin is not None
    assert pin.verify(careful()) == ()
    before = PIN.read_bytes()
    again = json.loads(run("policy", "pin", "careful", "--json").stdout)
    assert again == {
        "result": "unchanged",
        "pin": "careful.pin.json",
        "packageRef": "careful@1.0.0",
        "version": "1.0.0",
        "packageDigest": careful().digest,
        "head": pin.head,
    }
    assert PIN.read_bytes() == before


def test_where_a_pin_is(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_pin("careful") == default_pin("careful/") == PIN
    assert default_pin("policies/careful") == Path("policies/careful.pin.json")
    monkeypatch.chdir(package)
    assert default_pin(".") == package.parent / PIN
    package.joinpath("inner").mkdir()
    monkeypatch.chdir(package / "inner")
    assert default_pin("..") == package.parent / PIN
    with pytest.raises(click.UsageError, match="give the path of the pin"):
        default_pin("/")


def test_a_pin_elsewhere(run: Run, package: Path) -> None:
    assert run("policy", "pin", package.name, "--pin", "other.json").exit_code == 0
    assert not PIN.exists()
    shown = run("policy", "pin", package.name, "--pin", "nowhere/other.json")
    assert shown.exit_code == 2
    assert "cannot write nowhere/other.json: No such file or directory" in shown.stderr


@pytest.mark.req("SLICE-15")
def test_a_changed_package_is_not_pinned(run: Run, change: Change) -> None:
    assert run("policy", "pin", "careful").exit_code == 0
    before = PIN.read_bytes()
    change()
    shown = run("policy", "pin", "careful")
    assert shown.exit_code == 1
    assert "stop: changed\n  /checkpointEveryTurns: 10 -> nothing\n" in shown.stdout
    assert "a changed package needs `policy promote`" in shown.stderr
    document = json.loads(run("policy", "pin", "careful", "--json").stdout)
    assert document["result"] == "refused"
    assert [one["document"] for one in document["differences"]] == ["stop"]
    assert PIN.read_bytes() == before


def test_diff(run: Run, package: Path, change: Change) -> None:
    shown = run("policy", "diff", "careful")
    assert shown.exit_code == 2
    assert "careful.pin.json does not exist" in shown.stderr
    run("policy", "pin", "careful")
    assert run("policy", "diff", "careful").stdout == f"careful@1.0.0 {careful().digest}: nothing differs\n"
    change(text=CAREFUL.joinpath("stop.toml").read_text().replace("40", "30"))
    package.joinpath("retry.toml").unlink()
    shown = run("policy", "diff", "careful")
    assert (shown.exit_code, shown.stdout) == (1, "retry: removed\nstop: changed\n  /maxTurns: 40 -> 30\n")
    document = json.loads(run("policy", "diff", "careful", "--json").stdout)
    assert (document["result"], document["before"]["packageDigest"]) == ("differs", careful().digest)
    assert document["differences"][1]["changes"] == [{"pointer": "/maxTurns", "before": 40, "after": 30}]


def test_diff_of_two_packages(run: Run, package: Path, change: Change) -> None:
    shutil.copytree(package, "other")
    assert run("policy", "diff", "careful", "other").exit_code == 0
    change()
    shown = run("policy", "diff", "other", "careful")
    assert shown.exit_code == 1
    assert "  /maxTurns: 40 -> 30\n" in shown.stdout
    assert run("policy", "diff", "other", "careful", "--pin", "x.json").exit_code == 2
    package.joinpath("handoff.toml").unlink()
    assert "handoff: added\n" in run("policy", "diff", "careful", "other").stdout


@pytest.mark.req("SLICE-15", "HARN-77")
def test_a_promotion(run: Run, package: Path, change: Change, bring: Bring) -> None:
    run("policy", "pin", package.name)
    candidate = change()
    shown = run("policy", "promote", "careful", *bring(candidate))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"promoted: careful@1.0.0 {candidate.digest}\n")
    pin = load_pin(PIN)
    assert pin is not None
    assert (pin.digest, len(pin.history)) == (candidate.digest, 2)
    assert run("policy", "pin", "careful").exit_code == 0
    again = run("policy", "promote", "careful", *bring(candidate), "--json")
    assert (again.exit_code, json.loads(again.stdout)["result"]) == (0, "unchanged")


@pytest.mark.req("SLICE-15")
def test_a_promotion_that_is_refused_leaves_the_pin_alone(
    run: Run, package: Path, change: Change, bring: Bring
) -> None:
    run("policy", "pin", package.name)
    before = PIN.read_bytes()
    candidate = change()
    options = bring(candidate, red_team={"packageDigest": careful().digest}, instruction=None)
    shown = run("policy", "promote", "careful", *options)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "refused: governance.redteam_gate_unmet: " in shown.stderr
    assert f"note: the red-team report is about another package than {candidate.ref}" in shown.stderr
    document = json.loads(run("policy", "promote", "careful", *options, "--json").stdout)
    assert document["result"] == "rejected"
    assert document["failureClasses"] == [
        "governance.redteam_gate_unmet",
        "mutation.capability_claim_missing",
        "mutation.use_evidence_missing",
    ]
    assert sorted({finding["class"] for finding in document["findings"]}) == document["failureClasses"]
    assert len(document["notes"]) == 1
    assert PIN.read_bytes() == before
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith("tmp")) == []


def test_a_promotion_needs_its_files(run: Run, package: Path, change: Change, bring: Bring) -> None:
    assert "Missing option '--eval'" in run("policy", "promote", package.name).stderr
    run("policy", "pin", "careful")
    options = bring(change(), evaluation={"passd": True})
    shown = run("policy", "promote", "careful", *options)
    assert shown.exit_code == 2
    assert "error[policy]: evaluation.json: /passd: the key 'passd' is unknown; did you mean passed?" in shown.stderr
    PIN.unlink()
    shown = run("policy", "promote", "careful", *options[2:], "--eval", "red_team.json")
    assert shown.exit_code == 2
    shown = run("policy", "promote", "careful", *_repaired(options))
    assert shown.exit_code == 2
    assert "`manglecp policy pin` creates it" in shown.stderr


def _repaired(options: list[str]) -> list[str]:
    path = Path("evaluation.json")
    document = json.loads(path.read_text())
    del document["passd"]
    path.write_text(json.dumps(document))
    return options


def test_a_pin_that_was_edited(run: Run, package: Path) -> None:
    run("policy", "pin", package.name)
    PIN.write_text(PIN.read_text().replace('"maxTurns": 40', '"maxTurns": 400'))
    for verb in ("pin", "diff"):
        shown = run("policy", verb, "careful")
        assert shown.exit_code == 2
        assert "careful.pin.json: /documents/stop/digest: the digest of the content is" in shown.stderr


def test_a_pin_is_written_whole_or_not_at_all(
    folder: Path, run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("policy", "pin", package.name)
    before = PIN.read_bytes()

    def fail(_: Path, __: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(Exception, match="No space left on device"):
        write_pin(PIN, Pin.first(observe_package(), at="2026-01-01T00:00:00Z"))
    assert PIN.read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["careful", "careful.pin.json"]


def test_it_starts_without_the_language() -> None:
    code = "import sys, manglecp.cli.policy\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in shown.stdout.split() if name.startswith("manglecp.mangle")] == []
