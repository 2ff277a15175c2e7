"""No path leads out of the repository, however it is written and whatever is swapped meanwhile (case 26)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from examples.workspace.repository.actions.line_ranges import read_range
from examples.workspace.repository.actions.patches import Edit, apply_patch, check_patch, make_patch
from examples.workspace.repository.actions.roots import Root, path_components
from examples.workspace.repository.actions.text_search import search_text
from examples.workspace.repository.refusal import Refusal
from tests.workspace.acting import context

SECRET = "the secret of somebody else"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository, and beside it what nobody may see."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text(SECRET)
    (root / "inside" / "file.txt").write_text("something\n")
    (root / "link.txt").symlink_to(outside / "file.txt")
    (root / "link").symlink_to(outside)
    (root / "near.txt").symlink_to("inside/file.txt")
    (root / "near").symlink_to("inside")
    return root


NOWHERE = [
    "../outside/file.txt",
    "inside/../../outside/file.txt",
    "inside/../inside/file.txt",
    "./inside/file.txt",
    "inside//file.txt",
    "inside/file.txt/",
    "/etc/passwd",
    "//etc/passwd",
    "",
    ".",
    "..",
    "inside\\file.txt",
    "..\\outside\\file.txt",
    "inside/file.txt\0",
    "inside/fi\nle.txt",
    "inside/\u202efile.txt",
    "inside/\u200bfile.txt",
    "inside/\udc80.txt",
    "x" * 256,
    "x/" * 600 + "x",
    "link.txt",
    "link/file.txt",
    "near.txt",
    "near/file.txt",
    "near/../inside/file.txt",
    ".git/config",
    ".GIT/config",
    ".git./config",
    ".git /config",
    "git~1/config",
    "inside/.git/config",
    "inside",
    "inside/file.txt/x",
]


@pytest.mark.parametrize("path", NOWHERE)
def test_nothing_is_read_or_written_but_plain_files_below_the_root(root: Path, path: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_range(context(root), path)
    assert SECRET not in str(refused.value)
    assert not make_patch(context(root), [Edit(path, new="x\n")])["applies"]
    patch = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    checked = check_patch(context(root), patch)
    assert not checked["applies"]
    with pytest.raises(Refusal):
        apply_patch(context(root), patch, {path: ""})
    assert (root.parent / "outside" / "file.txt").read_text() == SECRET
    assert (root / ".git" / "config").read_text() == SECRET
    assert (root / "inside" / "file.txt").read_text() == "something\n"
    assert sorted(path.name for path in root.parent.iterdir()) == ["outside", "root"]


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "", "a", ".git", "\0", "\\", "~", "-"])).map("/".join)
)
def test_a_path_that_is_plain_is_its_own_normal_form(path: str) -> None:
    try:
        parts = path_components(path)
    except Refusal:
        return
    assert "/".join(parts) == path == os.path.normpath(path)
    assert not path.startswith("/")
    assert ".." not in parts
    assert "\0" not in path


def test_a_root_that_is_a_link_or_none_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(root)
    for where in (str(tmp_path / "other"), str(tmp_path / "nothing"), str(root / "inside/file.txt"), "root", ""):
        with pytest.raises(Refusal), Root.open({"root": where}):
            raise AssertionError("it was opened")


def test_what_is_no_plain_file_is_neither_read_nor_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as talking:
        talking.bind(str(root / "s"))
        for name in ("pipe", "s"):
            with pytest.raises(Refusal):
                read_range(context(root), name)
    assert search_text(context(root), "e")["hits"] == [
        {"path": "inside/file.txt", "line": 1, "column": 4, "text": "something"}
    ]


@contextmanager
def swapping(root: Path, pause: float = 0) -> Iterator[None]:
    """Somebody swaps a folder for a link to another one, and back, as fast as they can but for the pause."""
    other, stop = root / "other", threading.Event()
    other.symlink_to(root.parent / "outside")

    def swap() -> None:
        while not stop.is_set():
            (root / "inside").rename(root / "aside")
            other.rename(root / "inside")
            (root / "inside").rename(other)
            (root / "aside").rename(root / "inside")
            stop.wait(pause)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(root: Path) -> None:
    read = 0
    with swapping(root):
        for _ in range(3_000):
            with suppress(Refusal):
                assert read_range(context(root), "inside/file.txt")["text"] == "something\n"
                read += 1
    assert read, "it was there most of the time"


def test_and_nothing_is_written_there(root: Path) -> None:
    written, text = 0, "something\n"
    with swapping(root, pause=0.001):
        for number in range(300):
            now, text = text, f"{number}\n"
            try:
                made = make_patch(context(root), [Edit("inside/file.txt", old=now, new=text)], refuse=True)
                apply_patch(context(root), made["patch"], made["expected"])
                written += 1
            except Refusal:
                text = now
    assert written, "it was there some of the time"
    assert (root.parent / "outside" / "file.txt").read_text() == SECRET
    assert [path.name for path in (root.parent / "outside").iterdir()] == ["file.txt"]
    assert [path.name for path in (root / "inside").iterdir()] == ["file.txt"], "and nothing is left behind"


def test_a_file_with_a_second_name_elsewhere_is_replaced_and_not_written(root: Path) -> None:
    mine = root / "inside" / "linked.txt"
    mine.hardlink_to(root.parent / "outside" / "file.txt")
    made = make_patch(context(root), [Edit("inside/linked.txt", old=SECRET, new="mine")])
    apply_patch(context(root), made["patch"], made["expected"])
    assert mine.read_text() == "mine"
    assert (root.parent / "outside" / "file.txt").read_text() == SECRET
