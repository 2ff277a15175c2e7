# The database, as the generator in facts.py states it. Clients cannot assert any of it.

Decl flight(Number, Origin, Destination)
  descr [doc("A flight number, and its airports.")]
  bound [/string, /string, /string].
Decl schedule(Number, Departure, Minutes)
  descr [
    doc("When a flight leaves on each of its dates, as 08:00:00-05:00, and how long it takes."),
  ]
  bound [/string, /string, /number].
Decl flight_status(Number, Date, Status)
  descr [
    doc("The status of a flight that cannot be booked: on time, delayed, flying, landed or cancelled."),
  ]
  bound [/string, /string, /string].
Decl fare(Number, Date, Cabin, Price, Seats)
  descr [doc("A flight that can be booked: price for one passenger, and free seats, in a cabin.")]
  bound [/string, /string, /string, /number, /number].

Decl user(User, Membership)
  descr [doc("A customer; the membership is regular, silver or gold.")]
  bound [/string, /string].
Decl payment_method(User, Payment, Kind)
  descr [
    doc("A payment method in the profile of a customer: credit_card, gift_card or certificate."),
  ]
  bound [/string, /string, /string].
Decl balance(User, Payment, Amount)
  descr [doc("What is left on a gift card or certificate.")]
  bound [/string, /string, /number].

Decl reservation(Reservation, User, Cabin, Passengers)
  descr [doc("A reservation: customer, cabin, number of passengers.")]
  bound [/string, /string, /string, /number].
Decl trip(Reservation, Type, Origin, Destination)
  descr [doc("The trip of a reservation; the type is one_way or round_trip.")]
  bound [/string, /string, /string, /string].
Decl booked_at(Reservation, Time) descr [doc("When it was booked.")] bound [/string, /time].
Decl insured(Reservation) descr [doc("It has a travel insurance.")] bound [/string].
Decl bags(Reservation, Total)
  descr [doc("The number of its checked bags.")]
  bound [/string, /number].
Decl segment(Reservation, Number, Date)
  descr [doc("A flight of the reservation.")]
  bound [/string, /string, /string].
Decl replaced_segment(Reservation, Number, Date)
  descr [doc("A flight that the reservation had before it was changed.")]
  bound [/string, /string, /string].
Decl cancelled(Reservation) descr [doc("The reservation was cancelled.")] bound [/string].
