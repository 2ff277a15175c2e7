"""The airline pack: each rule of its policy denies a call and permits the nearest one, and its tools work."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from manglecp.testing import Pack, Refused, load_pack
from manglecp.testing.coverage import PackCoverage

PACK = Path(__file__).parents[2] / "examples" / "airline"
FREE = {"basic_economy": 9, "economy": 2, "business": 9}
PRICES = {"basic_economy": 50, "economy": 100, "business": 300}


def flight(number: str, origin: str, destination: str, departs: str, arrives: str, **others: str) -> dict[str, Any]:
    """Return a flight that can be booked on May 20 to 22, with other states on the dates of ``others``."""
    free = {"status": "available", "available_seats": FREE, "prices": PRICES}
    dates = {f"2024-05-{day}": free for day in (20, 21, 22)} | {
        f"2024-05-{day[1:]}": {"status": status} for day, status in others.items()
    }
    times = {"scheduled_departure_time_est": f"{departs}:00", "scheduled_arrival_time_est": arrives}
    return {"flight_number": number, "origin": origin, "destination": destination, **times, "dates": dates}


def user(key: str, membership: str, gift_card: int = 120) -> dict[str, Any]:
    methods = {
        "credit_card_1": {"source": "credit_card"},
        "credit_card_2": {"source": "credit_card"},
        "gift_card_1": {"source": "gift_card", "amount": gift_card},
        "certificate_1": {"source": "certificate", "amount": 150},
        "certificate_2": {"source": "certificate", "amount": 150},
    }
    return {"user_id": key, "membership": membership, "payment_methods": methods, "reservations": []}


def reservation(
    key: str,
    user_id: str,
    cabin: str,
    *flights: tuple[str, int],
    passengers: int = 1,
    bags: int = 0,
    insurance: str = "no",
    created: str = "2024-05-02T10:00:00",
    flight_type: str = "one_way",
    status: str = "",
) -> dict[str, Any]:
    segments = [
        {"flight_number": number, "date": f"2024-05-{day}", "price": 80, "origin": "JFK", "destination": "SFO"}
        for number, day in flights
    ]
    return {
        "reservation_id": key,
        "user_id": user_id,
        "origin": "JFK",
        "destination": "SFO",
        "flight_type": flight_type,
        "cabin": cabin,
        "flights": segments,
        "passengers": [passenger(number) for number in range(passengers)],
        "payment_history": [{"payment_id": "credit_card_1", "amount": 80 * len(flights) * passengers}],
        "created_at": created,
        "total_baggages": bags,
        "nonfree_baggages": 0,
        "insurance": insurance,
        "status": status,
    }


def passenger(number: int) -> dict[str, str]:
    return {"first_name": f"P{number}", "last_name": "Roe", "dob": "1990-01-01"}


def database() -> dict[str, dict[str, Any]]:
    flights = [
        flight("OUT", "JFK", "SFO", "08:00", "14:00:00", _10="landed", _14="cancelled", _15="delayed", _16="flying"),
        flight("BACK", "SFO", "JFK", "18:00", "02:00:00+1"),
        flight("HALF", "JFK", "ATL", "08:00", "10:30:00"),
        flight("REST", "ATL", "SFO", "10:30", "15:00:00"),
        flight("EARLY", "ATL", "SFO", "10:29", "15:00:00"),
    ]
    reservations = [
        reservation("BASIC", "rita", "basic_economy", ("OUT", 20)),
        reservation("ECO", "rita", "economy", ("OUT", 20), passengers=2, bags=1),
        reservation("ROUND", "sam", "economy", ("OUT", 20), ("BACK", 22), flight_type="round_trip"),
        reservation("TIGHT", "sam", "economy", ("OUT", 22), ("BACK", 21), flight_type="round_trip"),
        reservation("GROUP", "sam", "economy", ("OUT", 20), ("BACK", 22), flight_type="round_trip", passengers=3),
        reservation("STUCK", "rita", "economy", ("OUT", 14), ("BACK", 22), flight_type="round_trip"),
        reservation("NEW", "rita", "economy", ("OUT", 20), created="2024-05-14T15:00:00"),
        reservation("OLD", "rita", "economy", ("OUT", 20), created="2024-05-14T14:59:59"),
        reservation("INSURED", "rita", "economy", ("OUT", 20), insurance="yes"),
        reservation("BIZ", "rita", "business", ("OUT", 20), bags=3),
        reservation("TRIO", "rita", "economy", ("OUT", 20), passengers=3),
        reservation("FLOWN", "rita", "business", ("OUT", 10)),
        reservation("FLYING", "rita", "business", ("OUT", 16)),
        reservation("HIT", "gil", "economy", ("OUT", 14), passengers=3),
        reservation("LATE", "sam", "business", ("OUT", 15), passengers=2),
        reservation("POOR", "rita", "economy", ("OUT", 14)),
        reservation("TARDY", "rita", "economy", ("OUT", 15), status="cancelled"),
        reservation("ENDED", "sam", "business", ("OUT", 20), status="cancelled"),
    ]
    users = [user("rita", "regular", gift_card=10), user("sam", "silver"), user("gil", "gold")]
    for row in users:
        row["reservations"] = [each["reservation_id"] for each in reservations if each["user_id"] == row["user_id"]]
    return {
        "flights": {row["flight_number"]: row for row in flights},
        "users": {row["user_id"]: row for row in users},
        "reservations": {row["reservation_id"]: row for row in reservations},
    }


def open_pack(folder: Path, coverage: PackCoverage | None = None) -> Pack:
    for name, rows in database().items():
        (folder / f"{name}.json").write_text(json.dumps(rows), "utf-8")
    pack = load_pack(PACK, {"database": str(folder)}, degrade=True, coverage=coverage)
    return pack.as_caller("desk", "conversation")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pack]:
    """Yield the pack over a database that no test of the module changes."""
    with open_pack(tmp_path_factory.mktemp("airline")) as opened:
        yield opened


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Pack]:
    """Yield the pack over a database of the test."""
    with open_pack(tmp_path) as opened:
        yield opened


def flights(*listed: tuple[str, int]) -> list[dict[str, str]]:
    return [{"flight_number": number, "date": f"2024-05-{day}"} for number, day in listed]


BOOKING: dict[str, Any] = {
    "user_id": "sam",
    "origin": "JFK",
    "destination": "SFO",
    "flight_type": "one_way",
    "cabin": "economy",
    "flights": flights(("HALF", 20), ("REST", 20)),
    "passengers": [passenger(0)],
    "payment_methods": [{"payment_id": "credit_card_1", "amount": 200}],
    "total_baggages": 2,
    "nonfree_baggages": 0,
    "insurance": "no",
}


def booking(**changes: Any) -> tuple[str, dict[str, Any]]:
    return "book_reservation", {**BOOKING, **changes}


def paying(**amounts: int) -> list[dict[str, Any]]:
    return [{"payment_id": payment, "amount": amount} for payment, amount in amounts.items()]


def in_business(passengers: int) -> tuple[str, dict[str, Any]]:
    people = [passenger(number) for number in range(passengers)]
    return booking(cabin="business", passengers=people, payment_methods=paying(credit_card_1=600 * passengers))


def change(
    key: str, cabin: str, *listed: tuple[str, int], payment: str = "credit_card_1"
) -> tuple[str, dict[str, Any]]:
    args = {"reservation_id": key, "cabin": cabin, "flights": flights(*listed), "payment_id": payment}
    return "update_reservation_flights", args


def bags(key: str, total: int, to_pay: int, payment: str = "credit_card_1") -> tuple[str, dict[str, Any]]:
    args = {"reservation_id": key, "total_baggages": total, "nonfree_baggages": to_pay, "payment_id": payment}
    return "update_reservation_baggages", args


def people(key: str, count: int) -> tuple[str, dict[str, Any]]:
    args = {"reservation_id": key, "passengers": [passenger(number) for number in range(count)]}
    return "update_reservation_passengers", args


def cancel(key: str) -> tuple[str, dict[str, Any]]:
    return "cancel_reservation", {"reservation_id": key}


def certificate(user_id: str, amount: int) -> tuple[str, dict[str, Any]]:
    return "send_certificate", {"user_id": user_id, "amount": amount}


DENIED = [
    # what the call is about
    (cancel("NONE"), "there is no reservation NONE"),
    (certificate("nobody", 100), "there is no user nobody"),
    # flights
    (booking(flights=flights(("OUT", 16))), "flight OUT on 2024-05-16 cannot be booked"),
    (booking(flights=flights(("OUT", 25))), "flight OUT on 2024-05-25 cannot be booked"),
    (booking(flights=flights(("OUT", 14))), "flight OUT on 2024-05-14 cannot be booked"),
    (booking(flights=flights(("HALF", 20), ("REST", 25))), "flight REST on 2024-05-25 cannot be booked"),
    (booking(flights=flights(("HALF", 20), ("EARLY", 20))), "flight EARLY on 2024-05-20 leaves before flight HALF has"),
    (booking(flights=flights(("HALF", 21), ("REST", 20))), "flight REST on 2024-05-20 leaves before flight HALF has"),
    (change("ECO", "economy", ("HALF", 20), ("EARLY", 20)), "leaves before flight HALF has landed"),
    (change("HIT", "business", ("OUT", 14)), "flight OUT on 2024-05-14 cannot be booked"),
    (change("TRIO", "economy", ("OUT", 21)), "flight OUT on 2024-05-21 has 2 seats in economy for 3 passengers"),
    (booking(flights=flights(("REST", 20)), payment_methods=paying(credit_card_1=100)), "starts in JFK"),
    (booking(flights=flights(("HALF", 20)), payment_methods=paying(credit_card_1=100)), "ends in SFO"),
    (booking(flights=flights(("HALF", 20), ("OUT", 21))), "a one_way from JFK to SFO starts in JFK, reaches SFO"),
    (booking(flights=[]), "list all its flights in order"),
    (booking(flight_type="round_trip"), "a round_trip from JFK to SFO starts in JFK, reaches SFO and ends in JFK"),
    (
        booking(destination="BOS", flight_type="round_trip", flights=flights(("OUT", 20), ("BACK", 22))),
        "a round_trip from JFK to BOS starts in JFK, reaches BOS and ends in JFK",
    ),
    (change("ROUND", "economy", ("OUT", 21)), "ends in JFK"),
    (change("ECO", "economy", ("HALF", 20)), "ends in SFO"),
    # changes
    (change("BASIC", "basic_economy", ("OUT", 21)), "reservation BASIC is basic economy"),
    (change("BASIC", "economy", ("OUT", 21)), "only its cabin can, with the same flights"),
    (change("ECO", "economy", ("OUT", 20)), "reservation ECO has these flights in economy already"),
    (change("ENDED", "economy", ("OUT", 20)), "reservation ENDED is cancelled"),
    (cancel("ENDED"), "reservation ENDED is cancelled"),
    (bags("ECO", 0, 0), "bags can only be added: reservation ECO has 1, so total_baggages is at least 2 and not 0"),
    (bags("ECO", 1, 0), "total_baggages is at least 2 and not 1"),
    # passengers
    (in_business(6), "at most 5 passengers and not 6"),
    (booking(passengers=[{**passenger(0), "first_name": ""}]), "/passengers/0/first_name is empty"),
    (booking(passengers=[{**passenger(0), "last_name": ""}]), "/passengers/0/last_name is empty"),
    (booking(passengers=[{**passenger(0), "dob": "in May"}]), "/passengers/0/dob is in May and not a date"),
    (people("ECO", 3), "reservation ECO has 2 and not 3"),
    # bags: two passengers of a regular member in economy have two free bags
    (bags("ECO", 3, 0), "2 checked bags are free here, so nonfree_baggages is 1 and not 0"),
    (bags("ECO", 2, 1), "2 checked bags are free here, so nonfree_baggages is 0 and not 1"),
    (booking(total_baggages=3, payment_methods=paying(credit_card_1=250)), "so nonfree_baggages is 1 and not 0"),
    # payments
    (booking(payment_methods=paying(credit_card_9=200)), "credit_card_9 is not in the profile of sam"),
    (change("ECO", "economy", ("OUT", 21), payment="credit_card_9"), "credit_card_9 is not in the profile of rita"),
    (booking(payment_methods=paying(certificate_1=100, certificate_2=100)), "at most 1 certificate and not 2"),
    (booking(payment_methods=paying(credit_card_1=100, credit_card_2=100)), "at most 1 credit_card and not 2"),
    (change("ECO", "economy", ("OUT", 21), payment="certificate_1"), "certificate_1 is a certificate"),
    (bags("ECO", 3, 1, payment="certificate_1"), "certificate_1 is a certificate"),
    (booking(payment_methods=paying(credit_card_1=199)), "the price is 200 dollars and not 199"),
    (booking(insurance="yes"), "the price is 230 dollars and not 200"),
    (booking(total_baggages=3, nonfree_baggages=1), "the price is 250 dollars and not 200"),
    (booking(payment_methods=paying(gift_card_1=121, credit_card_1=79)), "gift_card_1 has 120 dollars left"),
    # cancellations
    (cancel("OLD"), "it was booked more than 24 hours ago"),
    (cancel("BASIC"), "reservation BASIC (basic_economy, no insurance) cannot be cancelled"),
    (cancel("FLOWN"), "flight OUT on 2024-05-10 of reservation FLOWN is already used (landed)"),
    (cancel("FLYING"), "(flying): transfer the customer to a human agent"),
    # compensation
    (certificate("rita", 50), "no compensation for rita"),
    (certificate("rita", 100), "no compensation for rita"),
    (certificate("gil", 100), "the compensation for reservation HIT is 300 dollars and not 100"),
    (certificate("sam", 50), "no compensation for sam"),
    (certificate("sam", 100), "no compensation for sam"),  # LATE has neither been changed nor cancelled
]
PERMITTED = [
    booking(),
    booking(flight_type="round_trip", flights=flights(("OUT", 20), ("BACK", 22))),
    booking(insurance="yes", payment_methods=paying(credit_card_1=230)),
    booking(total_baggages=3, nonfree_baggages=1, payment_methods=paying(credit_card_1=250)),
    booking(payment_methods=paying(certificate_1=50, gift_card_1=120, credit_card_1=30)),
    booking(passengers=[passenger(0), passenger(1)], payment_methods=paying(credit_card_1=400)),
    in_business(5),
    change("TIGHT", "business", ("OUT", 22), ("BACK", 21)),  # its flights are not compared
    change("ECO", "economy", ("HALF", 20), ("REST", 20)),
    change("ECO", "business", ("OUT", 20)),
    change("ROUND", "economy", ("OUT", 20), ("BACK", 21)),
    change("BASIC", "economy", ("OUT", 20)),
    change("STUCK", "economy", ("OUT", 14), ("BACK", 21)),  # a flight that stays may be cancelled
    bags("ECO", 2, 0),
    bags("ECO", 3, 1),
    people("ECO", 2),
    cancel("NEW"),
    cancel("BIZ"),
    cancel("POOR"),  # the airline cancelled its flight
    cancel("INSURED"),
    certificate("gil", 300),
]


@pytest.mark.parametrize(("call", "reason"), DENIED, ids=lambda value: value if isinstance(value, str) else value[0])
def test_a_denied_call_is_told_what_to_do(pack: Pack, call: tuple[str, dict[str, Any]], reason: str) -> None:
    decision = pack.decide(*call)
    assert decision.verdict == "deny"
    assert decision.public_reasons == decision.reasons
    assert len(decision.reasons) == 1
    assert reason in decision.reasons[0]


@pytest.mark.parametrize("call", PERMITTED, ids=lambda call: call[0])
def test_a_permitted_write_needs_the_yes_of_the_customer(pack: Pack, call: tuple[str, dict[str, Any]]) -> None:
    for intent in (None, "serve_customer"):
        decision = pack.decide(*call, intent=intent)
        assert (decision.verdict, decision.reasons) == ("ask", ())
        assert "wait for an explicit yes" in " ".join(decision.public_reasons)


def messages(*texts: str) -> list[Mapping[str, Any]]:
    return [{"pred": "customer_message", "args": [text]} for text in texts]


def test_insurance_covers_the_reasons_that_the_application_heard(pack: Pack) -> None:
    will = messages("I will cancel.", "My plans changed.")
    assert "the reason has to be health or weather" in " ".join(pack.decide(*cancel("INSURED")).public_reasons)
    (denied,) = pack.decide(*cancel("INSURED"), facts=will).public_reasons
    assert "the customer named neither" in denied
    assert pack.decide(*cancel("INSURED"), facts=[*will, *messages("I am ill.")]).verdict == "ask"
    assert pack.decide(*cancel("BIZ"), facts=will).verdict == "ask"
    decision = pack.as_caller("agent").decide(*cancel("INSURED"), facts=messages("I am ill."))
    assert decision.verdict == "deny"
    assert "only an application with the permission conversation" in decision.reasons[0]


def test_reading_needs_nothing(pack: Pack) -> None:
    answer = pack.intent("serve_customer")
    found = answer.invoke("search_onestop_flight", {"origin": "JFK", "destination": "SFO", "date": "2024-05-20"}).result
    assert [[leg["flight_number"] for leg in trip] for trip in found["value"]] == [["HALF", "REST"]]
    found = answer.invoke("search_direct_flight", {"origin": "JFK", "destination": "SFO", "date": "2024-05-14"}).result
    assert found["value"] == []
    assert (
        answer.invoke("get_flight_status", {"flight_number": "OUT", "date": "2024-05-14"}).result["value"]
        == "cancelled"
    )
    assert answer.invoke("get_user_details", {"user_id": "gil"}).result["reservations"] == ["HIT"]
    with pytest.raises(Refused, match="there is no reservation NONE"):
        answer.invoke("get_reservation_details", {"reservation_id": "NONE"})


def test_every_rule_decides_one_of_these_calls(tmp_path: Path) -> None:
    coverage = PackCoverage("airline")
    with open_pack(tmp_path, coverage) as opened:
        for call in [*(call for call, _ in DENIED), *PERMITTED]:
            opened.decide(*call)
        opened.decide(*cancel("INSURED"), facts=messages("No."))
        opened.decide(*cancel("INSURED"), facts=messages("I am ill."))
        opened.as_caller("agent").decide(*cancel("INSURED"), facts=messages("I am ill."))
        opened.intent("serve_customer")
        opened = run(opened, *change("LATE", "business", ("OUT", 20)))
        run(opened, *cancel("LATE")).decide(*certificate("sam", 100))
    silent = [rule.text for rule in coverage.never_fired()]
    assert silent == [], "no call fires these rules"


# --- the tools -------------------------------------------------------------------------------------------------------


def run(desk: Pack, tool: str, args: dict[str, Any]) -> Pack:
    """Call a tool, approved by the customer, and return the pack over the changed database."""
    desk.intent("serve_customer").invoke(tool, args, confirm=True)
    return desk.refresh_facts()


def row(desk: Pack, table: str, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(desk.options.params["database"]) / f"{table}.json").read_bytes())[key]
    return found


def test_a_denied_call_changes_nothing(desk: Pack) -> None:
    before = row(desk, "reservations", "OLD")
    with pytest.raises(Refused, match="it was booked more than 24 hours ago"):
        run(desk, *cancel("OLD"))
    with pytest.raises(Refused, match="confirmation_required"):
        desk.intent("serve_customer").invoke(*cancel("NEW"))
    assert row(desk, "reservations", "OLD") == before


def test_a_booking_is_paid_and_takes_seats(desk: Pack) -> None:
    methods = paying(certificate_1=50, gift_card_1=120, credit_card_1=30)
    desk = run(desk, *booking(payment_methods=methods))
    booked = row(desk, "reservations", "HATHAT")
    assert [each["price"] for each in booked["flights"]] == [100, 100]
    assert (booked["payment_history"], booked["created_at"]) == (methods, "2024-05-15T15:00:00")
    customer = row(desk, "users", "sam")
    assert customer["reservations"][-1] == "HATHAT"
    assert "certificate_1" not in customer["payment_methods"]
    assert customer["payment_methods"]["gift_card_1"]["amount"] == 0
    assert row(desk, "flights", "HALF")["dates"]["2024-05-20"]["available_seats"]["economy"] == 1
    assert desk.decide(*cancel("HATHAT")).verdict == "ask"
    two = booking(passengers=[passenger(0), passenger(1)], payment_methods=paying(credit_card_1=400))
    assert "has 1 seats in economy for 2 passengers" in " ".join(desk.decide(*two).public_reasons)
    desk = run(desk, *booking(payment_methods=paying(credit_card_1=200)))
    assert row(desk, "reservations", "HATHAU")["total_baggages"] == 2


def test_a_changed_flight_costs_the_difference(desk: Pack) -> None:
    desk = run(desk, *change("ROUND", "economy", ("OUT", 20), ("BACK", 21), payment="gift_card_1"))
    changed = row(desk, "reservations", "ROUND")
    assert [each["price"] for each in changed["flights"]] == [80, 100]
    assert changed["payment_history"][-1] == {"payment_id": "gift_card_1", "amount": 20}
    assert [each["flight_number"] for each in changed["replaced_flights"]] == ["BACK"]
    assert row(desk, "users", "sam")["payment_methods"]["gift_card_1"]["amount"] == 100
    with pytest.raises(Refused, match="The balance of gift_card_1 is less than 420"):
        run(desk, *change("ROUND", "business", ("OUT", 20), ("BACK", 21), payment="gift_card_1"))


def test_the_new_cabin_counts_for_the_bags(desk: Pack) -> None:
    assert desk.decide(*bags("BASIC", 1, 0)).verdict == "deny"
    desk = run(desk, *change("BASIC", "economy", ("OUT", 20)))
    assert desk.decide(*bags("BASIC", 1, 0)).verdict == "ask"
    desk = run(desk, *bags("BASIC", 2, 1))
    changed = row(desk, "reservations", "BASIC")
    assert (changed["total_baggages"], changed["nonfree_baggages"]) == (2, 1)
    assert changed["payment_history"][-1]["amount"] == 50


def test_passengers_are_replaced(desk: Pack) -> None:
    args = {"reservation_id": "BASIC", "passengers": [passenger(7)]}
    desk = run(desk, "update_reservation_passengers", args)
    assert row(desk, "reservations", "BASIC")["passengers"] == [passenger(7)]


@pytest.mark.parametrize(
    "solved", [cancel("LATE"), change("LATE", "business", ("OUT", 20))], ids=["cancelled", "changed"]
)
def test_a_delay_is_compensated_after_the_reservation_was(desk: Pack, solved: tuple[str, dict[str, Any]]) -> None:
    assert desk.decide(*certificate("sam", 100)).verdict == "deny"
    desk = run(desk, *solved)
    assert "LATE is 100 dollars and not 50" in desk.decide(*certificate("sam", 50)).public_reasons[0]
    desk = run(desk, *certificate("sam", 100))
    methods = row(desk, "users", "sam")["payment_methods"]
    assert methods["certificate_3221322"] == {"source": "certificate", "amount": 100, "id": "certificate_3221322"}


def test_a_cancellation_refunds_each_payment(desk: Pack) -> None:
    desk = run(desk, *cancel("NEW"))
    cancelled = row(desk, "reservations", "NEW")
    assert cancelled["status"] == "cancelled"
    assert [payment["amount"] for payment in cancelled["payment_history"]] == [80, -80]
