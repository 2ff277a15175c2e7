paid("A-1", 20). paid("A-2", 300).  # these would come from your database
permitted("refund") :- client_permission("support").
needs_approval("refund", "lead") :- call("refund"), call_arg("amount", Amount), Amount > 100.
public_reason("refund", "a lead has to agree to more than 100") :- needs_approval("refund", "lead").
prohibited("refund", "there is no such order") :-
  call("refund"),
  call_arg("order", Order),
  !paid(Order, _).
prohibited("refund", Text) :-
  call("refund"),
  call_arg("order", Order),
  call_arg("amount", Amount),
  paid(Order, Paid),
  Amount > Paid
  |> let Text = fn:string:concat("at most ", Paid, " can be refunded for ", Order).
public_reason("refund", Text) :- prohibited("refund", Text).
