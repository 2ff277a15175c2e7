# How the other files of this folder decide: prohibited(Tool, Text) denies a call. Its text names the rule, the value and
# what would be allowed, and is public: the model that made the call can act on it.

public_reason(Tool, Text) :- prohibited(Tool, Text).
public_reason(Tool, Text) :- fact_denied(_, Text), macro(Tool, _).

# Only these tools exist for an agent. A tool that is added later needs a line here.
permitted("get_user_details"). permitted("get_reservation_details"). permitted("get_flight_status").
permitted("search_direct_flight"). permitted("search_onestop_flight").
permitted("transfer_to_human_agents").
permitted("book_reservation").
permitted("update_reservation_flights").
permitted("update_reservation_baggages").
permitted("update_reservation_passengers").
permitted("cancel_reservation").
permitted("send_certificate").

# The customer agrees to each write before it happens. The approver is the customer, or acts on the customer's yes.
write(Tool) :- macro_step(Tool, _, Action), action_tier(Action, Tier), Tier > 0.
needs_confirmation(Tool) :- write(Tool).
public_reason(Tool, "the customer has to confirm: list the details of this action, and wait for an explicit yes") :-
  needs_confirmation(Tool),
  !prohibited(Tool, _).
