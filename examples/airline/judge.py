"""Judge the writes of agents by the policy of this pack: ``python judge.py DATA [--calls]``.

DATA has the database (``flights.json``, ``users.json``, ``reservations.json``), recorded runs of tau-bench
(``runs*.json``), and the actions that tau2-bench expects for its tasks (``tau2-gold*.json``). Each run and each task
starts with the original database, and every executed write changes it, also a denied one: a recorded write has the
effect that is recorded, and sets the cabin that it asks for; an expected one is a call of the tool of this pack.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from manglecp.intent import Decision
from manglecp.testing import Pack, Refused, load_pack

PACK = Path(__file__).parent
Table = dict[str, dict[str, Any]]
TABLES = ("flights", "users", "reservations")
WRITES = {
    *("book_reservation", "cancel_reservation", "send_certificate"),
    *("update_reservation_flights", "update_reservation_baggages", "update_reservation_passengers"),
}


@dataclass(frozen=True)
class Write:
    """A write of an agent, the result that is recorded, and the earlier messages of the customer."""

    tool: str
    args: dict[str, Any]
    result: str = ""
    messages: tuple[str, ...] = ()

    @property
    def executed(self) -> bool:
        return not self.result.startswith("Error")


@dataclass(frozen=True)
class JudgedWrite:
    write: Write
    by_database: Decision
    by_conversation: Decision
    """With the messages of the customer."""


@dataclass(frozen=True)
class JudgedRun:
    name: str
    passed: bool
    writes: tuple[JudgedWrite, ...]


class Desk:
    """The pack over a copy of the database in ``folder``, which is written when the next decision needs it."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._folder = folder
        self._originals: dict[str, Table] = {
            name: msgspec.json.decode((data / f"{name}.json").read_bytes()) for name in TABLES
        }
        self._tables = dict(self._originals)
        self._in_files: dict[str, Table | None] = dict.fromkeys(TABLES)
        self._write_files()
        self._pack: Pack = load_pack(PACK, {"database": str(folder)}).as_caller("desk", "conversation")
        self._is_stale = False  # whether the pack has the facts of earlier tables
        self.seconds: list[float] = []
        """The duration of each decision by the database."""
        self.tool_errors: list[str] = []
        """Of expected writes that policy does not deny."""

    def close(self) -> None:
        self._pack.close()

    def reset(self) -> None:
        """Restore the original database."""
        self._tables = dict(self._originals)

    def judge(self, write: Write) -> JudgedWrite:
        pack = self._current_pack()
        started = time.perf_counter()
        by_database = pack.decide(write.tool, write.args)
        self.seconds.append(time.perf_counter() - started)
        facts = [{"pred": "customer_message", "args": [text]} for text in dict.fromkeys(write.messages)]
        return JudgedWrite(write, by_database, pack.decide(write.tool, write.args, facts=facts))

    def call(self, write: Write) -> None:
        """Call the tool of this pack."""
        try:
            self._current_pack().intent("serve_customer").invoke(write.tool, write.args, confirm=True)
        except Refused as error:
            self.tool_errors.append(f"{write.tool} {json.dumps(write.args)}: {error}")
        self._tables = {name: msgspec.json.decode((self._folder / f"{name}.json").read_bytes()) for name in TABLES}
        self._in_files, self._is_stale = dict(self._tables), True

    def repeat(self, write: Write) -> None:
        """Give the database the effect of a recorded write: the reservation that it returned, and the payments."""
        users, reservations = self._changed_table("users"), self._changed_table("reservations")
        if write.tool == "send_certificate":
            payment = write.result.split()[1]
            user = users[write.args["user_id"]] = copy.deepcopy(users[write.args["user_id"]])
            user["payment_methods"][payment] = {"source": "certificate", "amount": write.args["amount"], "id": payment}
            return
        after: dict[str, Any] = json.loads(write.result)
        key = after["reservation_id"]
        user = users[after["user_id"]] = copy.deepcopy(users[after["user_id"]])
        before = reservations.get(key, {"payment_history": [], "flights": []})
        if "cabin" in before:  # the tools of tau-bench do not record the new cabin of a change
            after["cabin"] = write.args.get("cabin", before["cabin"])
        if key not in user["reservations"]:
            user["reservations"].append(key)
        if write.tool != "cancel_reservation":  # refunds of a cancellation take some days
            pay(user["payment_methods"], after["payment_history"][len(before["payment_history"]) :])
        kept = {(each["flight_number"], each["date"]) for each in after["flights"]}
        gone = [each for each in before["flights"] if (each["flight_number"], each["date"]) not in kept]
        reservations[key] = {**after, "replaced_flights": [*before.get("replaced_flights", []), *gone]}

    def _changed_table(self, name: str) -> Table:
        """Return a copy of the table, which is now the current one; its rows are shared."""
        self._tables = {**self._tables, name: dict(self._tables[name])}
        return self._tables[name]

    def _write_files(self) -> None:
        for name in TABLES:
            if self._tables[name] is not self._in_files[name]:
                (self._folder / f"{name}.json").write_bytes(msgspec.json.encode(self._tables[name]))
                self._in_files[name], self._is_stale = self._tables[name], True

    def _current_pack(self) -> Pack:
        """Return the pack with the facts of the current tables."""
        self._write_files()
        if self._is_stale:
            self._pack, self._is_stale = self._pack.refresh_facts(), False
        return self._pack


