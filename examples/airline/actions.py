"""The tools of the airline: they read and change the three tables in the folder that the setting ``database`` names.

The tools check what a database has to check: that a row exists, that seats and balances suffice. Whether a change is
permitted is a matter of the rules in ``rules/policy``.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any, Literal, TypedDict

from manglecp import ActionError, Context, Limits, action

Row = dict[str, Any]
Cabin = Literal["basic_economy", "economy", "business"]
Count = Annotated[int, Limits(ge=0)]
BOOKING_TIME = slice(0, len("2024-05-15T15:00:00"))
INSURANCE_PRICE, BAG_PRICE = 30, 50


class FlightOnDate(TypedDict):
    flight_number: str
    date: str


class Passenger(TypedDict):
    first_name: str
    last_name: str
    dob: str


class Payment(TypedDict):
    payment_id: str
    amount: Count


class Database:
    """The tables, each read when it is first used. :meth:`save` replaces the files of those that are named."""

    def __init__(self, context: Context) -> None:
        self._folder = Path(context.settings["database"])
        self._tables: dict[str, dict[str, Row]] = {}

    def table(self, name: str) -> dict[str, Row]:
        if name not in self._tables:
            self._tables[name] = json.loads((self._folder / f"{name}.json").read_bytes())
        return self._tables[name]

    def row(self, table: str, key: str) -> Row:
        rows = self.table(table)
        if key not in rows:
            raise ActionError(f"The table {table} has no {key!r}", code="x-not_found")
        return rows[key]

    def save(self, *names: str) -> None:
        for name in names:
            written = self._folder / f"{name}.json.new"
            written.write_text(json.dumps(self._tables[name]), "utf-8")
            written.replace(self._folder / f"{name}.json")

    def seats(self, number: str, date: str, cabin: Cabin, passengers: int) -> Row:
        """Return the day of the flight. Raises ActionError if it cannot be booked for so many passengers."""
        day: Row = self.row("flights", number)["dates"].get(date, {})
        if day.get("status") != "available" or day["available_seats"][cabin] < passengers:
            raise ActionError(f"Flight {number} on {date} has no {passengers} seats in {cabin}", code="x-no_seats")
        return day

    def method(self, user: str, payment: str, amount: int) -> Row:
        """Return the payment method. Raises ActionError if its balance is too low."""
        methods: dict[str, Row] = self.row("users", user)["payment_methods"]
        if payment not in methods:
            raise ActionError(f"{user} has no payment method {payment}", code="x-not_found")
        if methods[payment].get("amount", amount) < amount:
            raise ActionError(f"The balance of {payment} is less than {amount}", code="x-balance")
        return methods[payment]

    def pay_difference(self, reservation: Row, payment: str, amount: int) -> None:
        """Pay, or with a negative amount refund, a change of a reservation."""
        method = self.method(reservation["user_id"], payment, amount)
        if method["source"] == "certificate":
            raise ActionError("A certificate does not pay a change", code="x-payment")
        if method["source"] == "gift_card":
            method["amount"] -= amount
        if amount != 0:
            reservation["payment_history"].append({"payment_id": payment, "amount": amount})


@action(effects=["filesystem"], mutates=False, idempotent=True)
def get_user_details(context: Context, user_id: str) -> Row:
    """Get the profile of a customer."""
    return Database(context).row("users", user_id)


@action(effects=["filesystem"], mutates=False, idempotent=True)
def get_reservation_details(context: Context, reservation_id: str) -> Row:
    """Get a reservation."""
    return Database(context).row("reservations", reservation_id)


@action(effects=["filesystem"], mutates=False, idempotent=True)
def get_flight_status(context: Context, flight_number: str, date: str) -> str:
    """Get the status of a flight on a date."""
    dates = Database(context).row("flights", flight_number)["dates"]
    return str(dates[date]["status"]) if date in dates else "does not fly"


@action(effects=["filesystem"], mutates=False, idempotent=True)
def search_direct_flight(context: Context, origin: str, destination: str, date: str) -> list[Row]:
    """Search direct flights between two airports on a date."""
    flights = Database(context).table("flights").values()
    return [row for row in available(flights, date) if (row["origin"], row["destination"]) == (origin, destination)]


@action(effects=["filesystem"], mutates=False, idempotent=True)
def search_onestop_flight(context: Context, origin: str, destination: str, date: str) -> list[list[Row]]:
    """Search connections with one stop between two airports on a date."""
    flights = list(available(Database(context).table("flights").values(), date))
    arrival, departure = "scheduled_arrival_time_est", "scheduled_departure_time_est"
    return [
        [first, second]
        for first in flights
        for second in flights
        if first["origin"] == origin and second["destination"] == destination
        if first["destination"] == second["origin"] and first[arrival] <= second[departure]
    ]


def available(flights: Iterable[Row], date: str) -> Iterable[Row]:
    """Yield the flights that can be booked on the date, with their seats and prices."""
    for row in flights:
        day = row["dates"].get(date, {})
        if day.get("status") == "available":
            yield {**{name: value for name, value in row.items() if name != "dates"}, "date": date, **day}


@action(effects=["none"])
def transfer_to_human_agents(summary: str) -> str:
    """Transfer the customer to a human agent, with a summary."""
    return f"A human agent was told: {summary}"


@action(effects=["filesystem"])
def book_reservation(
    context: Context,
    user_id: str,
    origin: str,
    destination: str,
    flight_type: Literal["one_way", "round_trip"],
    cabin: Cabin,
    flights: list[FlightOnDate],
    passengers: list[Passenger],
    payment_methods: list[Payment],
    total_baggages: Count,
    nonfree_baggages: Count,
    insurance: Literal["yes", "no"],
) -> Row:
    """Book a reservation."""
    database = Database(context)
    booked, price = [], BAG_PRICE * nonfree_baggages + (INSURANCE_PRICE * len(passengers) if insurance == "yes" else 0)
    for each in flights:
        day = database.seats(each["flight_number"], each["date"], cabin, len(passengers))
        day["available_seats"][cabin] -= len(passengers)
        price += day["prices"][cabin] * len(passengers)
        booked.append(flight_row(database, each, day["prices"][cabin]))
    if (paid := sum(payment["amount"] for payment in payment_methods)) != price:
        raise ActionError(f"The price is {price}, and the payments are {paid}", code="x-payment")
    for payment in payment_methods:
        method = database.method(user_id, payment["payment_id"], payment["amount"])
        if method["source"] == "gift_card":
            method["amount"] -= payment["amount"]
        elif method["source"] == "certificate":  # the rest of a certificate is lost
            del database.row("users", user_id)["payment_methods"][payment["payment_id"]]
    key = free_id(database.table("reservations"))
    reservation: Row = {
        "reservation_id": key,
        "user_id": user_id,
        "origin": origin,
        "destination": destination,
        "flight_type": flight_type,
        "cabin": cabin,
        "flights": booked,
        "passengers": passengers,
        "payment_history": payment_methods,
        "created_at": context.settings["current_time"][BOOKING_TIME],
        "total_baggages": total_baggages,
        "nonfree_baggages": nonfree_baggages,
        "insurance": insurance,
    }
    database.table("reservations")[key] = reservation
    database.row("users", user_id)["reservations"].append(key)
    database.save("reservations", "users", "flights")
    return reservation


def flight_row(database: Database, flight: FlightOnDate, price: int) -> Row:
    row = database.row("flights", flight["flight_number"])
    return {"origin": row["origin"], "destination": row["destination"], **flight, "price": price}


def free_id(taken: Iterable[str]) -> str:
    """Return the first free reservation id: HATHAT, HATHAU, and so on."""
    letters = ascii_uppercase[19:] + ascii_uppercase[:19]
    ids = (f"HATH{first}{second}" for first in ascii_uppercase for second in letters)
    return next(key for key in ids if key not in taken)


@action(effects=["filesystem"])
def update_reservation_flights(
    context: Context, reservation_id: str, cabin: Cabin, flights: list[FlightOnDate], payment_id: str
) -> Row:
    """Change the flights or the cabin of a reservation.

    Args:
        flights: all flights of the new trip, also those that stay
        payment_id: pays the difference, or receives the refund
    """
    database = Database(context)
    reservation = database.row("reservations", reservation_id)
    passengers = len(reservation["passengers"])
    old = reservation["flights"]
    kept = {(each["flight_number"], each["date"]): each for each in old if cabin == reservation["cabin"]}
    new: list[Row] = []
    for each in flights:
        if stays := kept.get((each["flight_number"], each["date"])):
            new.append(stays)  # at its old price
        else:
            day = database.seats(each["flight_number"], each["date"], cabin, passengers)
            new.append(flight_row(database, each, day["prices"][cabin]))
    difference = sum(each["price"] for each in new) - sum(each["price"] for each in old)
    database.pay_difference(reservation, payment_id, difference * passengers)
    left = {(each["flight_number"], each["date"]) for each in new}
    gone = [each for each in old if (each["flight_number"], each["date"]) not in left]
    reservation["replaced_flights"] = [*reservation.get("replaced_flights", []), *gone]
    reservation["flights"], reservation["cabin"] = new, cabin
    database.save("reservations", "users")
    return reservation


@action(effects=["filesystem"])
def update_reservation_baggages(
    context: Context, reservation_id: str, total_baggages: Count, nonfree_baggages: Count, payment_id: str
) -> Row:
    """Change the checked bags of a reservation.

    Args:
        total_baggages: all bags of the reservation, also those that it has already
        nonfree_baggages: those that cost 50 dollars each, also those that are paid already
    """
    database = Database(context)
    reservation = database.row("reservations", reservation_id)
    more = max(0, nonfree_baggages - reservation["nonfree_baggages"])
    database.pay_difference(reservation, payment_id, BAG_PRICE * more)
    reservation["total_baggages"], reservation["nonfree_baggages"] = total_baggages, nonfree_baggages
    database.save("reservations", "users")
    return reservation


@action(effects=["filesystem"])
def update_reservation_passengers(context: Context, reservation_id: str, passengers: list[Passenger]) -> Row:
    """Change the passengers of a reservation."""
    database = Database(context)
    reservation = database.row("reservations", reservation_id)
    if len(passengers) != len(reservation["passengers"]):
        raise ActionError("The number of passengers does not change", code="x-passengers")
    reservation["passengers"] = passengers
    database.save("reservations")
    return reservation


@action(effects=["filesystem"])
def cancel_reservation(context: Context, reservation_id: str) -> Row:
    """Cancel a whole reservation, and refund its payments."""
    database = Database(context)
    reservation = database.row("reservations", reservation_id)
    payments = reservation["payment_history"]
    payments += [{"payment_id": each["payment_id"], "amount": -each["amount"]} for each in payments]
    reservation["status"] = "cancelled"
    database.save("reservations")
    return reservation


@action(effects=["filesystem"])
def send_certificate(context: Context, user_id: str, amount: Count) -> str:
    """Send a certificate to a customer, as a compensation."""
    database = Database(context)
    methods = database.row("users", user_id)["payment_methods"]
    number = next(number for number in range(3221322, 3222322) if f"certificate_{number}" not in methods)
    payment = f"certificate_{number}"
    methods[payment] = {"source": "certificate", "amount": amount, "id": payment}
    database.save("users")
    return f"Certificate {payment} added to user {user_id} with amount {amount}."
