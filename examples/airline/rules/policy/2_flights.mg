# Which flights a call may list, for a new reservation and for a change.

# "If the status is available, the flight has not taken off, available seats and prices are listed." Others cannot be
# booked. A flight that the reservation has already, in the same cabin, stays as it is.
keeps(Number, Date) :-
  changed(R),
  reservation(R, _, Cabin, _),
  new_cabin(Cabin),
  segment(R, Number, Date).
unbookable(Number, Date) :-
  new_flight(_, Number, Date),
  !fare(Number, Date, _, _, _),
  !keeps(Number, Date).

prohibited(Tool, Text) :-
  call(Tool),
  unbookable(Number, Date)
  |> let Text = fn:string:concat("flight ", Number, " on ", Date, " cannot be booked: search for a flight that is available").
prohibited(Tool, Text) :-
  call(Tool),
  new_flight(_, Number, Date),
  !keeps(Number, Date),
  new_cabin(Cabin),
  travellers(N),
  fare(Number, Date, Cabin, _, Seats),
  Seats < N
  |> let Text = fn:string:concat("flight ", Number, " on ", Date, " has ", Seats, " seats in ", Cabin, " for ", N, " passengers: search for another flight or cabin").

# "Other reservations can be modified without changing the origin, destination, and trip type." The flights of a trip
# lead from its origin to its destination, and in a round trip back to the origin.
trip_end(To) :- new_trip("one_way", _, To).
trip_end(From) :- new_trip("round_trip", From, _).

off_route() :- new_trip(_, From, _), !leg(0, From, _).
off_route() :- leg(Position, _, To), !leg(fn:plus(Position, 1), _, _), !trip_end(To).
off_route() :- leg(Position, _, To), leg(fn:plus(Position, 1), From, _), To != From.
off_route() :- new_trip(_, _, Destination), !leg(_, _, Destination).

prohibited(Tool, Text) :-
  call(Tool),
  call_arg("flights", _),
  off_route(),
  new_trip(Type, From, To),
  trip_end(End)
  |> let Text = fn:string:concat("a ", Type, " from ", From, " to ", To, " starts in ", From, ", reaches ", To, " and ends in ", End, ": list all its flights in order, also those that stay").