def pay(methods: dict[str, Any], payments: list[dict[str, Any]]) -> None:
    """Take payments from gift cards. A certificate is used once."""
    for payment in payments:
        source = methods.get(payment["payment_id"], {}).get("source")
        if source == "gift_card":
            methods[payment["payment_id"]]["amount"] -= payment["amount"]
        elif source == "certificate":
            del methods[payment["payment_id"]]


def recorded_writes(run: dict[str, Any]) -> Iterator[Write]:
    """Yield the writes of a run. The result of a call is the next message."""
    trajectory = run["traj"]
    messages: list[str] = []
    for message, answer in zip(trajectory, [*trajectory[1:], {}], strict=True):
        if message["role"] == "user":
            messages.append(str(message["content"]))
        for call in message.get("tool_calls") or ():
            if (tool := call["function"]["name"]) in WRITES:
                result = str(answer.get("content", "Error: no result"))
                yield Write(tool, json.loads(call["function"]["arguments"]), result, tuple(messages))


def judge_runs(desk: Desk, runs: list[dict[str, Any]]) -> Iterator[JudgedRun]:
    for run in sorted(runs, key=lambda run: (run["task_id"], run["trial"])):
        desk.reset()
        writes = []
        for write in recorded_writes(run):
            writes.append(desk.judge(write))
            if write.executed:
                desk.repeat(write)
        name = f"task {run['task_id']}, trial {run['trial']}, {'passed' if run['reward'] >= 1 else 'failed'}"
        yield JudgedRun(name, run["reward"] >= 1, tuple(writes))


def judge_tasks(desk: Desk, tasks: list[dict[str, Any]]) -> Iterator[JudgedRun]:
    """Yield the judged expected writes of each task."""
    for task in tasks:
        desk.reset()
        writes = []
        for action in task["actions"]:
            if action["name"] in WRITES:
                write = Write(action["name"], action["arguments"])
                writes.append(desk.judge(write))
                if writes[-1].by_database.verdict != "deny":
                    desk.call(write)
        yield JudgedRun(f"task {task['id']} of tau2-bench", True, tuple(writes))


@dataclass(frozen=True)
class Judgement:
    runs: list[JudgedRun]
    tasks: list[JudgedRun]
    seconds: list[float]
    tool_errors: list[str]


def judge(data: Path) -> Judgement:
    runs = [run for file in sorted(data.glob("runs*.json")) for run in json.loads(file.read_bytes())]
    tasks = [task for file in sorted(data.glob("tau2-gold*.json")) for task in json.loads(file.read_bytes())]
    with tempfile.TemporaryDirectory(prefix="airline-") as folder, closing(Desk(data, Path(folder))) as desk:
        return Judgement(list(judge_runs(desk, runs)), list(judge_tasks(desk, tasks)), desk.seconds, desk.tool_errors)


def report(name: str, writes: list[JudgedWrite]) -> None:
    denied = [
        sum(decision.verdict == "deny" for decision in decisions)
        for decisions in (
            [judged.by_database for judged in writes],
            [judged.by_conversation for judged in writes],
        )
    ]
    shares = [f"{count:5} {count / len(writes):7.1%}" for count in denied if writes]
    print(f"{name:42} {len(writes):6} ", *shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--calls", action="store_true", help="list each denied write with its public reasons")
    options = parser.parse_args()
    judgement = judge(options.data)
    print(f"{'denied':42} writes   by database  with conversation")
    for passed, name in ((False, "failed runs"), (True, "passed runs")):
        writes = [judged for run in judgement.runs if run.passed is passed for judged in run.writes]
        report(f"{name}: executed writes", [judged for judged in writes if judged.write.executed])
        report(f"{name}: with tool errors", writes)
    report("expected by tau2-bench", [judged for task in judgement.tasks for judged in task.writes])
    print(f"a decision took {statistics.median(judgement.seconds) * 1000:.1f} ms at the median")
    for error in judgement.tool_errors:
        print(f"the tool refused an expected write: {error}")
    if options.calls:
        show([*judgement.runs, *judgement.tasks])


def show(runs: list[JudgedRun]) -> None:
    for run in runs:
        for judged in run.writes:
            if judged.by_conversation.verdict == "deny":
                print(f"\n{run.name}: {judged.write.tool} {json.dumps(judged.write.args)}")
                print(*(f"  {reason}" for reason in judged.by_conversation.public_reasons), sep="\n")


if __name__ == "__main__":
    main()
