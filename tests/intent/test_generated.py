"""Facts that a pack finds out itself, as rules and requests see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from manglecp.base.diagnostic import Diagnostic
from manglecp.intent.domain import Domain
from manglecp.intent.identity import ANONYMOUS
from manglecp.intent.responder import respond
from manglecp.mangle import Fact, Key, LimitError, Predicate
from manglecp.pack import PackError, read_pack
from manglecp.toolhost import serve_facts
from manglecp.wire.messages import Intent, IntentPayload, IntentRequest
from tests.pack.folders import ACTIONS, write

RULES = """Decl file(Path, Size) bound [/string, /number].
Decl large(Path) bound [/string].
large(P) :- file(P, S), S > 10.
macro("greet", "Say hello").
macro_step("greet", 1, "hello").
arg_value("greet", 1, "name", "you").
relevant("greet", 80) :- intent("hello"), large(_).
"""
FACTS = 'from manglecp import facts\n@facts("file")\ndef scan():\n    yield "file", "a", 11\n'


class Said:
    """A generator that says what the test wants."""

    version = "1"

    def __init__(self, *facts: Fact) -> None:
        self.facts = facts
        self.asked = 0

    def begin(self, predicates: Mapping[Key, Predicate]) -> Iterable[Fact]:
        self.asked += 1
        assert ("file", 2) in predicates
        return self.facts


def file(name: str, size: int) -> Fact:
    return Fact("file", (name, size))


def folder(path: Path, **more: str) -> Path:
    files = {"rules/a.mg": RULES, "actions.py": ACTIONS, "facts.py": FACTS}
    return write(
        path, {**files, **{name.replace("__", "/").replace("_dot_", "."): text for name, text in more.items()}}
    )


def problems(path: Path, generated: Said | None = None, **more: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(PackError) as caught:
        Domain.load(read_pack(folder(path, **more)), generated=generated)
    return tuple(problem for problem in caught.value.diagnostics if problem.severity == "error")


def tools(domain: Domain) -> list[str]:
    request = IntentRequest(id="1", payload=IntentPayload(intent=Intent(name="hello")))
    return [definition.tool for definition in respond(domain, request, ANONYMOUS).definitions]


def test_what_a_pack_finds_out_is_known_when_it_is_loaded(tmp_path: Path) -> None:
    pack = read_pack(folder(tmp_path))
    with serve_facts(pack, cache=False) as generated:
        domain = Domain.load(pack, generated=generated)
        assert tools(domain) == ["greet"]
        assert domain.digest == pack.digest
        assert generated is not None
        assert domain.facts_version == generated.version != ""


def test_nobody_who_finds_nothing_out_knows_nothing(tmp_path: Path) -> None:
    domain = Domain.load(read_pack(folder(tmp_path)))
    assert tools(domain) == []
    assert domain.facts_version == ""


def test_other_facts_are_another_domain_and_the_same_pack(tmp_path: Path) -> None:
    first = Domain.load(read_pack(folder(tmp_path)), generated=Said(file("a", 11), file("b", 2)))
    second = first.with_facts([file("a", 1)], [file("a", 11)], "2")
    third = second.with_facts([file("b", 20)], [file("b", 2)], "3")
    assert [tools(domain) for domain in (first, second, third)] == [["greet"], [], ["greet"]]
    assert [domain.facts_version for domain in (first, second, third)] == ["1", "2", "3"]
    assert first.digest == second.digest == third.digest == first.pack.digest


def test_what_follows_has_the_limit_of_loading(tmp_path: Path) -> None:
    text = "[limits]\nmax_base_facts = 20\n"
    domain = Domain.load(read_pack(folder(tmp_path, pack_dot_toml=text)), generated=Said())
    with pytest.raises(LimitError):
        domain.with_facts([file(str(number), 11) for number in range(21)], [], "2")
    assert tools(domain) == []


@pytest.mark.parametrize(
    ("predicate", "rules", "about"),
    [
        ("macro", "", "scan: macro is a word of the kernel"),
        ("setting", "", "scan: setting is a word of the kernel"),
        ("undeclared", "", "scan: no rule file declares undeclared"),
        ("secret", 'Decl secret(X) descr [owner("policy")] bound [/string].', "scan: secret belongs to policy"),
    ],
)
def test_not_everything_can_be_found_out(tmp_path: Path, predicate: str, rules: str, about: str) -> None:
    said = Said()
    source = f'from manglecp import facts\n@facts("{predicate}")\ndef scan():\n    yield\n'
    (problem,) = problems(tmp_path, said, facts_dot_py=source, rules__b_dot_mg=rules)
    assert problem.file == "facts.py"
    assert problem.message.startswith(about)
    assert problem.fix
    assert not said.asked


def test_facts_that_are_found_out_are_stated_nowhere_else(tmp_path: Path) -> None:
    found = problems(tmp_path, rules__b_dot_mg='file("x", 1).\n', facts__more_dot_mg='file("y", 1).\n')
    assert [problem.file for problem in found] == ["facts/more.mg", "rules/b.mg"]
    assert {problem.message for problem in found} == {"the facts of file are those that facts.py gives"}


def test_rules_may_derive_more_of_them(tmp_path: Path) -> None:
    pack = read_pack(folder(tmp_path, rules__b_dot_mg='file("derived", S) :- file("a", S).\n'))
    domain = Domain.load(pack, generated=Said(file("a", 11)))
    domain = domain.with_facts([], [file("a", 11)], "2")
    assert tools(domain) == []


def test_what_is_answered_from_outside_is_not_found_out(tmp_path: Path) -> None:
    source = 'from manglecp import external\n@external("file(A, B)", mode="+-")\ndef file(a): ...\n'
    rules = RULES.replace("Decl file(Path, Size)", 'Decl file(Path, Size) descr [external(), mode("+", "-")]')
    found = problems(
        tmp_path, externals_dot_py=source, rules__a_dot_mg=rules.replace("file(P, S)", 'P = "x", file(P, S)')
    )
    assert "scan: file is external: it is answered by externals.py" in [problem.message for problem in found]


def test_a_generator_that_fails_keeps_the_pack_from_being_loaded(tmp_path: Path) -> None:
    source = 'from manglecp import facts\n@facts("file")\ndef scan():\n    raise OSError("no disk")\n'
    pack = read_pack(folder(tmp_path, facts_dot_py=source))
    with (
        serve_facts(pack, cache=False) as generated,
        pytest.raises(PackError, match=r"facts.py: scan: OSError: no disk"),
    ):
        Domain.load(pack, generated=generated)


def test_wrong_rules_are_told_before_anything_is_looked_for(tmp_path: Path) -> None:
    said = Said()
    assert problems(tmp_path, said, rules__b_dot_mg="p(X) :- q(Y).")
    assert not said.asked
