"""Profile `spawn`: named programs start, others do not, and what is started is confined as the worker is."""

import os
import shutil

import pytest

from manglecp.toolhost.sandbox import Policy
from manglecp.toolhost.sandbox.landlock import files_to_execute

from .confined import NOBODY, Identity, Outcome, identities, require, run

SHELL = os.path.realpath("/bin/sh")
CAT = os.path.realpath(shutil.which("cat") or "/bin/cat")
# Root's processes are not counted by the kernel, so a worker of root has to become somebody else.
AS_NOBODY = (NOBODY, NOBODY) if os.getuid() == 0 else None


@pytest.fixture(params=[each for each in identities() if each.uid != 0], ids=lambda identity: identity.name)
def identity(request: pytest.FixtureRequest) -> Identity:
    chosen: Identity = request.param
    return chosen


def spawn(code: str, workspace: str, identity: Identity, *executables: str, processes: int = 64) -> Outcome:
    require("spawn", Policy(user=AS_NOBODY))
    policy = Policy(workspace=(workspace,), executables=executables, processes=processes)
    return run("spawn", f"WORKSPACE = {workspace!r}\n{code}", policy, before="import subprocess", identity=identity)


def test_a_named_program_starts_and_its_output_is_read(workspace: str, identity: Identity) -> None:
    code = f"print(subprocess.run([{SHELL!r}, '-c', 'echo hello'], capture_output=True, check=True).stdout)"
    outcome = spawn(code, workspace, identity, SHELL)
    assert outcome.stdout == "b'hello\\n'\n", outcome


def test_metacharacters_are_arguments(workspace: str, identity: Identity) -> None:
    argument = "; touch owned $(id) `id` | & > x\n"
    code = (
        f"print(subprocess.run([{SHELL!r}, '-c', 'printf %s \"$1\"', 'sh', {argument!r}], stdout=-1).stdout.decode())"
    )
    outcome = spawn(code, workspace, identity, SHELL)
    assert outcome.stdout == argument + "\n", outcome


@pytest.mark.parametrize("how", ["directly", "by a copy in the workspace", "from memory"])
def test_another_program_does_not(how: str, workspace: str, identity: Identity) -> None:
    code = f"""
import os, shutil
try:
    if {how!r} == "from memory":
        os.memfd_create("program")
    elif {how!r} == "directly":
        subprocess.run([{CAT!r}, "/dev/null"])
    else:
        shutil.copy({SHELL!r}, WORKSPACE + "/copy")
        os.chmod(WORKSPACE + "/copy", 0o755)
        subprocess.run([WORKSPACE + "/copy", "-c", "true"])
except PermissionError:
    print("stopped")
else:
    print("worked")
"""
    outcome = spawn(code, workspace, identity, SHELL)
    assert outcome.stdout == "stopped\n", outcome


def test_the_loader_does_not_run_what_was_written(workspace: str, identity: Identity) -> None:
    """The loader of a named program can be started; it maps what it is given, and a workspace holds no code."""
    _, loader = files_to_execute(SHELL)
    code = f"""
import shutil
shutil.copy({SHELL!r}, WORKSPACE + "/copy")
for program in ({SHELL!r}, WORKSPACE + "/copy"):
    print(subprocess.run([{loader!r}, program, "-c", "echo hello"], capture_output=True).stdout)
"""
    outcome = spawn(code, workspace, identity, SHELL)
    assert outcome.stdout == "b'hello\\n'\nb''\n", outcome


@pytest.mark.parametrize(
    "script",
    ["cat /etc/passwd", "read line < /etc/passwd", ": > /tmp/manglecp-child", "kill -CONT $VICTIM", f"{CAT} /dev/null"],
)
def test_children_are_confined_too(script: str, workspace: str, identity: Identity) -> None:
    code = f"""
import os
script = {script!r}.replace("$VICTIM", str(os.getppid()))
print(subprocess.run([{SHELL!r}, "-c", script], stderr=subprocess.DEVNULL).returncode != 0)
"""
    outcome = spawn(code, workspace, identity, SHELL)
    assert outcome.stdout == "True\n", outcome


def test_children_write_in_the_workspace(workspace: str, identity: Identity) -> None:
    code = f"print(subprocess.run([{SHELL!r}, '-c', 'echo x > \"$0/file\"', WORKSPACE]).returncode)"
    outcome = spawn(code, workspace, identity, SHELL)
    assert outcome.stdout == "0\n", outcome


def test_a_worker_ends_its_own_children(workspace: str, identity: Identity) -> None:
    code = f"""
child = subprocess.Popen([{CAT!r}], stdin=subprocess.PIPE)
child.kill()
print(child.wait())
"""
    outcome = spawn(code, workspace, identity, CAT)
    assert outcome.stdout == "-9\n", outcome


FORK_BOMB = """
import os, time
count = 0
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
        count += 1
except BlockingIOError:
    print(count < 10)
"""


def test_a_fork_bomb_is_bounded(workspace: str, identity: Identity) -> None:
    outcome = spawn(FORK_BOMB, workspace, identity, processes=10)
    assert outcome.stdout == "True\n", outcome


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_root_becomes_somebody_else() -> None:
    require("spawn", Policy(user=AS_NOBODY))
    outcome = run("spawn", FORK_BOMB, Policy(user=AS_NOBODY, processes=10), before="import os, time")
    assert outcome.stdout == "True\n", outcome


@pytest.mark.skipif(os.getuid() != 0, reason="the processes of everybody else are counted")
def test_root_itself_is_refused() -> None:
    outcome = run("spawn", "print('started')")
    assert outcome.returncode != 0
    assert "process_limit: the kernel does not limit the processes of root" in outcome.stderr
    assert "started" not in outcome.stdout
