"""Evaluate one bomb under small limits and print how it ended and the most memory it took, in kilobytes.

Run by the tests of case 8 as a process of its own, so that nothing else counts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from manglecp.mangle import LimitError, Limits, Program, Source, evaluate

LIMITS: Final = Limits(parts=1_000_000, rows=100_000, derived_facts=100_000, seconds=30)
NUMBERS: Final = "Decl n(X) bound [/number].\n" + " ".join(f"n({i})." for i in range(150)) + "\n"
LONG: Final = f"Decl l(X).\nl([{', '.join(map(str, range(20_000)))}]).\n"
BOMBS: Final = {
    "nothing": ("n(1).", ""),
    "lists that grow": ("Decl l(X). l([]). l(fn:list:cons(1, L)) :- l(L).", "parts of values"),
    "lists that grow at the end": ("Decl l(X). l([]). l(fn:list:append(L, 1)) :- l(L).", "parts of values"),
    "lists through a variable": ("Decl l(X). l([]). l(M) :- l(L), M = fn:list:cons(1, L).", "parts of values"),
    "lists inside pairs": (
        "Decl p(X). p(fn:pair(1, [])). p(fn:pair(1, fn:list:cons(1, L))) :- p(P), :match_pair(P, _, L).",
        "parts of values",
    ),
    "what is left of a list": (LONG + "l(T) :- l(L), :match_cons(L, _, T).", "parts of values"),
    "strings that grow": ('Decl s(X). s(""). s(fn:string:concat(X, "a")) :- s(X).', "parts of values"),
    "strings inside lists": (
        'Decl s(X). s([""]). s(fn:list(fn:string:concat(Y, "abc"))) :- s(X), :match_cons(X, Y, _).',
        "parts of values",
    ),
    "many long strings at once": (
        NUMBERS + f'w("{"x" * 10_000}"). p(A, B, fn:string:concat(W, fn:number:to_string(A))) :- w(W), n(A), n(B).',
        "parts of values",
    ),
    "maps that grow": (
        "Decl m(X, Y). m(0, fn:map()). m(fn:plus(N, 1), fn:map(N, M)) :- m(N, M).",
        "parts of values",
    ),
    "lists that are merged": (
        'Decl m(K, L) descr [fundep([K], [L]), merge([L], "longer")].\n'
        'Decl longer(A, B, C) descr [deferred(), mode("+", "+", "-")].\n'
        "longer(A, B, B) :- fn:list:len(A) < fn:list:len(B). longer(A, B, A) :- fn:list:len(A) >= fn:list:len(B).\n"
        "Decl all(L). m(1, []). m(K, fn:list:cons(1, L)) :- m(K, L), fn:list:len(L) < 500. all(L) :- m(K, L).",
        "",
    ),
    "rows to count": (
        NUMBERS + "c(N) :- n(A), n(B), n(C), n(D) |> do fn:group_by(), let N = fn:count().",
        "rows of one rule",
    ),
    "rows to collect": (
        NUMBERS + "c(L) :- n(A), n(B), n(C), n(D) |> do fn:group_by(A), let L = fn:collect(B).",
        "rows of one rule",
    ),
    "rows that become few facts": (NUMBERS + "p(A) :- n(A), n(B), n(C), B < C.", ""),
    "products": (NUMBERS + "q(A, B, C, D) :- n(A), n(B), n(C), n(D).", "derived facts"),
    "products that hold at no time": (
        NUMBERS + "Decl q(A, B, C) temporal.\nq(A, B, C)@[2026-01-02, 2026-01-01] :- n(A), n(B), n(C).",
        "",
    ),
}


def main(name: str) -> None:
    program = Program.load([Source("bomb.mg", BOMBS[name][0])], bounds="off")
    end = ""
    try:
        evaluate(program, now=0, limits=LIMITS)
    except LimitError as error:
        end = error.unit
    print(end, peak_kilobytes(), sep="\n")


def peak_kilobytes() -> int:
    """Of this process alone: what getrusage says starts with the memory of the process that started it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("no VmHWM")


if __name__ == "__main__":
    main(sys.argv[1])
