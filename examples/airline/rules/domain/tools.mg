# Each action is a tool of the same name, with the arguments of the action.

macro_step(Tool, 1, Tool) :- macro(Tool, _).
relevant(Tool, 80) :- intent("serve_customer"), macro(Tool, _).

macro("get_user_details", "Get the profile of a customer.").
macro("get_reservation_details", "Get a reservation.").
macro("get_flight_status", "Get the status of a flight on a date.").
macro("search_direct_flight", "Search direct flights between two airports on a date.").
macro("search_onestop_flight", "Search connections with one stop between two airports on a date.").
macro("transfer_to_human_agents", "Transfer the customer to a human agent, with a summary.").

macro("book_reservation", "Book a reservation.").
macro("update_reservation_flights", "Change the flights or the cabin of a reservation.").
macro("update_reservation_baggages", "Change the checked bags of a reservation.").
macro("update_reservation_passengers", "Change the passengers of a reservation.").
macro("cancel_reservation", "Cancel a whole reservation, and refund its payments.").
macro("send_certificate", "Send a certificate to a customer, as a compensation.").
