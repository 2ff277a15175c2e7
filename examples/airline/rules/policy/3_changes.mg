# Changes of a reservation.

# A cancelled reservation stays as it is.
prohibited(Tool, Text) :-
  call(Tool),
  write(Tool),
  changed(R),
  cancelled(R)
  |> let Text = fn:string:concat("reservation ", R, " is cancelled, so it cannot change: book a new one").

# In basic economy the flights of a reservation are fixed. Its cabin can change in every class.
changes_flights(R) :- changed(R), new_flight(_, Number, Date), !segment(R, Number, Date).
changes_flights(R) :- changed(R), segment(R, Number, Date), !new_flight(_, Number, Date).

prohibited("update_reservation_flights", Text) :-
  call("update_reservation_flights"),
  changes_flights(R),
  reservation(R, _, "basic_economy", _)
  |> let Text = fn:string:concat("reservation ", R, " is basic economy, so its flights cannot change: only its cabin can, with the same flights").

# The customer pays for a change and agrees to it, so a call that changes nothing is a mistake.
prohibited("update_reservation_flights", Text) :-
  call("update_reservation_flights"),
  changed(R),
  !changes_flights(R),
  call_arg("cabin", Cabin),
  reservation(R, _, Cabin, _)
  |> let Text = fn:string:concat("reservation ", R, " has these flights in ", Cabin, " already: there is nothing to change").

# Bags are added, never removed.
prohibited("update_reservation_baggages", Text) :-
  call("update_reservation_baggages"),
  changed(R),
  bags(R, Old),
  asked_bags(New),
  New <= Old
  |> let Text = fn:string:concat("bags can only be added: reservation ", R, " has ", Old, ", so total_baggages is at least ", fn:plus(Old, 1), " and not ", New).
