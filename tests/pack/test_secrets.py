"""The secrets of a pack: declared in ``pack.toml``, taken by functions, supplied by the operator."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manglecp.base.redaction import SecretValue
from manglecp.pack import Problems, SecretError, SecretProvider, SecretSource, SecretUse, read_pack, read_toml
from manglecp.pack.secrets import read_secret_sources
from tests.pack.folders import RULES, problems, write

HEAD = "from typing import Annotated\nfrom manglecp import Secret, action, external, facts\n"
HELLO = '@action(effects=[])\ndef hello(name: str, token: Annotated[str, Secret("{}")]{}) -> str:\n    """Say."""\n'
TEXT = HEAD + HELLO + "    return name\n"
BASE = {"rules/a.mg": RULES}


def sources(text: str) -> tuple[dict[str, SecretSource], list[str]]:
    found = Problems()
    read = read_secret_sources(read_toml("server.toml", text, found).section("secrets"))
    return read, [each.message for each in found._sorted()]


def provider(kind: str, *words: str) -> SecretProvider:
    return SecretProvider({"TOKEN": SecretSource(kind, words)})  # type: ignore[arg-type]  # one of the three


def value(secrets: SecretProvider) -> SecretValue:
    (found,) = secrets.values([SecretUse("TOKEN", True)])
    return found


def test_a_secret_is_no_input(tmp_path: Path) -> None:
    files = {**BASE, "pack.toml": '[secrets.TOKEN]\ndescription = "of the API"\n'}
    pack = read_pack(write(tmp_path, {**files, "actions.py": TEXT.format("TOKEN", "")}))
    assert set(pack.actions["hello"].input_schema["properties"]) == {"name"}
    assert pack.actions["hello"].secrets == (SecretUse("TOKEN", required=True),)
    assert pack.settings.secrets == {"TOKEN": "of the API"}
    pack = read_pack(write(tmp_path, {**files, "actions.py": TEXT.format("TOKEN", ' = ""')}))
    assert pack.actions["hello"].secrets == (SecretUse("TOKEN", required=False),)


def test_all_kinds_of_functions_take_secrets(tmp_path: Path) -> None:
    secret = 'token: Annotated[str, Secret("TOKEN")]'
    external = f'@external("near(A, B)", mode="+-")\ndef near(a, {secret}):\n    return [a]\n'
    facts = f'@facts("seen")\ndef seen(root: str, *, {secret}, cache=None):\n    yield ("seen", root)\n'
    decls = 'Decl near(A, B) descr [external(), mode("+", "-")].\nDecl seen(A) bound [/string].\n'
    files = {"pack.toml": '[secrets.TOKEN]\n[params.root]\ndefault = "x"\n', "rules/a.mg": RULES + decls}
    files |= {"externals.py": HEAD + external, "facts.py": HEAD + facts, "actions.py": TEXT.format("TOKEN", "")}
    pack = read_pack(write(tmp_path, files))
    for described in (pack.actions["hello"], pack.externals["near"], pack.generators["seen"]):
        assert described.secrets == (SecretUse("TOKEN", required=True),)
    assert pack.generators["seen"].settings == ("root",)


@pytest.mark.parametrize(
    ("toml", "actions", "file", "told"),
    [
        ("[secrets.TOKENS]", TEXT.format("TOKEN", ""), "actions.py", "pack.toml declares no secret TOKEN"),
        ("[secrets.token]", TEXT.format("TOKEN", ""), "pack.toml", "named in upper case"),
        ("[secrets.TOKEN]", TEXT.format("token", ""), "actions.py", "the listing of a function is invalid"),
        ("[secrets.TOKEN]\nvalue = 'x'", TEXT.format("TOKEN", ""), "pack.toml", "unknown key"),
        ("", TEXT.format("TOKEN", "").replace("Annotated[str", "Annotated[int"), "actions.py", "a secret is one text"),
        (
            "",
            TEXT.format("TOKEN", "").replace("name: str", 'n: list[Annotated[str, Secret("A")]]'),
            "actions.py",
            "mark",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, toml: str, actions: str, file: str, told: str) -> None:
    found = problems(tmp_path, {**BASE, "pack.toml": toml + "\n", "actions.py": actions})
    assert any(each.file == file and told in each.message for each in found), found


def test_hints_for_type_checkers_only_are_no_error(tmp_path: Path) -> None:
    external = '@external("near(A, B)", mode="+-")\ndef near(a: Missing, b: int.missing = 1):\n    return [a]\n'
    files = {**BASE, "externals.py": f"from __future__ import annotations\n{HEAD}{external}"}
    files |= {"actions.py": TEXT.format("TOKEN", ""), "pack.toml": "[secrets.TOKEN]\n"}
    assert read_pack(write(tmp_path, files)).externals["near"].secrets == ()


def test_a_secret_that_no_function_takes_is_a_warning(tmp_path: Path) -> None:
    toml = "[secrets.TOKEN]\n[secrets.OTHER]\n"
    pack = read_pack(write(tmp_path, {**BASE, "pack.toml": toml, "actions.py": TEXT.format("TOKEN", "")}))
    assert [each.message for each in pack.warnings if "secrets." in each.message] == [
        "secrets.OTHER: no action, external predicate or fact generator takes it"
    ]


def test_the_operator_names_one_source() -> None:
    text = '[secrets]\nA.env = "X"\nB.file = "/run/b"\nC.command = ["vault", "-f", "a", "-f", "a"]\n'
    read, told = sources(text)
    assert not told
    assert {name: (each.kind, each.words) for name, each in read.items()} == {
        "A": ("env", ("X",)),
        "B": ("file", ("/run/b",)),
        "C": ("command", ("vault", "-f", "a", "-f", "a")),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[secrets.A]", "takes one source"),
        ('[secrets.A]\nenv = "X"\nfile = "/b"', "takes one source"),
        ('[secrets.A]\nfile = "b"', "absolute path"),
        ('[secrets.A]\nenv = "X Y"', "the name of an environment variable"),
        ('[secrets.A]\ncommand = "vault read"', "takes a list"),
        ("[secrets.A]\ncommand = []", "takes one source"),
        ('[secrets.A]\nvalue = "X"', "unknown key"),
        ('[secrets.a]\nenv = "X"', "upper case"),
    ],
)
def test_a_source_that_is_wrong_is_named(text: str, told: str) -> None:
    _, found = sources(text)
    assert any(told in each for each in found), found
    assert "X Y" not in str(found)


def test_without_a_source_it_is_the_variable_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "from-the-environment")
    assert value(SecretProvider()).text == "from-the-environment"
    monkeypatch.setenv("TOKEN", "")
    with pytest.raises(SecretError, match="TOKEN has no value: the environment variable TOKEN is missing or empty"):
        value(SecretProvider())
    assert SecretProvider().values([SecretUse("TOKEN", required=False)]) == []


def test_a_file_is_read_again_for_each_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    secrets = provider("file", str(file))
    assert secrets.values([SecretUse("TOKEN", required=False)]) == []
    for text in ("first-value", "second-value\n", "third-value\r\n"):
        file.write_bytes(text.encode())
        assert value(secrets).text == text.strip()
    assert secrets.redactor.text("first-value second-value") == "[secret TOKEN] [secret TOKEN]", "it may be in use"
    assert value(secrets) is value(secrets)


def test_a_command_is_run_again_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, runs = tmp_path / "token", tmp_path / "runs"
    file.write_text("first-value\n")
    secrets = provider("command", "sh", "-c", f"echo x >> {runs}; cat {file}")
    assert [value(secrets).text for _ in range(3)] == ["first-value"] * 3
    assert runs.read_text() == "x\n"
    file.write_text("second-value\n")
    monkeypatch.setattr("manglecp.pack.secrets._VALID_SECONDS", 0.0)
    secrets = provider("command", "cat", str(file))
    assert value(secrets).text == "second-value"
    file.write_text("third-value\n")
    assert value(secrets).text == "third-value"


def test_a_command_that_failed_is_not_run_for_each_call(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    secrets = provider("command", "sh", "-c", f"echo x >> {runs}; echo half-a-value; echo canary-value >&2; exit 3")
    for _ in range(3):
        with pytest.raises(SecretError, match="the command sh exited with status 3") as error:
            value(secrets)
        assert "value" not in str(error.value).replace("has no value", "")
    assert runs.read_text() == "x\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"short", "less than 8 characters"), (b"x" * 8_193, "more than 8,192 bytes"), (b"\xff" * 9, "not UTF-8")],
)
def test_a_value_has_a_length(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    for secrets in (provider("file", str(file)), provider("command", "cat", str(file))):
        with pytest.raises(SecretError) as error:
            value(secrets)
        assert told in str(error.value) or "prints too much" in str(error.value)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for path, told in (("pipe", "is missing or empty"), ("", "Is a directory"), ("pipe/x", "Not a directory")):
        with pytest.raises(SecretError, match=told):
            value(provider("file", str(tmp_path / path)))
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_the_operator_sees_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    files = {**BASE, "pack.toml": "[secrets.TOKEN]\n", "actions.py": TEXT.format("TOKEN", "")}
    pack = read_pack(write(tmp_path / "pack", files))
    described = {"name": "TOKEN", "source": "the environment variable TOKEN", "available": False}
    assert SecretProvider().describe(pack) == [described]
    monkeypatch.setenv("TOKEN", "canary-value")
    assert SecretProvider().describe(pack) == [{**described, "available": True}]
    (source,) = provider("command", "sh", "canary-value").describe(pack)
    assert (source["source"], source["available"]) == ("the command sh", True)
