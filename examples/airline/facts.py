"""The fact generator: the database as facts. A table is read again after it has changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manglecp import Part, facts

Row = dict[str, Any]
Facts = list[tuple[Any, ...]]
ZONE = "-05:00"  # the database has times of day in EST

_versions: dict[Path, tuple[int, int]] = {}
_rows: dict[str, Row] = {}  # by part


@facts(
    *("flight", "schedule", "flight_status", "fare", "user", "payment_method", "balance"),
    *("reservation", "trip", "booked_at", "insured", "bags", "segment", "replaced_segment", "cancelled"),
    every=1.0,
    changes=True,
)
def tables(database: Path) -> Iterator[Part]:
    """Yield the facts of each flight, user and reservation that is new or different."""
    for table, row_facts in (("flights", flight), ("users", user), ("reservations", reservation)):
        path = database / f"{table}.json"
        status = path.stat()
        version = (status.st_mtime_ns, status.st_ino)
        if _versions.get(path) == version:
            continue
        rows: dict[str, Row] = json.loads(path.read_bytes())
        for key, row in rows.items():
            if _rows.get(part := f"{table}/{key}") != row:
                _rows[part] = row
                yield Part(part, row_facts(key, row))
        gone = [part for part in _rows if part.startswith(f"{table}/") and part[len(table) + 1 :] not in rows]
        for part in gone:
            del _rows[part]
            yield Part(part)
        _versions[path] = version


def flight(number: str, row: Row) -> Facts:
    departure = row["scheduled_departure_time_est"]
    found: Facts = [
        ("flight", number, row["origin"], row["destination"]),
        ("schedule", number, departure + ZONE, minutes(row["scheduled_arrival_time_est"]) - minutes(departure)),
    ]
    for date, day in row["dates"].items():
        if day["status"] != "available":
            found.append(("flight_status", number, date, day["status"]))
            continue
        for cabin, price in day["prices"].items():
            found.append(("fare", number, date, cabin, price, day["available_seats"][cabin]))
    return found


def minutes(time: str) -> int:
    """Return the minutes since midnight of a time such as 23:15:00, or 01:15:00+1 for one on the next day."""
    time, _, days = time.partition("+")
    hour, minute, _ = time.split(":")
    return (int(days or 0) * 24 + int(hour)) * 60 + int(minute)


def user(key: str, row: Row) -> Facts:
    found: Facts = [("user", key, row["membership"])]
    for payment, method in row["payment_methods"].items():
        found.append(("payment_method", key, payment, method["source"]))
        if "amount" in method:
            found.append(("balance", key, payment, method["amount"]))
    return found


def reservation(key: str, row: Row) -> Facts:
    found: Facts = [
        ("reservation", key, row["user_id"], row["cabin"], len(row["passengers"])),
        ("trip", key, row["flight_type"], row["origin"], row["destination"]),
        ("booked_at", key, row["created_at"] + ZONE),
        ("bags", key, row["total_baggages"]),
    ]
    found += [("segment", key, each["flight_number"], each["date"]) for each in row["flights"]]
    found += [
        ("replaced_segment", key, each["flight_number"], each["date"]) for each in row.get("replaced_flights", [])
    ]
    if row["insurance"] == "yes":
        found.append(("insured", key))
    if row.get("status") == "cancelled":
        found.append(("cancelled", key))
    return found
