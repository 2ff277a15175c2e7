"""Patches: made from edits, tried, applied to all files or none, and taken back."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, strategies as st

from examples.workspace.repository.actions import atomic_swap
from examples.workspace.repository.actions.diffs import apply_diff, format_diff, read_diff, reverse_diff
from examples.workspace.repository.actions.patches import Edit, apply_patch, check_patch, make_patch, revert_patch
from examples.workspace.repository.refusal import Refusal
from tests.effort import examples
from tests.workspace.acting import context

FILES = {"a.py": "one\ntwo\nthree\n", "lib/b.py": "x = 1\ny = 2\n", "gone.txt": "last\nlines"}
EDITS = [
    Edit("a.py", old="two\n", new="2\n2b\n"),
    Edit("lib/b.py", old="y = 2", new="y = 3"),
    Edit("gone.txt", delete=True),
    Edit("new/deep/c.py", new="made\n"),
    Edit("lib/b.py", old="x = 1", new="x = 0"),
]
AFTER = {"a.py": "one\n2\n2b\nthree\n", "lib/b.py": "x = 0\ny = 3\n", "new/deep/c.py": "made\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "lib/b.py").chmod(0o755)
    (root / "gone.txt").chmod(0o600)
    return root


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def modes(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()
    }


def test_edits_become_a_patch_that_is_applied_and_taken_back(root: Path) -> None:
    before, rights = tree(root), modes(root)
    made = make_patch(context(root), EDITS)
    assert made["applies"], made["problems"]
    assert tree(root) == before
    assert {(one["path"], one["kind"], one["added"], one["removed"]) for one in made["files"]} == {
        ("a.py", "changed", 2, 1),
        ("lib/b.py", "changed", 2, 2),
        ("gone.txt", "deleted", 0, 2),
        ("new/deep/c.py", "new", 1, 0),
    }
    assert made["expected"]["new/deep/c.py"] == made["after"]["gone.txt"] == ""
    done = apply_patch(context(root), made["patch"], made["expected"])
    assert tree(root) == AFTER
    assert done["after"] == made["after"]
    assert modes(root)["lib/b.py"] == 0o755
    undone = revert_patch(context(root), done["backup"])
    assert (tree(root), modes(root)) == (before, rights)
    assert not (root / "new").exists(), "folders that were made for it are gone as well"
    revert_patch(context(root), undone["backup"])
    assert tree(root) == AFTER, "and taking back can be taken back"


def test_git_understands_the_patch(root: Path) -> None:
    patch = make_patch(context(root), EDITS)["patch"]
    subprocess.run(["git", "apply", "-"], cwd=root, input=patch.encode(), check=True, timeout=60)
    assert tree(root) == AFTER


def test_and_what_git_writes_is_understood(root: Path) -> None:
    other = root.parent / "other"
    for name, text in AFTER.items():
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(text)
    (other / "lib/b.py").chmod(0o755)
    argv = ["git", "diff", "--no-index", "--no-renames", "--no-prefix", "root", "other"]
    said = subprocess.run(argv, cwd=root.parent, capture_output=True, text=True, timeout=60, check=False).stdout
    patch = said.replace(" root/", " a/").replace(" other/", " b/")
    checked = check_patch(context(root), patch)
    assert checked["applies"], checked["problems"]
    apply_patch(context(root), patch, checked["expected"])
    assert tree(root) == AFTER


def test_applying_again_changes_nothing_and_says_the_same(root: Path) -> None:
    """After an outcome that nobody knows, the same call is made again."""
    made = make_patch(context(root), EDITS)
    first = apply_patch(context(root), made["patch"], made["expected"])
    again = apply_patch(context(root), made["patch"], made["expected"])
    first["backup"]["modes"] = again["backup"]["modes"]  # that of a file that is gone cannot be known any more
    assert again == first
    assert tree(root) == AFTER
    revert_patch(context(root), first["backup"])
    revert_patch(context(root), first["backup"])
    assert tree(root) == FILES


def test_a_patch_is_for_the_files_that_it_was_made_for(root: Path) -> None:
    made = make_patch(context(root), EDITS)
    (root / "a.py").write_text("one\ntwo\nthree\nfour\n")
    before = tree(root)
    checked = check_patch(context(root), made["patch"], made["expected"])
    assert [one["path"] for one in checked["problems"]] == ["a.py"]
    with pytest.raises(Refusal, match=r"'a\.py' is not the file that the patch was made for"):
        apply_patch(context(root), made["patch"], made["expected"])
    assert tree(root) == before
    with pytest.raises(Refusal, match="the hashes are not those of the files in the patch"):
        apply_patch(context(root), made["patch"], {"a.py": made["expected"]["a.py"]})


def test_work_that_was_done_since_is_not_taken_back(root: Path) -> None:
    made = make_patch(context(root), EDITS)
    done = apply_patch(context(root), made["patch"], made["expected"])
    (root / "a.py").write_text("zero\none\n2\n2b\nthree\n")
    before = tree(root)
    with pytest.raises(Refusal, match="has changed since"):
        revert_patch(context(root), done["backup"])
    assert tree(root) == before
    revert_patch(context(root), done["backup"], force=True)
    assert (root / "a.py").read_text() == "zero\none\ntwo\nthree\n", "what was added since is kept"
    (root / "a.py").write_text("all new\n")
    before = tree(root)
    with pytest.raises(Refusal, match="its lines are not in the file"):
        revert_patch(context(root), done["backup"], force=True)
    assert tree(root) == before


def _patched(root: Path, edits: list[Edit]) -> tuple[str, dict[str, str]]:
    made = make_patch(context(root), edits)
    return made["patch"], made["expected"]


@pytest.mark.parametrize(
    ("what", "step"), [*(("stage", step) for step in range(3)), *(("swap", step) for step in range(4))]
)
def test_whatever_fails_all_files_are_as_they_were(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: int, what: str
) -> None:
    """Each write and each swap of the change fails once."""
    patch, expected = _patched(root, EDITS)
    before, rights, folders = tree(root), modes(root), sorted(map(str, root.rglob("*")))
    count = 0

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def perhaps(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step + 1:
                raise OSError(28, "No space left on device")
            return call(*args, **options)

        return perhaps

    if what == "stage":
        monkeypatch.setattr(os, "fsync", failing(os.fsync))
    else:
        monkeypatch.setattr(atomic_swap, "_rename", failing(atomic_swap._rename))
    with pytest.raises(Refusal, match="No space left"):
        apply_patch(context(root), patch, expected)
    assert (tree(root), modes(root)) == (before, rights)
    assert sorted(map(str, root.rglob("*"))) == folders


def test_an_end_in_between_is_finished_by_the_same_call(root: Path) -> None:
    """The process dies after each number of swaps; whoever comes next makes the same call."""
    patch, expected = _patched(root, EDITS)
    for swaps in range(4):
        said = json.dumps([str(root), patch, expected, swaps])
        argv = [sys.executable, "-c", DYING, said]
        done = subprocess.run(argv, cwd=Path(__file__).parents[2], timeout=60, check=False)
        assert done.returncode == 9
        again = apply_patch(context(root), patch, expected)
        assert tree(root) == AFTER, "and nothing is left beside the files"
        revert_patch(context(root), again["backup"])
        assert tree(root) == FILES


DYING = """
import json, os, sys
from examples.workspace.repository.actions import atomic_swap, patches
from manglecp.toolhost.context import Context, Reports

