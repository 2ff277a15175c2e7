# For which reservations a certificate is a compensation, and its amount. Entitled are silver and gold members, insured
# customers, and passengers in business.

entitled(R) :- reservation(R, User, _, _), user(User, "silver").
entitled(R) :- reservation(R, User, _, _), user(User, "gold").
entitled(R) :- insured(R).
entitled(R) :- reservation(R, _, "business", _).

had_flight(R, Status) :- segment(R, Number, Date), flight_status(Number, Date, Status).
had_flight(R, Status) :- replaced_segment(R, Number, Date), flight_status(Number, Date, Status).

# A cancelled flight: 100 dollars for each passenger.
compensation(R, User, Amount) :-
  had_flight(R, "cancelled"),
  entitled(R),
  reservation(R, User, _, N),
  Amount = fn:mult(100, N).

# A delayed flight, once the reservation was changed or cancelled: 50 dollars for each passenger.
compensation(R, User, Amount) :-
  had_flight(R, "delayed"),
  entitled(R),
  ended_or_changed(R),
  reservation(R, User, _, N),
  Amount = fn:mult(50, N).
ended_or_changed(R) :- cancelled(R).
ended_or_changed(R) :- replaced_segment(R, _, _).

prohibited("send_certificate", Text) :-
  call("send_certificate"),
  customer(User),
  !compensation(_, User, _)
  |> let Text = fn:string:concat("no compensation for ", User, ": needed is a reservation with a cancelled flight, or one that was changed or cancelled because of a delayed flight, of a silver or gold member, with insurance, or in business").
prohibited("send_certificate", Text) :-
  call("send_certificate"),
  call_arg("amount", Asked),
  customer(User),
  !compensation(_, User, Asked),
  compensation(R, User, Amount)
  |> let Text = fn:string:concat("the compensation for reservation ", R, " is ", Amount, " dollars and not ", Asked).
