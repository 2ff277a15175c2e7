# Which flights a call may list, for a new reservation and for a change.

# Only a flight with the status "available" can be booked; only such a flight has prices and free seats. A flight that the
# reservation has already, in the same cabin, stays as it is.
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

# A change keeps the origin, the destination and the kind of the trip. The flights of a trip lead from its origin to its
# destination, and in a round trip back to the origin.
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

# A flight leaves after the flight before has landed. Two flights that the reservation has already are not compared.
new_leg(Position) :- new_flight(Position, Number, Date), !booked_flight(Number, Date).
booked_flight(Number, Date) :- changed(R), segment(R, Number, Date).
compared(Position, fn:plus(Position, 1)) :- new_leg(Position).
compared(fn:minus(Position, 1), Position) :- new_leg(Position).

dated_flight(Position, Number, Date) :-
  new_flight(Position, Number, Date),
  fare(Number, Date, _, _, _).
dated_flight(Position, Number, Date) :-
  new_flight(Position, Number, Date),
  booked_flight(Number, Date).
takes_off(Position, Start) :-
  dated_flight(Position, Number, Date),
  schedule(Number, Time, _)
  |> let Start = fn:time:parse_rfc3339(fn:string:concat(Date, "T", Time)).
lands(Position, fn:time:add(Start, fn:duration:from_minutes(Minutes))) :-
  takes_off(Position, Start),
  dated_flight(Position, Number, _),
  schedule(Number, _, Minutes).

prohibited(Tool, Text) :-
  call(Tool),
  compared(First, Second),
  lands(First, Landing),
  takes_off(Second, Start),
  :time:lt(Start, Landing),
  new_flight(First, Earlier, _),
  new_flight(Second, Later, Date)
  |> let Text = fn:string:concat("flight ", Later, " on ", Date, " leaves before flight ", Earlier, " has landed: search for a later flight").
