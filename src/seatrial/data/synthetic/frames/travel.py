"""Tools for going somewhere."""

TABLE = """
+ book_flight: Book a flight. / Buy a plane ticket.
  origin! place: city of departure / where the flight leaves | from {} | leaving from {}
  destination! place: city of arrival / where the flight lands | to {}
  date! date: day of the flight / departure date | on {}
  passengers int 2 60: number of passengers / how many fly | for {} people | for {} passengers
  cabin enum economy business first: cabin class | in {} class
  refundable bool: ticket can be refunded | with a refundable ticket | with a non-refundable ticket
  gives booking id: Your flight is booked, the booking code is {}. | The flight is booked under {}.
  > Book a flight{*}.
  > Please get me a plane ticket{*}.
  > I want to fly{*}.
  > Can you book me a flight{*}?
  > I need to be in {destination}, so find me a seat on a plane{*}.
  > On {date} I have to fly{*}, please book it.
  > We are flying{*}. Book the tickets.
  ~ Reserve seats on a plane{*}.
  ~ Could you arrange a flight{*} for me?
  ~ There is a wedding in {destination}; get me on a plane{*}.

+ check_flight: Check whether a flight is on time. / Get the status of a flight.
  ^flight! id: flight number / code of the flight | {}
  date date: day of the flight / date it departs | on {}
  gives gate int 10 99: It is on time and leaves from gate {}. | No delay, go to gate {}.
  > Is flight{*} on time?
  > Has flight{*} been delayed?
  > Check the status of flight{*}.
  > My sister is on flight {flight}, is it late{*}?
  > Tell me whether flight{*} is delayed.
  > When does flight {flight} really land{*}?
  > Look up flight{*} and tell me its status.
  ~ Any delay for flight{*}?
  ~ I am waiting for flight{*}. How is it doing?
  ~ Will flight {flight} arrive as planned{*}?

+ book_hotel: Book a hotel room. / Reserve a room in a hotel.
  hotel! brand: name of the hotel / hotel to stay in | at the {} hotel | in the {} hotel
  check_in! date: first night / day of arrival | from {} | starting {}
  nights! int 2 60: number of nights / length of the stay | for {} nights
  room enum single double suite: type of room | in a {} room
  breakfast bool: breakfast included | with breakfast | without breakfast
  gives reservation id: The room is reserved, your number is {}. | Reservation {} is confirmed.
  > Book a hotel room{*}.
  > I need a room{*}.
  > Please reserve a room for me{*}.
  > I will be in town for {nights} nights, get me a room{*}.
  > Can you find me a room{*}?
  > We would like to stay{*}.
  > Make a hotel booking{*}, please.
  ~ Get us a place to sleep{*}.
  ~ I would love to stay{*}; book it.
  ~ My holiday lasts {nights} nights. Please take a room{*}.

+ rent_car: Rent a car. / Hire a car for some days.
  pickup! place: where to pick up the car / pickup city | in {} | picked up in {}
  start! date: first day of the rental / pickup date | from {} | starting {}
  days! int 2 90: rental length in days / number of days | for {} days
  size enum small medium large: size of the car | of {} size
  automatic bool: automatic gearbox | with automatic gears | with manual gears
  gives contract id: The car is yours, contract {}. | Your rental contract is {}.
  > Rent a car{*}.
  > I need to hire a car{*}.
  > Get me a rental car{*}.
  > I am going to drive around for {days} days; rent me a car{*}.
  > Can I have a car{*}?
  > Please arrange a rental car{*}.
  > Find me a car to rent{*}.
  ~ We want to hire a car{*}.
  ~ Have a car ready for me{*}.
  ~ On {start} my own car goes to the garage, so rent one{*}.

+ order_taxi: Order a taxi. / Send a cab to an address.
  pickup! place: where to be picked up / address of the pickup | from {} | starting at {}
  dropoff! place: where to go / address to drive to | to {}
  time! time: pickup time / when to come | at {} | for {}
  riders int 2 40: number of riders / how many people | for {} people
  gives minutes int 10 90: A taxi is coming, the ride takes {} minutes. | Your cab is ordered, {} minutes of driving.
  > Order a taxi{*}.
  > I need a cab{*}.
  > Send a taxi{*}.
  > Call me a cab{*}, please.
  > At {time} I need a ride{*}.
  > Can a taxi take me{*}?
  > Please have a cab waiting{*}.
  ~ Get me a ride by taxi{*}.
  ~ Could a cab drive me{*}?
  ~ I must leave at {time}, so call a taxi{*}.

+ buy_train_ticket: Buy a train ticket. / Get a seat on a train.
  origin! place: station of departure / where to get on | from {}
  destination! place: station of arrival / where to get off | to {}
  date! date: day of travel / travel date | on {} | for {}
  time time: departure time / when the train leaves | at {} | leaving at {}
  seat enum window aisle table: kind of seat | with a {} seat
  bike bool: bicycle comes along | with a bike | without a bike
  gives carriage int 10 99: Your seat is in carriage {}. | Done, you travel in carriage {}.
  > Buy a train ticket{*}.
  > I want to take the train{*}.
  > Get me on a train{*}.
  > A train ticket{*}, please.
  > Can you get me a seat on the train{*}?
  > I have to be in {destination} and prefer the train; buy a ticket{*}.
  > We are going by rail{*}. Please get a ticket.
  ~ One rail ticket{*}, please.
  ~ Is there a train I can take{*}? Buy the ticket.
  ~ My trip to {destination} should be by train, get a ticket{*}.

+ plan_route: Plan a route between two places. / Find the way from one place to another.
  start! place: where the route starts / starting point | from {} | starting in {}
  end! place: where the route ends / end point | to {}
  by! enum car bike foot bus: way of travelling / how to travel | by {}
  avoid enum tolls highways tunnels hills: what to avoid | avoiding {} | without {}
  via list place: places to pass / stops on the way | by way of {} | passing {}
  gives kilometers int 10 900: The route is {} kilometers long. | It is {} kilometers.
  > How do I get{*}?
  > Plan a route{*}.
  > Show me the way{*}.
  > What is the best route{*}?
  > I want to travel{*}. Which way should I go?
  > Give me directions{*}.
  > I have to get to {end}, find a way{*}.
  ~ Which roads lead{*}?
  ~ Work out a route{*}.
  ~ My journey ends in {end}; guide me there{*}.

- book_ferry: Book a ferry crossing. / Get a place on a ferry.
  harbor! place: harbor of departure / where the ferry leaves | from {} | leaving {}
  island! place: island to go to / where the ferry goes | to {} | over to {}
  date! date: day of the crossing / date of travel | on {}
  car bool: a car comes along | with a car | without a car
  cabin enum inside outside none: kind of cabin | with cabin {}
  gives ticket id: Your ferry ticket is {}. | The crossing is booked, ticket {}.
  > Book the ferry{*}.
  > I want to cross by ferry{*}.
  > Get us on the ferry{*}.
  > We are taking the ferry{*}, please book it.
  > Can you get me a ferry ticket{*}?
  > Our holiday on {island} begins soon, so book the ferry{*}.
  ~ Reserve a ferry crossing{*}.
  ~ Please put me on a ferry{*}.

- find_parking: Find a parking space. / Look for a place to park.
  near! place: place to park near / where you need to park | near {} | close to {}
  from! time: start of parking / when parking begins | from {} | starting at {}
  hours! int 2 72: hours of parking / how long you park | for {} hours
  covered bool: space has a roof | under a roof | in the open
  max_price number 1 40: highest price per hour / most to pay an hour | for at most {} an hour | under {} an hour
  gives spot id: Spot {} is free. | You can park at spot {}.
  > Find a parking space{*}.
  > Where can I park{*}?
  > I need to park my car{*}.
  > Look for parking{*}.
  > At {from} I have to leave the car somewhere{*}.
  > Is there a place to park{*}?
  ~ Get me a parking spot{*}.
  ~ My van needs a place to stand{*}.
"""
