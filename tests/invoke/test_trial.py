"""A policy package under which no run could end well is refused before there is a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from manglecp.cli import cli
from manglecp.harness.policy import PolicyPackage, package_of
from manglecp.invoke import PackOptions, open_packs
from manglecp.invoke.gate import check_policy_package
from manglecp.pack import Pack, PackError, SandboxPolicy, default_governance
from manglecp.store import open_store
from manglecp.toolhost import profile_of
from manglecp.wire import WireError
from tests.intent.packs import pack
from tests.invoke.test_chains import chain, steps
from tests.invoke.turns import action, changed
from tests.invoke.workshop import shop

UNUSABLE: list[tuple[dict[str, Mapping[str, Any]], str]] = [
    ({"queue": {"requiredQueueIds": ["mail"]}}, "context.queue_policy_violation"),
    (
        {"views": {"requiredStateViewIds": ["desk"], "views": {"desk": {"sourceRefs": ["run://"]}}}},
        "context.injection_point_missing",
    ),
    ({"render": {"injectionPoints": ["system_prompt"]}}, "context.injection_point_missing"),
    ({"queue": {"maxBatchSize": 19}}, "context.queue_policy_violation"),  # a run may tell 20
    (
        {"protocol": {"handledStopReasons": ["tool_use"], "continuation": {"tool_use": "continue"}}},
        "protocol.stop_reason_unhandled",
    ),
]
USABLE: list[dict[str, Mapping[str, Any]]] = [
    {},
    {"queue": {"requiredQueueIds": []}},
    {"queue": {"maxBatchSize": 20}},
    {"render": {"injectionPoints": ["invoke_response", "system_prompt"]}},
    {"decomposition": {"allowedPatterns": ["chain"]}},
    {"mutation": {"mode": "observe_only"}},
    {
        "risk_tiers": {
            "tiers": {t: {"controlProfileRef": "c://x", "humanCheckpoint": True} for t in ("low", "moderate", "high")}
        }
    },
]
RULES = 'macro("walk", "Goes.").\nmandatory("walk") :- intent("go").\nmacro_step("walk", 1, "look").\n'


def bound(package: PolicyPackage) -> Pack:
    """A pack that brings this package, pinned."""
    plain = pack(RULES)
    return replace(plain, governance=package, settings=replace(plain.settings, governance_digest=package.digest))


@pytest.mark.parametrize(("documents", "named"), UNUSABLE, ids=[name for name, *_ in (tuple(d) for d, _ in UNUSABLE)])
async def test_a_package_that_no_turn_can_satisfy_is_refused(documents: dict[str, Any], named: str) -> None:
    with pytest.raises(PackError, match="no turn of a server would close") as refused:
        async with shop(bound(changed(default_governance(), **documents))):
            pass
    (problem,) = refused.value.diagnostics
    assert named in problem.message
    assert problem.file == "governance/"


@pytest.mark.parametrize("documents", USABLE, ids=lambda documents: next(iter(documents), "as shipped"))
async def test_a_package_that_merely_admits_less_is_not(documents: dict[str, Any]) -> None:
    package = changed(default_governance(), **documents)
    assert check_policy_package(bound(package), "strict") == ()
    async with shop(bound(package)):
        pass


def test_the_trial_is_that_of_the_turns_that_are_made_later() -> None:
    """What a run would be refused for is what the trial names, whichever tier the run has."""
    one_tier = {"low": {"controlProfileRef": "c://x"}}
    package = changed(default_governance(), risk_tiers={"tiers": one_tier, "defaultTier": "low"})
    (problem,) = check_policy_package(bound(package), "strict")
    assert "governance.risk_tier_profile_missing" in problem.message


def test_a_pack_may_tell_less_instead() -> None:
    package = changed(default_governance(), queue={"maxBatchSize": 3})
    talkative = bound(package)
    (problem,) = check_policy_package(talkative, "strict")
    assert problem.fix == "a run has up to 20 events: raise maxBatchSize, or lower [invocation] max_events to it"
    settings = replace(talkative.settings, invocation=replace(talkative.settings.invocation, max_events=3))
    assert check_policy_package(replace(talkative, settings=settings), "strict") == ()


@pytest.mark.parametrize(("admitted", "finished"), [(1, False), (2, False), (3, True)])
async def test_a_chain_that_takes_more_turns_than_policy_admits_is_not_begun(admitted: int, finished: bool) -> None:
    plain = chain(steps("look", "write", "write"))
    package = changed(default_governance(), stop={"maxTurns": admitted})
    few = replace(plain, governance=package, settings=replace(plain.settings, governance_digest=package.digest))
    async with shop(few) as s:
        if finished:
            await s.invoke("t", {"n": 1}, confirm=True)
        else:
            with pytest.raises(WireError) as refused:
                await s.invoke("t", {"n": 1}, confirm=True)
            assert refused.value.details is not None
            assert refused.value.details["failure_classes"] == ["protocol.stop_reason_unhandled"]
            assert s.bench.ran == []


class TestTheSandbox:
    def test_another_profile_than_the_hosts_run_in_is_refused(self) -> None:
        package = changed(default_governance(), sandbox={"profile": "standard"})
        (problem,) = check_policy_package(bound(package), "strict")
        assert problem.file == "governance/sandbox"
        assert "the sandbox standard, and the hosts run in strict" in problem.message
        assert check_policy_package(bound(package), "standard") == ()

    def test_a_package_may_leave_it_open(self) -> None:
        contents = {kind: said for kind, said in default_governance().contents.items() if kind != "sandbox"}
        package = package_of({"name": "open", "version": "1"}, contents)
        assert check_policy_package(bound(package), "spawn") == ()

    def test_the_shipped_package_speaks_for_nobody(self) -> None:
        assert check_policy_package(pack(RULES), "spawn") == ()

    @pytest.mark.parametrize(
        ("wished", "programs", "weaker", "used"),
        [
            ("strict", (), False, "strict"),
            ("standard", (), False, "strict"),
            ("standard", (), True, "standard"),
            ("strict", ("sh",), False, "spawn"),
            ("strict", ("ls",), False, "strict"),  # no action names it
        ],
    )
    def test_what_hosts_run_in_is_what_whoever_runs_the_pack_says(
        self, wished: Any, programs: tuple[str, ...], weaker: bool, used: str
    ) -> None:
        plain = pack(RULES, actions=[replace(action("look"), spawn=("sh",))])
        wishing = replace(plain, settings=replace(plain.settings, sandbox=wished))
        assert profile_of(wishing, programs=programs, sandbox=SandboxPolicy(allow_weaker=weaker)) == used


def write(folder: Path, package: PolicyPackage) -> Path:
    contents = {"package": {"name": package.name, "version": package.version}, **package.contents}
    (folder / "governance").mkdir(parents=True)
    for kind, said in contents.items():
        (folder / "governance" / f"{kind}.json").write_text(json.dumps(said))
    (folder / "pack.toml").write_text(f'[governance]\ndigest = "{package.digest}"\n')
    (folder / "rules").mkdir()
    (folder / "rules" / "a.mg").write_text('macro("walk", "Goes.").\n')
    return folder


def test_the_check_of_a_pack_tells_it(tmp_path: Path) -> None:
    good = write(tmp_path / "good", changed(default_governance()))
    assert CliRunner().invoke(cli, ["check", str(good)]).exit_code == 0
    bad = write(tmp_path / "bad", changed(default_governance(), queue={"requiredQueueIds": ["mail"]}))
    told = CliRunner().invoke(cli, ["check", str(bad)])
    assert told.exit_code == 1
    assert "error[pack]: governance/: no turn of a server would close" in told.stderr
    assert "context.queue_policy_violation" in told.stderr


async def test_packs_are_not_opened_with_a_sandbox_that_is_not_theirs(tmp_path: Path) -> None:
    folder = write(tmp_path / "weak", changed(default_governance(), sandbox={"profile": "none"}))
    settings = (folder / "pack.toml").read_text()
    (folder / "pack.toml").write_text(f'{settings}[sandbox]\nprofile = "none"\n')  # a wish, and nobody has allowed it
    with pytest.raises(PackError, match="the sandbox none, and the hosts run in strict"):
        async with open_packs([PackOptions(folder)], partial(open_store, ":memory:")):
            pass
