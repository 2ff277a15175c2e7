"""A host that locks itself in: honest plugins work in it, the workspace is theirs, and its listing says how it is."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from manglecp.toolhost.sandbox import Policy, Profile

from .confined import NOBODY, Identity, require
from .hosted import HONEST, aid, called, folder_of, host, listed, plugin, request

# ---- honest plugins -------------------------------------------------------------------------------------------------


def test_threads_event_loops_and_late_imports_work(identity: Identity, workspace: str) -> None:
    require("strict")
    with plugin(identity, HONEST) as path:
        (Path(path).parent / "neighbour.py").write_text("NAME = 'neighbour'\n")
        lines = b"".join(request(aid(name)) for name in ("threads", "loop", "imports"))
        done = host(identity, "--serve", path, "--sandbox", "strict", "--workspace", workspace, stdin=lines)
    assert called(done) == [list(range(8)), 3, "neighbour"]


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_the_workspace_is_the_only_place_to_write(profile: Profile, identity: Identity, workspace: str) -> None:
    require(profile)
    with plugin(identity, HONEST) as path, folder_of(identity) as second:
        beside = str(Path(path).parent / "new")
        places = [f"{workspace}/file", "relative", f"{second}/file", beside, path, "/tmp/manglecp-elsewhere"]
        lines = b"".join(request(aid("write"), path=place) for place in places)
        options = ("--sandbox", profile, "--workspace", workspace, "--workspace", second)
        done = host(identity, "--serve", path, *options, stdin=lines)
        assert called(done) == ["written"] * 3 + ["refused"] * 3
        assert Path(path).read_text() == HONEST
        assert {each.name for each in Path(workspace).iterdir()} == {"file", "relative"}


@pytest.mark.parametrize("profile", ["standard", "spawn", "strict"])
def test_the_temporary_folder_belongs_to_one_host(profile: Profile, identity: Identity, workspace: str) -> None:
    """It is a file system that no other process sees."""
    require(profile, Policy(user=(NOBODY, NOBODY)) if os.getuid() == 0 else None)
    degrade = ("--degrade",) if identity.uid == 0 else ()  # the processes of root cannot be limited
    with plugin(identity, HONEST) as path:
        options = ("--sandbox", profile, "--workspace", workspace, *degrade)
        lines = request(aid("leave"), name="left") + request(aid("temporary")) + request(aid("place"))
        done = host(identity, "--serve", path, *options, stdin=lines, environ={"TMPDIR": "/tmp"})
        left, used, place = called(done)
        assert [Path(left).parent, Path(used).parent] == [Path(place[3])] * 2
        assert not Path(left).exists()
        assert not list(Path(workspace).iterdir())


def test_files_of_one_call_are_gone_before_the_next(identity: Identity) -> None:
    require("strict")
    text = HONEST + "\nimport tempfile\nKEPT = tempfile.mkstemp()[1]\n"
    with plugin(identity, text) as path:
        names = ("file", "folder/file", "deep/" * 1_500)
        lines = b"".join(request(aid("leave"), name=name) for name in names) + request(aid("left"))
        left = called(host(identity, "--serve", path, "--sandbox", "strict", stdin=lines))[-1]
    assert len([name for name in left if name != "deep"]) == 1, "the file of the top level is not a call's"


def test_without_a_workspace_relative_paths_fail(identity: Identity) -> None:
    require("strict")
    with plugin(identity, HONEST) as path:
        lines = request(aid("place")) + request(aid("write"), path="relative")
        place, written = called(host(identity, "--serve", path, "--sandbox", "strict", stdin=lines))
    assert (place[0], written) == ("/", "refused")


def test_a_writable_folder_is_not_the_working_one(identity: Identity, workspace: str) -> None:
    require("strict")
    with plugin(identity, HONEST) as path:
        lines = request(aid("place")) + request(aid("write"), path=f"{workspace}/file")
        done = host(identity, "--serve", path, "--sandbox", "strict", "--writable", workspace, stdin=lines)
        place, written = called(done)
    assert (place[0], written) == ("/", "written")


def test_two_plugins_do_not_see_each_other(identity: Identity) -> None:
    require("strict")
    with ExitStack() as stack:
        paths = [stack.enter_context(plugin(identity, HONEST)) for _ in range(2)]
        spaces = [stack.enter_context(folder_of(identity)) for _ in range(2)]
        for space in spaces:
            (Path(space) / "file").write_text("mine")
            (Path(space) / "file").chmod(0o666)
        for own, other in ((0, 1), (1, 0)):
            files = [f"{spaces[own]}/file", f"{spaces[other]}/file", paths[other]]
            lines = b"".join(request(aid(what), path=file) for what in ("read", "write") for file in files)
            options = ("--sandbox", "strict", "--workspace", spaces[own])
            done = host(identity, "--serve", paths[own], *options, stdin=lines)
            assert called(done) == ["mine", "refused", "refused", "written", "refused", "refused"]


def test_what_was_named_can_be_read(identity: Identity) -> None:
    require("strict")
    with plugin(identity, HONEST) as path, folder_of(identity) as data:
        (Path(data) / "known").write_text("known")
        lines = request(aid("read"), path=f"{data}/known") + request(aid("write"), path=f"{data}/known")
        done = host(identity, "--serve", path, "--sandbox", "strict", "--readable", data, stdin=lines)
    assert called(done) == ["known", "refused"]


def test_the_host_leads_its_group_and_stands_in_the_workspace(identity: Identity, workspace: str) -> None:
    require("strict")
    with plugin(identity, HONEST) as path:
        line = request(aid("place"))
        free = host(identity, "--serve", path, stdin=line)
        confined = host(identity, "--serve", path, "--sandbox", "strict", "--workspace", workspace, stdin=line)
    assert called(free)[0][1] != 0  # otherwise the next line would show nothing
    assert called(confined) == [[workspace, 0, identity.uid, "/dev/shm"]]


@pytest.mark.parametrize("why", ["a home", "above a home", "world-writable"])
def test_a_folder_that_is_shared_is_not_opened(why: str, identity: Identity) -> None:
    """A plugin that lies in one can read its own file and nothing else of it, unless the folder is named."""
    require("strict")
    with plugin(identity, HONEST) as path:
        folder = Path(path).parent
        (folder / "secret").write_text("secret")
        environ = {}
        if why == "world-writable":
            folder.chmod(0o1777)
        else:
            environ = {"HOME": str(folder if why == "a home" else folder / "deep")}
        lines = request(aid("read"), path=f"{folder}/secret") + request(aid("read"), path=path)
        options = ("--serve", path, "--sandbox", "strict")
        assert called(host(identity, *options, stdin=lines, environ=environ)) == ["refused", HONEST]
        named = host(identity, *options, "--readable", str(folder), stdin=lines, environ=environ)
        assert called(named) == ["secret", HONEST]
        assert called(host(identity, *options, stdin=lines))[0] == ("refused" if not environ else "secret")


@pytest.mark.parametrize("name", ["manglecp_lone.py", "manglecp_lone/__init__.py"])
def test_a_plugin_in_the_folder_of_all_opens_only_itself(name: str, identity: Identity) -> None:
    require("strict")
    with folder_of(identity) as room:
        Path(room).chmod(0o1777)
        own = Path(room) / name
        own.parent.mkdir(exist_ok=True)
        own.write_text(HONEST)
        (Path(room) / "secret").write_text("secret")
        for place in (own.parent, own):
            if place != Path(room):
                place.chmod(0o755)
        lines = b"".join(request("AID.MANGLECP_LONE.READ.v1", path=str(each)) for each in (own, f"{room}/secret"))
        done = host(identity, "--serve", str(own), "--sandbox", "strict", stdin=lines)
    assert called(done) == [HONEST, "refused"]


def test_a_plugin_cannot_change_itself_in_its_workspace(identity: Identity) -> None:
    require("strict")
    with folder_of(identity) as project:
        own = Path(project) / "tools" / "plugin.py"
        own.parent.mkdir()
        own.write_text(HONEST)
        for place in (own.parent, own):
            place.chmod(0o777)
        own.parent.chmod(0o755)
        lines = b"".join(request(aid("write"), path=path) for path in (str(own), f"{project}/file"))
        done = host(identity, "--serve", str(own), "--sandbox", "strict", "--workspace", project, stdin=lines)
        assert called(done) == ["refused", "written"]
        assert own.read_text() == HONEST


def test_limits_are_those_that_were_asked_for(identity: Identity) -> None:
    require("strict")
    text = """
