# Changes of a reservation.

# "Basic economy flights cannot be modified." "All reservations, including basic economy, can change cabin without
# changing the flights."
changes_flights(R) :- changed(R), new_flight(_, Number, Date), !segment(R, Number, Date).
changes_flights(R) :- changed(R), segment(R, Number, Date), !new_flight(_, Number, Date).

prohibited("update_reservation_flights", Text) :-
  call("update_reservation_flights"),
  changes_flights(R),
  reservation(R, _, "basic_economy", _)
  |> let Text = fn:string:concat("reservation ", R, " is basic economy, so its flights cannot change: only its cabin can, with the same flights").

# "The user can add but not remove checked bags."
prohibited("update_reservation_baggages", Text) :-
  call("update_reservation_baggages"),
  changed(R),
  bags(R, Old),
  asked_bags(New),
  New < Old
  |> let Text = fn:string:concat("bags cannot be removed: reservation ", R, " has ", Old, ", so total_baggages is at least ", Old, " and not ", New).
