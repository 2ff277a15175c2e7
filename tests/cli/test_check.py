from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.test_eval import ENDLESS, WARNS

Write = Callable[[str, str | bytes], Path]


def test_a_sound_program(run: Run, write: Write) -> None:
    write("a.mg", "p(1). p(2).")
    write("b.mg", "q(X) :- p(X).")
    shown = run("check", "a.mg", "b.mg")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "2 files, 1 rule, 2 facts: ok\n", "")


def test_nothing_is_evaluated(run: Run) -> None:
    assert run("check", "-", stdin=ENDLESS).stdout == "1 file, 1 rule, 1 fact: ok\n"


def test_warnings_are_not_errors(run: Run) -> None:
    shown = run("check", "-", stdin=WARNS)
    assert shown.exit_code == 0
    assert shown.stdout == "1 file, 1 rule, 1 fact: ok, 1 warning\n"
    assert shown.stderr.startswith("warning[analysis]: <stdin>:4:")


def test_errors_of_all_files(run: Run, write: Write) -> None:
    write("a.mg", "p(")
    write("b.mg", "p(1). q(].\nr({).")
    shown = run("check", "a.mg", "b.mg")
    assert shown.exit_code == 1
    assert shown.stdout == "2 files: 3 errors\n"
    assert shown.stderr.count("error[parse]: ") == 3
    assert "  1 | p(1). q(].\n    |         ^\n" in shown.stderr


def test_stages(run: Run) -> None:
    assert run("check", "-", stdin="q(X) :- p(Y).").stderr.startswith("error[analysis]: ")
    assert run("check", "-", stdin="p(1). q(X) :- p(X), !q(X).").stderr.startswith("error[stratification]: ")


def test_json_of_a_sound_program(run: Run) -> None:
    shown = run("check", "-", "--json", stdin="p(1).")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout) == {"ok": True, "diagnostics": []}


def test_json(run: Run, write: Write) -> None:
    write("a.mg", "p(1).\nq(X) :-\n  p(1), r(X).\n")
    shown = run("check", "a.mg", "--json")
    assert shown.exit_code == 1
    assert shown.stderr == ""
    document = json.loads(shown.stdout)
    assert document["ok"] is False
    diagnostic = document["diagnostics"][0]
    assert list(diagnostic) == [
        *("severity", "stage", "message", "file", "line", "column", "end_line", "end_column", "clause", "fix")
    ]
    assert (diagnostic["severity"], diagnostic["stage"]) == ("error", "analysis")
    assert "r" in diagnostic["message"]
    assert diagnostic["file"] == "a.mg"
    assert (diagnostic["line"], diagnostic["column"]) == (3, 9)
    assert (diagnostic["end_line"], diagnostic["end_column"]) == (3, 13)


def test_json_of_warnings(run: Run) -> None:
    document = json.loads(run("check", "-", "--json", stdin=WARNS).stdout)
    assert document["ok"] is True
    assert [d["severity"] for d in document["diagnostics"]] == ["warning"]


# --- packs -----------------------------------------------------------------------------------------------------------

ACTIONS = '''\
from manglecp import action


@action(effects=["none"])
def look(path: str) -> dict[str, str]:
    """Look at a file."""
    return {"path": path}
'''
RULES = """\
macro("see", "See a file.").
macro_step("see", 1, "look").
relevant("see", 80) :- intent("observe").
"""


def a_pack(folder: Path, write: Write, rules: str = RULES, toml: str | None = None) -> None:
    folder.joinpath("sight/rules/domain").mkdir(parents=True)
    write("sight/actions.py", ACTIONS)
    write("sight/rules/domain/see.mg", rules)
    if toml is not None:
        write("sight/pack.toml", toml)


def test_a_sound_pack(run: Run, folder: Path, write: Write) -> None:
    a_pack(folder, write)
    shown = run("check", "sight")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "sight, 1 rule, 1 action, 0 skills: ok\n", "")
    document = json.loads(run("check", "sight", "--json").stdout)
    assert document["ok"] is True
    assert document["pack"] == "sight"
    assert len(document["digest"]) == 64


def test_everything_that_is_wrong_with_a_pack_is_told_at_once(run: Run, folder: Path, write: Write) -> None:
    wrong = RULES + 'macro_step("see", 2, "loook").\nprohibited("see", "no").\nneeds_skill("see", "seeing").\n'
    a_pack(folder, write, wrong, '[[intents]]\nname = "observe"\ndescription = "Look."\nrequired_facts = ["seen"]\n')
    shown = run("check", "sight")
    assert shown.exit_code == 1
    assert shown.stdout == "sight: 4 errors\n"
    assert "rules/domain/see.mg:4:22: the pack has no action 'loook'" in shown.stderr
    assert "did you mean look?" in shown.stderr
    assert "rules/domain/see.mg:5:1: prohibited belongs to policy" in shown.stderr
    assert "rules/domain/see.mg:6:20: the pack has no skill 'seeing'" in shown.stderr
    assert "names seen, which no client can state" in shown.stderr
    document = json.loads(run("check", "sight", "--json").stdout)
    assert document["ok"] is False
    places = [(d["file"], d["line"], d["column"]) for d in document["diagnostics"] if d["file"] != "pack.toml"]
    assert places == [("rules/domain/see.mg", line, column) for line, column in ((4, 22), (5, 1), (6, 20))]