import resource
from manglecp import action

@action(effects=["none"])
def limits() -> list[int]:
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)
    return [resource.getrlimit(kind)[0] for kind in kinds]
"""
    asked = {"memory": 1 << 30, "file-size": 4096, "open-files": 99, "cpu-seconds": 77}
    options = [word for name, value in asked.items() for word in ("--limit", f"{name}={value}")]
    with plugin(identity, text) as path:
        serve = ("--serve", path, "--sandbox", "strict")
        (given,) = called(host(identity, *serve, *options, stdin=request(aid("limits"))))
        (default,) = called(host(identity, *serve, stdin=request(aid("limits"))))
    assert given == list(asked.values())
    assert default[3] == -1  # nobody is killed for the work of those who were served before


def test_a_module_brings_the_folder_that_it_was_found_in(identity: Identity) -> None:
    """Also one in a package, whose own top level runs, and runs locked in."""
    require("strict")
    with folder_of(identity) as root:
        package = Path(root) / "some" / "inner"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").write_text("import os, sys\nsys.stderr.write(str(os.access('/', os.W_OK)))\n")
        (package / "__init__.py").touch()
        (package / "neighbour.py").write_text("NAME = 'neighbour'\n")
        (package / "tools.py").write_text(HONEST.replace("import neighbour", "from some.inner import neighbour"))
        for place in (package.parent, *package.parent.rglob("*")):
            place.chmod(0o755)
        lines = request("AID.TOOLS.IMPORTS.v1") + request("AID.TOOLS.READ.v1", path="/etc/passwd")
        done = host(identity, "--serve", "some.inner.tools", "--sandbox", "strict", stdin=lines, beside=root)
    assert called(done) == ["neighbour", "refused"]
    assert done.stderr == "False"


# ---- what a listing says --------------------------------------------------------------------------------------------


def test_a_listing_says_how_the_host_is_locked_in(identity: Identity) -> None:
    require("strict")
    with plugin(identity, HONEST) as path:
        assert listed(host(identity, "--list", path))["sandbox"] == {"profile": "none", "active": [], "missing": {}}
        sandbox = listed(host(identity, "--list", path, "--sandbox", "strict"))["sandbox"]
    assert (sandbox["profile"], sandbox["missing"]) == ("strict", {})
    needed = {"network_namespace", "mount_namespace", "capabilities", "landlock_files", "limits", "seccomp"}
    assert needed <= set(sandbox["active"])
