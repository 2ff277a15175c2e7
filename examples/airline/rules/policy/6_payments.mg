# How a call is paid.

payment(Position, Id, Amount) :-
  call(_),
  call_arg("payment_methods", Payments),
  :list:enumerate(Payments, Position, Payment),
  :match_entry(Payment, "payment_id", Id),
  :match_entry(Payment, "amount", Amount).

# A customer pays only with payment methods of the own profile.
pays(Id) :- payment(_, Id, _).
pays(Id) :- call(_), call_arg("payment_id", Id).
pays_with(Id, Kind) :- pays(Id), customer(User), payment_method(User, Id, Kind).
prohibited(Tool, Text) :-
  call(Tool),
  pays(Id),
  customer(User),
  !pays_with(Id, _)
  |> let Text = fn:string:concat(Id, " is not in the profile of ", User, ": ask for a payment method that is").

# How many payment methods of a kind a booking can combine.
at_most("certificate", 1). at_most("credit_card", 1). at_most("gift_card", 3).
uses(Kind, N) :- pays_with(Id, Kind) |> do fn:group_by(Kind), let N = fn:count().
prohibited("book_reservation", Text) :-
  call("book_reservation"),
  uses(Kind, N),
  at_most(Kind, Most),
  N > Most
  |> let Text = fn:string:concat("a reservation can use at most ", Most, " ", Kind, " and not ", N, ": ask which to use, and how to pay the rest").

# A change is paid, or refunded, with one gift card or credit card.
prohibited(Tool, Text) :-
  call(Tool),
  call_arg("payment_id", Id),
  pays_with(Id, "certificate")
  |> let Text = fn:string:concat(Id, " is a certificate and cannot pay a change: ask for a gift card or credit card").

# The price: the flights, 30 dollars for each insured passenger, 50 dollars for each bag that is not free.
flight_price(Position, Price) :-
  new_flight(Position, Number, Date),
  new_cabin(Cabin),
  fare(Number, Date, Cabin, Price, _).
flights_price(Sum) :- flight_price(_, Price) |> do fn:group_by(), let Sum = fn:sum(Price).
insurance_each("yes", 30). insurance_each("no", 0).
price(Total) :-
  call("book_reservation"),
  !unbookable(_, _),
  flights_price(Flights),
  call_arg("insurance", Insurance),
  insurance_each(Insurance, Each),
  travellers(N),
  bags_to_pay(_, Bags),
  Total = fn:plus(fn:mult(N, fn:plus(Flights, Each)), fn:mult(50, Bags)).
paid(Sum) :- payment(_, _, Amount) |> do fn:group_by(), let Sum = fn:sum(Amount).
prohibited("book_reservation", Text) :-
  price(Total),
  paid(Sum),
  Sum != Total
  |> let Text = fn:string:concat("the price is ", Total, " dollars and not ", Sum, ": the amounts of payment_methods add up to it").
prohibited("book_reservation", Text) :-
  call("book_reservation"),
  payment(_, Id, Amount),
  customer(User),
  balance(User, Id, Left),
  Amount > Left
  |> let Text = fn:string:concat(Id, " has ", Left, " dollars left and cannot pay ", Amount, ": pay the rest by another method").
