"""A project may hold the environment that its host runs in, or the plugin: neither can be written or replaced."""

from pathlib import Path

import pytest

from manglecp.toolhost.sandbox import Policy, Profile

from .confined import Identity, Outcome, require, run

pytestmark = pytest.mark.no_cover

PREPARE = """
import os, sys
os.chdir({workspace!r})
for folder in (".venv/lib", "deep/plugins/own", "other"):
    os.makedirs(folder)
for file in (".venv/lib/module.py", "deep/plugins/own/plugin.py", "deep/file", "other/file"):
    open(file, "w").close()
os.symlink("deep", "link")
"""
LIVED_IN = "os.chdir({workspace!r}); sys.prefix = {workspace!r} + '/.venv'"
TRY = """
def attempt(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        return "refused"
    return "done"
"""


def confined(
    workspace: str, identity: Identity, code: str, before: str = LIVED_IN, profile: Profile = "strict"
) -> Outcome:
    require(profile)
    prepared = run("none", PREPARE.format(workspace=workspace), identity=identity)
    assert prepared.returncode == 0, prepared
    policy = Policy(workspace=(workspace,), code=(f"{workspace}/deep/plugins/own",))
    before = f"import os, sys; {before.format(workspace=workspace)}"
    return run(profile, TRY + code, policy, before=before, identity=identity)


ACTS = (
    "open, '.venv/lib/module.py', 'w'",
    "open, '.venv/new', 'w'",
    "os.unlink, '.venv/lib/module.py'",
    "os.chmod, '.venv/lib', 0o777",
    "os.rename, '.venv', 'gone'",
    "os.rename, '.venv/lib', 'gone'",
    "os.rename, 'other/file', '.venv/lib/module.py'",
    "os.link, '.venv/lib/module.py', 'other/module.py'",
    "open, 'deep/plugins/own/plugin.py', 'w'",
    "os.rename, 'deep/plugins/own', 'deep/plugins/gone'",
    "os.rename, 'deep/plugins', 'deep/gone'",
    "os.rename, 'deep', 'gone'",
)


def test_what_is_run_elsewhere_cannot_be_changed(workspace: str, identity: Identity) -> None:
    """Each act would change what the host runs, and leaves it for the next one where it is refused."""
    outcome = confined(workspace, identity, "\n".join(f"print(attempt({act}))" for act in ACTS))
    assert outcome.stdout.split() == ["refused"] * len(ACTS), outcome


def test_without_a_sandbox_it_can_be_changed(tmp_path: Path) -> None:
    """Otherwise the test above would show nothing."""
    for number in range(len(ACTS)):
        (tmp_path / str(number)).mkdir()
    code = "".join(
        f"{PREPARE.format(workspace=f'{tmp_path}/{number}')}print(attempt({act}))\n" for number, act in enumerate(ACTS)
    )
    assert run("none", TRY + code).stdout.split() == ["done"] * len(ACTS)


def test_all_else_in_the_workspace_can(workspace: str, identity: Identity) -> None:
    code = """
print(open(".venv/lib/module.py").read() == "")
print(attempt(open, "new", "w"), attempt(open, "deep/new", "w"), attempt(open, "deep/plugins/new", "w"))
print(attempt(os.rename, "other", "renamed"), attempt(os.rename, "deep/new", "deep/renamed"))
"""
    outcome = confined(workspace, identity, code)
    assert outcome.stdout == "True\ndone done done\ndone done\n", outcome


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.prefix = os.path.dirname({workspace!r})", "lies in the environment of the interpreter"),
        ("sys.prefix = {workspace!r}", "lies in the environment of the interpreter"),
        ("sys.path.append({workspace!r})", "lies in a folder that the host imports from"),
        ("sys.prefix = {workspace!r} + '/link/plugins'", "is reached by the link"),
        (
            "os.symlink(sys.executable, {workspace!r} + '/p'); sys.executable = {workspace!r} + '/p'",
            "reached by the link",
        ),
        ("sys.path.append({workspace!r} + '/later')", "does not exist, and could be created in a workspace"),
    ],
)
def test_what_cannot_be_shielded_is_refused(before: str, said: str, workspace: str, identity: Identity) -> None:
    outcome = confined(workspace, identity, "print('started')", before)
    assert outcome.stdout == ""
    last = outcome.stderr.splitlines()[-1]
    assert last.startswith("ValueError: "), outcome
    assert said in last


def test_without_a_mount_namespace_nothing_is_shielded(workspace: str, identity: Identity) -> None:
    outcome = confined(workspace, identity, "print('started')", profile="standard")
    assert outcome.stdout == ""
    assert "lies in a workspace and cannot be shielded there" in outcome.stderr.splitlines()[-1]


def test_less_will_not_do_where_something_has_to_be_shielded(workspace: str, identity: Identity) -> None:
    require("strict")
    code = f"""
import os, sys
from manglecp.toolhost.sandbox import Policy, apply, namespaces
def refuse(*_):
    raise OSError(38, "not on this kernel")
namespaces.make_disk_read_only = refuse
os.mkdir({workspace!r} + "/code")
apply("strict", Policy(workspace=({workspace!r},), code=({workspace!r} + "/code",)), degrade=True)
print("started")
"""
    outcome = run("none", code, identity=identity)
    assert outcome.stdout == ""
    assert "cannot be shielded there without a mount namespace" in outcome.stderr.splitlines()[-1]


def test_a_program_of_a_shielded_folder_may_be_named(workspace: str, identity: Identity) -> None:
    program = f"{workspace}/.venv/lib/module.py"
    code = f"""
from manglecp.toolhost.sandbox import Policy
from manglecp.toolhost.sandbox.shielding import find_shield
print(find_shield(Policy(workspace=({workspace!r},), executables=({program!r},))).read_only)
sys.prefix = sys.base_prefix
find_shield(Policy(workspace=({workspace!r},), executables=({program!r},)))
"""
    prepare = PREPARE.format(workspace=workspace) + LIVED_IN.format(workspace=workspace)
    outcome = run("none", code, before=prepare, identity=identity)
    assert outcome.stdout == f"({workspace + '/.venv'!r},)\n", outcome
    assert "a program in a workspace could be written" in outcome.stderr.splitlines()[-1]
