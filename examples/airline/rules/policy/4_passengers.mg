# The passengers of a reservation.

# Five passengers are the most for a reservation.
prohibited("book_reservation", Text) :-
  call("book_reservation"),
  travellers(N),
  N > 5
  |> let Text = fn:string:concat("a reservation has at most 5 passengers and not ", N).

# Who travels can change, how many cannot.
prohibited("update_reservation_passengers", Text) :-
  call("update_reservation_passengers"),
  changed(R),
  reservation(R, _, _, Old),
  call_arg("passengers", Passengers),
  :is_list(Passengers),
  New = fn:list:len(Passengers),
  New != Old
  |> let Text = fn:string:concat("the number of passengers cannot change: reservation ", R, " has ", Old, " and not ", New, "; a human agent cannot change it either").

# Each passenger has a first name, a last name and a date of birth. call_value has each value of an argument with its
# place, such as /passengers/0/dob.
prohibited(Tool, Text) :-
  call(Tool),
  call_value(Place, Value),
  :string:matches(Place, "^/passengers/.*/(first_name|last_name)$"),
  Value = ""
  |> let Text = fn:string:concat(Place, " is empty: ask for the first name, last name and date of birth of each passenger").
prohibited(Tool, Text) :-
  call(Tool),
  call_value(Place, Value),
  :string:matches(Place, "^/passengers/.*/dob$"),
  !:string:matches(Value, "^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
  |> let Text = fn:string:concat(Place, " is ", Value, " and not a date such as 1990-01-31: ask for the date of birth of each passenger").
