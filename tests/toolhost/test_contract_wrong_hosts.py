"""The conversations can fail: hosts that are wrong on purpose are found out, and nothing else is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from manglecp.cli import cli
from manglecp.conformance import Toolhost, check_toolhost, toolhost_conversations
from manglecp.conformance.patterns import differences
from tests.toolhost.conversation import CASTS
from tests.toolhost.peers import cpp_host

pytestmark = pytest.mark.no_cover

CAST = CASTS / "cpp.toml"
CPP = Toolhost(argv=(sys.executable, "-I", "-S", cpp_host.__file__), plugin=sys.executable).with_cast(CAST)
PLAYABLE = {name: each for name, each in toolhost_conversations().items() if not CPP.missing_roles(each)}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["toolhost", "check", *arguments], catch_exceptions=False)


@contextmanager
def wrong(how: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WRONG", how)
        yield


@pytest.mark.parametrize("name", [name for name, each in PLAYABLE.items() if not each.ours])
def test_the_other_implementation_keeps_to_the_contract(name: str) -> None:
    assert check_toolhost(PLAYABLE[name], CPP) == []


@pytest.mark.parametrize("name", [name for name, each in PLAYABLE.items() if each.ours])
def test_what_is_marked_as_ours_is_not_what_the_other_does(name: str) -> None:
    assert check_toolhost(PLAYABLE[name], replace(CPP, patience=5.0)) != []


@pytest.mark.parametrize("how", cpp_host.WRONGS)
def test_a_host_that_is_wrong_is_found_out(how: str) -> None:
    with wrong(how):
        assert check_toolhost(PLAYABLE[cpp_host.WRONGS[how]], replace(CPP, patience=2.0)) != []


@pytest.mark.parametrize("program", ["pass", "import time; time.sleep(60)", "print('{}')", "import sys; sys.exit(9)"])
def test_a_program_that_is_no_host_is_wrong_and_not_an_error(program: str) -> None:
    host = replace(CPP, argv=(sys.executable, "-I", "-S", "-c", program), plugin="plugin", patience=1.0)
    assert check_toolhost(PLAYABLE["3-serve: an unknown AID"], host) != []
    assert check_toolhost(PLAYABLE["2-run: no request"], host) != []


def test_the_report_has_what_is_wrong_and_what_was_left_out() -> None:
    def check(*options: str) -> tuple[int, str]:
        done = run(*options, sys.executable, "--", *CPP.argv)
        return done.exit_code, done.stdout

    no_request = ("--only", "2-run: no", "--cast", str(CAST))
    assert check(*no_request) == (0, "ok        2-run: no request\n1 ok, 0 wrong, 0 left out\n")
    with wrong("exit 1 for no request"):
        code, report = check(*no_request)
    assert (code, "wrong     2-run: no request\n          the exit status is 1, expected 5" in report) == (1, True)
    keys = ("--without-ours", "--only", "5-idem", "--patience", "9")
    code, report = check(*keys)
    assert "left out  5-idempotency: a key belongs to its input\n          no action has the role counter\n" in report
    code, report = check(*keys, "--cast", str(CAST))
    assert (code, report.endswith("4 ok, 0 wrong, 4 left out\n")) == (0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("plugin", "--", "/no/such/host"), "/no/such/host cannot be executed"),
        (("plugin",), "HOST"),
        (("plugin", "--cast", "/no/such/cast", "--", sys.executable), "/no/such/cast"),
        (("plugin", "--only", "nothing like it", "--", sys.executable), "no conversation"),
    ],
)
def test_what_cannot_be_checked_is_an_error_of_the_command_line(options: tuple[str, ...], message: str) -> None:
    done = run(*options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (True, 1),
        (1, True),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, []),
        ([1], [1, 2]),
        ([1], {}),
        ({"$type": "integer"}, True),
        ({"$type": ["null", "object"]}, []),
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
    with pytest.raises(KeyError, match=r"\$like"):
        list(differences({"$like": 1}, 1))
