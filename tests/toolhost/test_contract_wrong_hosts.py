"""The conversations can fail: hosts that are wrong on purpose are found out, and nothing else is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.toolhost.conversations import __main__ as command_line
from tests.toolhost.conversations.matching import differences
from tests.toolhost.conversations.playing import Host, play
from tests.toolhost.conversations.script import SCRIPTS, Conversation, conversations, read_cast
from tests.toolhost.peers import cpp_host

pytestmark = pytest.mark.no_cover

CAST = SCRIPTS.parent / "casts" / "cpp.toml"
CPP = Host((sys.executable, "-I", "-S", cpp_host.__file__), sys.executable, read_cast(CAST))
PLAYABLE = [each for each in conversations() if CPP.cast.plays(each)]
SCRIPTED = {f"{each.script}: {each.name}": each for each in PLAYABLE}


@contextmanager
def wrong(how: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WRONG", how)
        yield


@pytest.mark.parametrize("conversation", [each for each in PLAYABLE if not each.ours], ids=lambda each: each.name)
def test_the_other_implementation_keeps_to_the_contract(conversation: Conversation) -> None:
    assert play(conversation, CPP) == []


@pytest.mark.parametrize("conversation", [each for each in PLAYABLE if each.ours], ids=lambda each: each.name)
def test_what_is_marked_as_ours_is_not_what_the_other_does(conversation: Conversation) -> None:
    assert play(conversation, CPP, patience=5) != []


@pytest.mark.parametrize("how", cpp_host.WRONGS)
def test_a_host_that_is_wrong_is_found_out(how: str) -> None:
    with wrong(how):
        assert play(SCRIPTED[cpp_host.WRONGS[how]], CPP, patience=2) != []


def test_a_program_that_is_no_host_is_a_finding_and_not_an_error() -> None:
    for program in ("pass", "import time; time.sleep(60)", "print('{}')", "import sys; sys.exit(9)"):
        host = Host((sys.executable, "-I", "-S", "-c", program), "plugin", CPP.cast)
        assert play(SCRIPTED["3-serve: an unknown AID"], host, patience=1) != []
        assert play(SCRIPTED["2-run: no request"], host, patience=1) != []


def test_the_report_says_what_is_wrong_and_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [sys.executable, "--only", "2-run: no", "--", *CPP.argv]
    assert command_line.main(argv) == 0
    assert capsys.readouterr().out == "ok        2-run: no request\n1 ok, 0 wrong, 0 left out\n"
    with wrong("exit 1 for no request"):
        assert command_line.main(argv) == 1
    said = capsys.readouterr().out
    assert "wrong     2-run: no request\n          the exit status is 1, expected 5" in said
    only = [sys.executable, "--without-ours", "--only", "5-idem", "--patience", "9", "--", *CPP.argv]
    assert command_line.main(only) == 0
    assert "left out  5-idempotency: a key belongs to its input\n          nobody plays counter\n" in (
        capsys.readouterr().out
    )
    only[1:1] = ["--cast", str(CAST)]
    assert command_line.main(only) == 0
    assert capsys.readouterr().out.endswith("4 ok, 0 wrong, 4 left out\n")


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (True, 1),
        (1, True),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, []),
        ([1], [1, 2]),
        ([1], {}),
        ({"$type": "text"}, ""),
        ({"$type": "integer"}, True),
        ({"$type": "null or object"}, []),
        ({"$matches": "a.b"}, "ab"),
        ({"$matches": "a"}, 1),
        ({"$json": "{}"}, "[]"),
        ({"$json": "{}"}, "{"),
        ({"$json": "{}"}, {}),
        ({"$exactly": {"a": 1}}, {"a": 1, "b": 2}),
        ({"$exactly": {"a": 1}}, {"a": 2}),
        ({"$keys": ["a"]}, {"a": 1, "b": 1}),
        ({"$each": {"a": 1}}, []),
        ({"$each": {"a": 1}}, [{"a": 1}, {"a": 2}]),
        ({"$ascending": "a"}, [{"a": 2}, {"a": 1}]),
        ({"$absent": True}, True),
        ({"$absent": True}, None),
        ({"a": {"$not": 1}}, {}),
        ({"$not": 1}, 1),
        ({"$at_least": 1}, 0),
        ({"$at_least": 0}, True),
    ],
)
def test_what_is_not_expected_differs(expected: object, found: object) -> None:
    assert list(differences(expected, found))


def test_what_is_expected_does_not_differ() -> None:
    found = {"n": 1, "t": "a-b", "j": '{"x": 1}', "o": {"k": []}, "l": [{"a": 1}, {"a": 2}], "more": None, "f": False}
    expected = {
        "n": {"$at_least": 1},
        "t": {"$matches": "a.b"},
        "j": {"$json": '{"x":1}'},
        "o": {"$exactly": {"k": []}},
        "l": {"$each": {"a": {"$type": "integer"}}},
        "f": {"$absent": True},
        "gone": {"$absent": True},
        "more": {"$not": 1},
    }
    assert list(differences(expected, found)) == []
    assert list(differences({"$ascending": "a"}, found["l"])) == []


def test_a_test_that_is_none_is_an_error_of_the_script() -> None:
    with pytest.raises(ValueError, match=r"\$like is no test"):
        list(differences({"$like": 1}, 1))