def test_json_of_packs_and_files_is_alike(run: Run, folder: Path, write: Write) -> None:
    a_pack(folder, write, RULES + "p(X).\n", '[[intents]]\nname = "observe"\n')
    settings, rule = json.loads(run("check", "sight", "--json").stdout)["diagnostics"]
    alone = json.loads(run("check", "sight/rules/domain/see.mg", "--json").stdout)["diagnostics"]
    assert rule in [{**each, "file": rule["file"]} for each in alone]
    assert (rule["stage"], rule["end_line"]) == ("analysis", rule["line"])
    assert list(settings) == list(rule)
    assert (settings["stage"], settings["end_line"], settings["clause"]) == ("pack", None, None)


def test_warnings_of_a_pack(run: Run, folder: Path, write: Write) -> None:
    a_pack(folder, write, RULES + 'macro("idle", "Does nothing.").\n')
    shown = run("check", "sight")
    assert shown.exit_code == 0
    assert shown.stdout.endswith(": ok, 1 warning\n")
    assert "the tool 'idle' has no step" in shown.stderr


def test_settings_of_a_pack(run: Run, folder: Path, write: Write) -> None:
    a_pack(folder, write, toml='[params.root]\ndescription = "Where to look."\n')
    assert run("check", "sight").exit_code == 1
    assert run("check", "sight", "--set", "root=/tmp").exit_code == 0
    assert run("check", "sight", "--set", "root").exit_code == 2
    assert run("check", "-", "--set", "root=/tmp", stdin="p(1).").exit_code == 2


def test_nothing_that_is_wrong_hides_anything_else(run: Run, folder: Path, write: Write) -> None:
    """Settings, rules and fact files are read whatever becomes of the others."""
    wrong = RULES + "Decl size(N) bound [/number].\nsize(1).\nbig(N) :- size(M).\n"
    a_pack(folder, write, wrong, '[pack]\nnmae = "sight"\n')
    folder.joinpath("sight/facts").mkdir()
    write("sight/facts/size.csv", "n\n1\nmany\n")
    shown = run("check", "sight")
    assert shown.exit_code == 1
    assert "pack.toml:2:" in shown.stderr
    assert "rules/domain/see.mg:6:" in shown.stderr
    assert "facts/size.csv:3" in shown.stderr
    write("sight/pack.toml", '[pack]\nname = "sight"\n')
    shown = run("check", "sight")
    assert "rules/domain/see.mg:6:" in shown.stderr
    assert "facts/size.csv:3" in shown.stderr


def test_what_a_broken_part_could_have_said_is_not_missed(run: Run, folder: Path, write: Write) -> None:
    a_pack(folder, write, RULES + 'needs_skill("see", "seeing").\narg_value("see", 1, "path", "/").\n')
    folder.joinpath("sight/skills").mkdir()
    write("sight/skills/seeing.md", b"\xff")
    write("sight/actions.py", "def look(:\n")
    document = json.loads(run("check", "sight", "--json").stdout)
    assert [d["file"] for d in document["diagnostics"]] == ["actions.py", "skills/seeing.md"]
    write("sight/rules/domain/see.mg", RULES + "p(X) :- q(X).\n")
    document = json.loads(run("check", "sight", "--json").stdout)
    assert [d["file"] for d in document["diagnostics"]] == ["actions.py", "rules/domain/see.mg", "skills/seeing.md"]


def test_a_secret_that_clients_would_be_told(run: Run, folder: Path, write: Write) -> None:
    rules = RULES + 'instruction("see", 1, K) :- setting("api_key", K).\n'
    a_pack(folder, write, rules, '[params.api_key]\ndefault = "none-at-all"\n')
    shown = run("check", "sight")
    assert shown.exit_code == 0
    assert "rules/domain/see.mg:4:1: clients read instruction, and the setting 'api_key' is a secret" in shown.stderr


def test_warnings_say_where(run: Run, folder: Path, write: Write) -> None:
    intents = "".join(f'[[intents]]\nname = "{name}"\ndescription = "D."\n' for name in ("observe", "repair"))
    a_pack(folder, write, RULES + 'sees("far").\n', intents)
    shown = run("check", "sight")
    assert shown.exit_code == 0
    assert "warning[pack]: pack.toml:4: no rule mentions the intent 'repair'" in shown.stderr
    assert "warning[analysis]: rules/domain/see.mg:4:1: nothing reads sees" in shown.stderr
    assert shown.stdout.endswith(": ok, 2 warnings\n")
    strict = run("check", "sight", "--strict")
    assert (strict.exit_code, strict.stderr) == (1, shown.stderr)
    assert strict.stdout.endswith(": 2 warnings\n")
    assert json.loads(run("check", "sight", "--strict", "--json").stdout)["ok"] is False
    write("sight/pack.toml", intents + 'required_facts = ["seen"]\n')
    assert "error[pack]: pack.toml:4: required_facts of the intent 'repair' names seen" in run("check", "sight").stderr


def test_a_pipe_in_a_pack_is_not_waited_for(run: Run, folder: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "examples" / "incident", folder / "pack")
    os.mkfifo(folder / "pack" / "facts" / "p.csv")
    shown = run("check", "pack")
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error[pack]: facts/p.csv: neither a file nor a folder\n")
