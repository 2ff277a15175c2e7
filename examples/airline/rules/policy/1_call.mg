# What a call is about. An argument can be any JSON value; a test such as :is_list makes it usable in a rule.

# The reservation that the call would change, and the customer who pays.
changed(R) :- call(_), call_arg("reservation_id", R), reservation(R, _, _, _).
customer(User) :- call(_), call_arg("user_id", User), user(User, _).
customer(User) :- changed(R), reservation(R, User, _, _).

prohibited(Tool, Text) :-
  call(Tool),
  call_arg("reservation_id", R),
  !changed(R)
  |> let Text = fn:string:concat("there is no reservation ", R, ": read the id from the profile of the customer").
prohibited(Tool, Text) :-
  call(Tool),
  call_arg("user_id", User),
  !customer(User)
  |> let Text = fn:string:concat("there is no user ", User, ": ask the customer for the user id").

# The trip, cabin and number of passengers as they would be after the call.
new_trip(Type, From, To) :-
  call(_),
  call_arg("flight_type", Type),
  call_arg("origin", From),
  call_arg("destination", To).
new_trip(Type, From, To) :- changed(R), trip(R, Type, From, To).
new_cabin(Cabin) :- call(_), call_arg("cabin", Cabin).
new_cabin(Cabin) :- call("update_reservation_baggages"), changed(R), reservation(R, _, Cabin, _).
travellers(N) :-
  call("book_reservation"),
  call_arg("passengers", Passengers),
  :is_list(Passengers)
  |> let N = fn:list:len(Passengers).
travellers(N) :- changed(R), reservation(R, _, _, N).

# The flights that the call lists, in order, from 0, and where each goes.
new_flight(Position, Number, Date) :-
  call(_),
  call_arg("flights", Flights),
  :list:enumerate(Flights, Position, Flight),
  :match_entry(Flight, "flight_number", Number),
  :match_entry(Flight, "date", Date).
leg(Position, From, To) :- new_flight(Position, Number, _), flight(Number, From, To).
