# A reservation can be cancelled on the first day after its booking, when the airline cancelled one of its flights, or in
# business. In the other cabins, the insurance has to cover the reason.

# The flights of the database are those of May 2024, so the time is a setting. With the clock: current_time(fn:time:now()).
current_time(Now) :- setting("current_time", Text) |> let Now = fn:time:parse_rfc3339(Text).

cancellable(R) :-
  current_time(Now),
  booked_at(R, Booked),
  :time:le(Now, fn:time:add(Booked, fn:duration:parse("24h"))).
cancellable(R) :- segment(R, Number, Date), flight_status(Number, Date, "cancelled").
cancellable(R) :- reservation(R, _, "business", _).

# Denied by default: without a reason to permit it, no reservation is cancelled.
prohibited("cancel_reservation", Text) :-
  call("cancel_reservation"),
  changed(R),
  !cancellable(R),
  !insured(R),
  reservation(R, _, Cabin, _)
  |> let Text = fn:string:concat("reservation ", R, " (", Cabin, ", no insurance) cannot be cancelled: it was booked more than 24 hours ago, and the airline cancelled none of its flights; deny the request").

# The insurance covers health and weather. The database does not have the reason of a cancellation. The application can
# state the messages of the customer; otherwise the approver compares the reason.
needs_insurance(R) :- call("cancel_reservation"), changed(R), insured(R), !cancellable(R).
covered_reason() :-
  needs_insurance(_),
  customer_message(Text),
  covered_word(Word),
  :string:has_word(Text, Word).
prohibited("cancel_reservation", Text) :-
  needs_insurance(R),
  customer_message(_),
  !covered_reason()
  |> let Text = fn:string:concat("the insurance of ", R, " covers health and weather, and the customer named neither: ask for the reason, and deny the request if it is another one").
public_reason("cancel_reservation", Text) :-
  needs_insurance(R),
  !prohibited("cancel_reservation", _)
  |> let Text = fn:string:concat("only the insurance of ", R, " permits the cancellation: the reason has to be health or weather").

covered_word("health"). covered_word("medical"). covered_word("sick"). covered_word("sickness").
covered_word("ill"). covered_word("illness"). covered_word("unwell"). covered_word("injury").
covered_word("injured"). covered_word("hospital"). covered_word("doctor"). covered_word("surgery").
covered_word("weather"). covered_word("storm"). covered_word("hurricane"). covered_word("snow").
covered_word("flood").

# A model that wants to cancel could state any reason, so only the application that holds the conversation may.
fact_denied("customer_message", "only an application with the permission conversation states messages of the customer") :-
  !client_permission("conversation").

# A trip that has begun cannot be cancelled by an agent: a human agent decides.
taken_off("landed"). taken_off("flying").
used_flight(R, Number, Date, Status) :-
  segment(R, Number, Date),
  flight_status(Number, Date, Status),
  taken_off(Status).

prohibited("cancel_reservation", Text) :-
  call("cancel_reservation"),
  changed(R),
  used_flight(R, Number, Date, Status)
  |> let Text = fn:string:concat("flight ", Number, " on ", Date, " of reservation ", R, " is already used (", Status, "): transfer the customer to a human agent").