root, patch, expected, swaps = json.loads(sys.argv[1])
rename, made = atomic_swap._rename, []


def dying(*args):
    if len(made) == swaps:
        os._exit(9)
    rename(*args)
    made.append(args)


atomic_swap._rename = dying
patches.apply_patch(Context({}, Reports(None), {}, {"root": root}), patch, expected)
"""


@pytest.mark.parametrize("by", ["edit", "replacement", "link", "removal"])
def test_what_somebody_else_writes_at_that_moment_is_not_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    patch, expected = _patched(root, EDITS)
    swap, first = atomic_swap._rename, True

    def interfering(folder: int, old: str, new: str, flags: int) -> None:
        nonlocal first
        if "b.py" in (old, new) and first:
            first = False
            target = root / "lib/b.py"
            if by == "edit":
                target.write_text("theirs\n")
            else:
                target.unlink()
            if by == "replacement":
                target.write_text("theirs\n")
            elif by == "link":
                target.symlink_to("/etc/passwd")
        swap(folder, old, new, flags)

    monkeypatch.setattr(atomic_swap, "_rename", interfering)
    with pytest.raises(Refusal):
        apply_patch(context(root), patch, expected)
    left = {name: text for name, text in tree(root).items() if name != "lib/b.py"}
    assert left == {"a.py": FILES["a.py"], "gone.txt": FILES["gone.txt"]}
    theirs = root / "lib/b.py"
    match by:
        case "edit" | "replacement":
            assert theirs.read_text() == "theirs\n"
        case "link":
            assert str(theirs.readlink()) == "/etc/passwd"
        case _:
            assert not theirs.exists()


def test_two_changes_at_a_time_are_made_one_after_the_other(root: Path) -> None:
    """Of many that were made for the same file, exactly one is applied."""
    (root / "n.txt").write_text("0\n")
    patches = [_patched(root, [Edit("n.txt", old="0", new=str(n + 1))]) for n in range(6)]

    def try_it(patched: tuple[str, dict[str, str]]) -> bool:
        try:
            apply_patch(context(root), *patched)
        except Refusal:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        done = list(threads.map(try_it, patches))
    assert done.count(True) == 1
    assert (root / "n.txt").read_text() == f"{done.index(True) + 1}\n"


def test_a_change_waits_for_another_and_not_for_ever(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_swap, "_PATIENCE", 0.1)
    patch, expected = _patched(root, EDITS)
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Refusal, match="another change of this repository is in progress"):
            apply_patch(context(root), patch, expected)
        assert tree(root) == FILES
    finally:
        os.close(descriptor)
    apply_patch(context(root), patch, expected)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (Edit("a.py", old="four", new="4"), "the old text does not occur"),
        (Edit("a.py", old="t", new="T"), r"occurs 2 times \(lines 2, 3\)"),
        (Edit("a.py", new="x"), "already exists"),
        (Edit("b.py", old="x", new="y"), "there is no file 'b.py'"),
        (Edit("b.py", delete=True), "there is no file 'b.py'"),
        (Edit("a.py", old="one", delete=True), "must have neither old nor new text"),
        (Edit("a.py", old="one", new="one"), "change nothing"),
        (Edit("a.py", old="one", new="[redacted: token]"), "mark of a redacted secret"),
        (Edit("binary", old="a", new="b"), "is binary"),
        (Edit("latin", old="a", new="b"), "not UTF-8 text: byte 1"),
        (Edit("keys.conf", old="TOKEN", new="NAME"), "has to do with a secret"),
        (Edit("a.py", old="one", new="PASSWORD = 'x7Gq9zLp2Wk4'"), "has to do with a secret"),
    ],
)
def test_edits_that_do_not_fit_say_why(root: Path, edit: Edit, problem: str) -> None:
    (root / "binary").write_bytes(b"a\0b")
    (root / "latin").write_bytes(b"a\xe4b")
    (root / "keys.conf").write_text("API_TOKEN=x7Gq9zLp2Wk4\n")
    made = make_patch(context(root), [edit])
    assert not made["applies"]
    assert made["patch"] == ""
    with pytest.raises(Refusal, match=problem):
        raise Refusal(made["problems"][0]["problem"])


def test_lines_end_as_they_did(root: Path) -> None:
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (root / "both.txt").write_bytes(b"one\r\ntwo\n")
    apply_patch(context(root), *_patched(root, [Edit("dos.txt", old="one\ntwo\n", new="1\n2\n2b\n")]))
    assert (root / "dos.txt").read_bytes() == b"1\r\n2\r\n2b\r\nthree\r\n"
    apply_patch(context(root), *_patched(root, [Edit("dos.txt", old="2b\r\nthree", new="3\r\n4")]))
    assert (root / "dos.txt").read_bytes() == b"1\r\n2\r\n3\r\n4\r\n"
    assert not make_patch(context(root), [Edit("both.txt", old="one\ntwo", new="x")])["applies"]
    apply_patch(context(root), *_patched(root, [Edit("both.txt", old="two\n", new="2\n")]))
    assert (root / "both.txt").read_bytes() == b"one\r\n2\n"


def test_a_change_is_about_the_files_that_were_named(root: Path) -> None:
    named = ["a.py", "new/deep/c.py", "gone.txt"]
    made = make_patch(context(root), EDITS, only=named)
    assert [one["path"] for one in made["problems"]] == ["lib/b.py", "lib/b.py"]
    with pytest.raises(Refusal, match=r"'lib/b\.py' is not among the files of the intent"):
        make_patch(context(root), EDITS, only=named, refuse=True)
    assert make_patch(context(root), EDITS, only=[*named, "lib/b.py"], refuse=True)["applies"]
    assert not make_patch(context(root), EDITS, only=[])["applies"]


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("nothing", "line 1 of the patch ('nothing') is not part"),
        ("", "changes nothing"),
        ("--- a/a.py\n", "should be '+++ b/PATH'"),
        ("--- a/a.py\n+++ b/a.py\n", "no hunk for 'a.py'"),
        ("--- a/a.py\n+++ b/a.py\n@@ nonsense @@\n", "should be '@@ -LINE,COUNT"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n-one\n+1\n", "counts more lines than its hunk has"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+1\n two\n", "has line counts that do not match"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n*one\n", "should begin with ' ', '+' or '-'"),
        ("--- a/a.py\n+++ b/b.py\n@@ -1 +1 @@\n-one\n+1\n", "to rename it, delete it and create another"),
        ("rename from a.py\nrename to b.py\n", "renames a file"),
        ("old mode 100644\nnew mode 100755\n", "changes a file mode"),
        ("Binary files a/x and b/x differ\n", "binary"),
        ('--- "a/a.py"\n+++ "b/a.py"\n', "quoted file name"),
        ("--- /dev/null\n+++ /dev/null\n", "names /dev/null as both"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-four\n+4\n", "its lines are not in the file"),
        ("--- a/a.py\n+++ b/a.py\n@@ -9,0 +10 @@\n+4\n", "after the end"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "has lines that the patch does not delete"),
        ("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+one\n", "already exists"),
        ("--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-one\n+1\n", "there is no file 'b.py'"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+[redacted: token]\n", "mark of a redacted secret"),
        ("--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+1\n" * 2, "one file twice"),
    ],
)
def test_patches_that_do_not_fit_say_why(root: Path, patch: str, problem: str) -> None:
    before = tree(root)
    checked = check_patch(context(root), patch)
    assert not checked["applies"]
    assert problem in checked["problems"][0]["problem"]
    with pytest.raises(Refusal):
        apply_patch(context(root), patch, dict.fromkeys(["a.py"], ""))
    assert tree(root) == before


def test_a_hunk_moves_to_the_only_other_place_where_its_lines_are(root: Path) -> None:
    patch = "--- a/a.py\n+++ b/a.py\n@@ -7 +7 @@\n-three\n+3\n"
    checked = check_patch(context(root), patch)
    assert checked["applies"]
    apply_patch(context(root), patch, checked["expected"])
    assert (root / "a.py").read_text() == "one\ntwo\n3\n"
    (root / "a.py").write_text("x\nx\n")
    assert "fits at 2 places" in check_patch(context(root), patch.replace("three", "x"))["problems"][0]["problem"]


def test_a_hunk_moves_with_the_one_before_it(root: Path) -> None:
    """Its lines are at two places, but the file has grown by two lines above both hunks."""
    lines = ["a\n", "dup\n", "b\n", "dup\n", "c\n"]
    patch = format_diff("a.py", "".join(lines), "A\ndup\nb\nDUP\nc\n", context=0)
    (root / "a.py").write_text("".join(["1\n", "2\n", *lines]))
    checked = check_patch(context(root), patch)
    apply_patch(context(root), patch, checked["expected"])
    assert (root / "a.py").read_text() == "1\n2\nA\ndup\nb\nDUP\nc\n"


def test_nobody_guesses_a_secret_by_trying_edits(root: Path) -> None:
    """Whatever is said to be there, right or wrong, the answer is the same."""
    secret = "x7Gq9zLp2Wk4"
    (root / "s.conf").write_text(f"A=1\nAPI_TOKEN={secret}\nB=2\n")
    tried = ("TOKEN=x", "TOKEN=y", "TOKEN=x7", "B=2", secret, "")
    told = [make_patch(context(root), [Edit("s.conf", old=old, new="B=3")]) for old in tried]
    told += [make_patch(context(root), [Edit("s.conf", delete=True)])]
    assert {str(one["problems"]) for one in told} == {str(told[0]["problems"])}
    assert "has to do with a secret" in str(told[0]["problems"])
    patches = (f"-API_TOKEN={secret}\n+A\n", "-API_TOKEN=other7Gq9zLp2\n+A\n", "-A=1\n+A=2\n")
    checked = [check_patch(context(root), f"--- a/s.conf\n+++ b/s.conf\n@@ -1 +1 @@\n{each}") for each in patches]
    assert {str(one["problems"]) for one in checked} == {str(told[0]["problems"])}


@pytest.mark.parametrize("path", ["Conf/Main.TOML", "conf/a", "deep/key.PEM", "\uff23onf/x", "STRASSE/x", "straße/x"])
def test_what_is_protected_is_so_in_every_spelling(root: Path, path: str) -> None:
    """A file system may take names for one that differ in the case of letters, or in how a letter is made up."""
    here = context(root, protected="CONF/ *.pem Straße/")
    made = make_patch(here, [Edit(path, new="x\n")])
    assert [one["problem"] for one in made["problems"]] == [f"{path!r} is protected: a person has to change it"]
    made = make_patch(context(root), [Edit(path, new="x\n")])
    with pytest.raises(Refusal, match="is protected"):
        apply_patch(here, made["patch"], made["expected"])
    assert tree(root) == FILES


LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "\n", "c d\n", "-\n", "+ x\n", "\r\n", "@@ -1 +1 @@\n", "\x0c\n"]), max_size=12
)
TEXT = st.tuples(LINES, st.sampled_from(["", "end", "-end"])).map(lambda parts: "".join(parts[0]) + parts[1])


@given(TEXT, TEXT, st.integers(0, 3))
@examples(300, suppress_health_check=[HealthCheck.too_slow])
def test_a_diff_leads_from_one_text_to_the_other_and_back(before: str, after: str, around: int) -> None:
    text = format_diff("f", before, after, around)
    if before == after:
        assert text == ""
        return
    (diff,) = read_diff(text)
    assert apply_diff(diff, before, exact=True) == after
    assert apply_diff(reverse_diff(diff), after, exact=True) == before


def test_a_long_change_is_told_without_comparing_everything() -> None:
    before = "".join(f"{n}\n" for n in range(20_000))
    after = "".join(f"{n * 3 if 100 < n < 19_000 else n}\n" for n in range(20_000))
    (diff,) = read_diff(format_diff("f", before, after))
    assert apply_diff(diff, before, exact=True) == after
