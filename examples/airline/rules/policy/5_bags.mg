# The free bags of each passenger, by the membership of the customer and the cabin.

free_bags_each("regular", "basic_economy", 0).
free_bags_each("regular", "economy", 1).
free_bags_each("regular", "business", 2).
free_bags_each("silver", "basic_economy", 1).
free_bags_each("silver", "economy", 2).
free_bags_each("silver", "business", 3).
free_bags_each("gold", "basic_economy", 2).
free_bags_each("gold", "economy", 3).
free_bags_each("gold", "business", 3).

free_bags(Free) :-
  customer(User),
  user(User, Membership),
  new_cabin(Cabin),
  travellers(N),
  free_bags_each(Membership, Cabin, Each),
  Free = fn:mult(N, Each).
asked_bags(Total) :- call(_), call_arg("total_baggages", Total), :is_number(Total).
bags_to_pay(Free, fn:minus(Total, Free)) :- free_bags(Free), asked_bags(Total), Total > Free.
bags_to_pay(Free, 0) :- free_bags(Free), asked_bags(Total), Total <= Free.

# A bag that is not free costs 50 dollars: neither is a free bag charged, nor another bag free.
prohibited(Tool, Text) :-
  call(Tool),
  call_arg("nonfree_baggages", Asked),
  bags_to_pay(Free, Pay),
  Asked != Pay
  |> let Text = fn:string:concat(Free, " checked bags are free here, so nonfree_baggages is ", Pay, " and not ", Asked, "; each costs 50 dollars").
