"""A selector that is a Mangle program: it picks with a proof. The vocabulary is in ``selector.mg``.

``python -m manglecp.runner.rules FILE… SITUATION`` is the same selector as a policy process, for the Machina runner:
it prints the selection, and the proof on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from manglecp import mangle
from manglecp.mangle import Fact
from manglecp.runner.selection import Selection, parse_selection
from manglecp.runner.selectors import Situation
from manglecp.wire import Fault, plain_value

_LIMITS: Final = mangle.Limits(derived_facts=1_000_000, seconds=10.0)


class RulesSelector:
    """Evaluates a program for each selection; its proof is the ``why``. The constructor raises ``MangleError``.

    An error of the evaluation, and two values for one input, are an INVALID selection.
    """

    def __init__(self, sources: Iterable[mangle.Source]) -> None:
        vocabulary = mangle.Source("selector.mg", files(__package__).joinpath("selector.mg").read_text("utf-8"))
        self._base = mangle.Program.load([vocabulary, *sources]).base(limits=_LIMITS)

    def __call__(self, situation: Situation, /) -> Selection:
        return self.select(situation.members())

    def select(self, situation: Mapping[str, Any]) -> Selection:
        """Return the selection for the JSON object that a policy process reads."""
        try:
            return _select(self._base.evaluate(_facts(situation), limits=_LIMITS))
        except (mangle.MangleError, mangle.NotPlain, Fault) as error:
            return Selection.invalid("", f"the rules failed: {error}")


def _facts(situation: Mapping[str, Any]) -> Iterator[Fact]:
    yield Fact("goal", (str(situation["goal_digest"]).partition("|")[0],))
    yield from (Fact("input", (name, plain_value(value))) for name, value in situation["inputs"].items())
    for entry in situation["menu"]:
        sid, schema = entry["sid"], entry.get("inputs_schema", {})
        yield Fact("menu", (sid, entry["aid"], entry["name"]))
        yield from (Fact("menu_tag", (sid, tag)) for tag in entry["tags"])
        for name in schema.get("properties", ()):
            is_required = name in schema.get("required", ())
            yield Fact("menu_input", (sid, name, mangle.TRUE if is_required else mangle.FALSE))
    for number, artifact in situation.get("ds_state", {}).get("slots", {}).items():  # upstream sends no state
        yield Fact("slot", (int(number), artifact["type"], artifact["provenance"], artifact["content_json"]))


def _select(result: mangle.Result) -> Selection:
    picks = [Fact("pick", args) for arity in (1, 2) for args in result.rows(("pick", arity))]
    if not picks:
        reasons = sorted((Fact("ask_supervisor", args) for args in result.rows(("ask_supervisor", 1))), key=str)
        selection = parse_selection("<ASK_SUP><END>" if reasons else "<NOOP><END>")
        return replace(selection, why=_proof(result, reasons[:1]) or "no pick is derived")
    pick = min(picks, key=lambda fact: (*(-rank for rank in fact.args[1:] or (0,)), fact.args[0]))  # type: ignore[operator]  # a number, by its Decl
    sid = pick.args[0]
    inputs = sorted((Fact("input_value", args) for args in result.find(("input_value", 3), sid)), key=str)
    patch = {str(fact.args[1]): mangle.plain_json(fact.args[2]) for fact in inputs}
    if len(patch) < len(inputs):
        return Selection.invalid("", f"two values for an input of {sid}: {', '.join(map(str, inputs))}")
    patch_text = f"<INP>{json.dumps(patch, ensure_ascii=False)}</INP>" if patch else ""
    selection = parse_selection(f"<PICK><{sid}>{patch_text}<END>")
    return selection if selection.why else replace(selection, why=_proof(result, [pick, *inputs]))


def _proof(result: mangle.Result, facts: Iterable[Fact]) -> str:
    proofs = (result.explainer.explain(fact) for fact in facts)
    return "\n".join(proof.text().rstrip() for proof in proofs if proof is not None)


if __name__ == "__main__":
    *programs, file = sys.argv[1:]
    sources = [mangle.decode(name, Path(name).read_bytes()) for name in programs]
    selection = RulesSelector(sources).select(json.loads(Path(file).read_bytes()))
    sys.stderr.write(f"{selection.why}\n")
    sys.stdout.write(f"{selection.raw}\n")
