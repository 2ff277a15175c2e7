"""What must hold between the register and the tests."""

from difflib import get_close_matches

from .marks import Marks
from .register import Register, Status

__all__ = ["nearest", "problems"]


def problems(register: Register, marks: Marks) -> list[str]:
    """Whatever does not hold, one line each, in a stable order."""
    found = [f"{test}: mark.req takes requirement ids as strings" for test in marks.malformed]
    for name in sorted({*marks.proving, *marks.idle} - register.by_id.keys()):
        tests = _some([*marks.proving.get(name, ()), *marks.idle.get(name, ())])
        found.append(f"{name}: no such requirement, did you mean {nearest(register, name)}? Named by {tests}")
    for row in register.by_id.values():
        if row.status is Status.DONE and row.id not in marks.proving:
            idle = marks.idle.get(row.id)
            why = f"only skipped or failing tests name it: {_some(idle)}" if idle else "no test names it"
            found.append(f"{row.id}: said to be done, but {why}")
    return found


def nearest(register: Register, name: str) -> str:
    """The known id that was most likely meant."""
    area, _, number = name.strip().upper().partition("-")
    padded = f"{area}-{number.zfill(2)}"
    if padded in register.by_id:
        return padded
    return get_close_matches(padded, register.by_id, n=1, cutoff=0.0)[0]


def _some(tests: list[str]) -> str:
    more = len(tests) - 3
    return ", ".join(tests[:3]) + (f" and {more} more" if more > 0 else "")
