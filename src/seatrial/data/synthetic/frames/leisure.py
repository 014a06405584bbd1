"""Tools for free time, food and health."""

TABLE = """
+ play_music: Play a song. / Start some music.
  ^song! title: name of the song / what to play | the song {} | the piece {}
  artist person: who sings it / name of the singer | by {} | sung by {}
  volume int 2 99: volume in percent / how loud, in percent | at {} percent | at volume {}
  repeat bool: play it again and again | on repeat | only once
  speaker word: which speaker / name of the speaker | on the speaker {} | through the speaker {}
  gives seconds int 60 600: It lasts {} seconds. | Now playing, {} seconds.
  > Play{*}.
  > I want to hear{*}.
  > Put on{*}.
  > Can you play{*}?
  > Let me listen to{*}.
  > Start the music with{*}.
  > Please play{*}.
  ~ Let us hear{*}.
  ~ I am in the mood for{*}.
  ~ Music, please:{*}.

+ reserve_table: Reserve a table in a restaurant. / Get a table for dinner.
  restaurant! brand: name of the restaurant / where to eat | at {} | in the {}
  guests! int 2 60: number of guests / how many eat | for {} people | for {} guests
  date! date: day of the dinner / evening to come | on {}
  time time: when you arrive / time of arrival | at {} | arriving at {}
  outside bool: sit in the open | outside | inside
  gives table int 10 99: You have table {}. | Table {} is yours.
  > Reserve a table{*}.
  > Get us a table{*}.
  > I need a dinner table{*}.
  > We want to eat{*}. Get a table.
  > Can we have a table{*}?
  > There will be {guests} of us for dinner; find a table{*}.
  > Please keep a table{*}.
  ~ Is there a table for dinner{*}?
  ~ We are hungry; reserve a table{*}.
  ~ I am taking them to dinner, {guests} in all. Get a table{*}.

+ buy_concert_ticket: Buy concert tickets. / Get seats for a show.
  band! brand: who plays / name of the band | of {} | with {}
  city! place: where the concert is / city of the show | in {}
  ^tickets! int 2 60: number of tickets / how many seats | {} tickets | {} seats
  date date: day of the concert / date of the show | on {}
  standing bool: standing places | to stand | to sit
  gives row id: Your tickets are in row {}. | Bought, row {}.
  > Buy for the concert{*}.
  > Get us into the concert with{*}.
  > For the show we need{*}.
  > I need for a concert{*}.
  > I want to go to a concert, buy{*}.
  > Soon {band} will be on stage, get me{*}.
  > Can you get, for a show,{*}?
  ~ A night at the concert! Buy{*}.
  ~ I would love to go to the show; get{*}.
  ~ To hear {band} in concert, we need{*}.

+ get_weather: Get the weather forecast. / Look up the weather of a place.
  place! place: place of the forecast / where you want to know it | in {} | for {} | at {}
  date! date: day of the forecast / which day | on {}
  unit enum celsius fahrenheit kelvin: unit of the temperature | in {}
  hour time: time of the day / hour of the forecast | at {} | around {}
  wind bool: tell the wind as well | with the wind | leaving out the wind
  gives degrees int 10 90: It will be {} degrees. | Expect {} degrees.
  > What will the weather be like{*}?
  > Get the weather{*}.
  > Will it rain{*}?
  > Give me the forecast{*}.
  > Tell me the weather{*}.
  > I am going to {place}, do I need a coat{*}?
  > How warm will it be{*}?
  ~ Is the sun going to shine{*}?
  ~ Should I take an umbrella{*}?
  ~ Our picnic needs a forecast{*}.

+ log_workout: Record a workout. / Write down some training.
  ^sport! enum running swimming rowing cycling climbing: kind of sport / which sport | {}
  minutes! int 10 300: minutes of training / how long it took | for {} minutes
  distance! number 1 90: distance in kilometers / kilometers covered | over {} kilometers
  pulse int 60 200: heart rate / beats a minute | with a pulse of {}
  date date: day of the workout / when it was | on {}
  gives calories int 60 900: You burned {} calories. | Saved, {} calories.
  > Log my workout:{*}.
  > I went{*}.
  > Write down my training:{*}.
  > Record that I was{*}.
  > I have been{*}.
  > For my training diary:{*}.
  > After {minutes} minutes I am done, log it:{*}.
  ~ My sport today was{*}.
  ~ Note my exercise:{*}.
  ~ I did some{*}.

+ find_recipe: Find a recipe. / Look for something to cook.
  with! list word: what is in it / ingredients to use | with {} | made of {}
  servings! int 2 60: number of servings / for how many people | for {} people | for {} eaters
  minutes int 10 240: longest cooking time in minutes / most minutes to cook | in under {} minutes | within {} minutes
  course enum starter main dessert soup: course of the meal | as a {}
  vegan bool: without animal products | that is vegan | that need not be vegan
  gives page int 10 900: There is one on page {}. | Look at page {}.
  > Find a recipe{*}.
  > What can I cook{*}?
  > I want to cook something{*}.
  > Give me a recipe{*}.
  > Show me a dish{*}.
  > We are {servings} at home. What can we cook{*}?
  > Look for a recipe{*}.
  ~ Suggest something to cook{*}.
  ~ Help me cook{*}.
  ~ Is there a recipe{*}?

+ set_reminder: Set a reminder. / Remind somebody of something.
  text! sentence: what to be reminded of / words of the reminder | to "{}" | of "{}"
  date! date: day of the reminder / when to remind | on {}
  time time: hour of the reminder / time to remind | at {}
  person first: who is reminded / name of the person | for {}
  gives reminder int 100 9000: Reminder {} is set. | You will hear from reminder {}.
  > Remind me{*}.
  > Set a reminder{*}.
  > I need a reminder{*}.
  > Please make a reminder{*}.
  > I always forget things: set a reminder{*}.
  > On {date} send a reminder{*}.
  > Can you set a reminder{*}?
  ~ Do not let me forget; remind me{*}.
  ~ I could use a reminder{*}.
  ~ There should be a reminder{*}.

+ book_doctor: Make an appointment with a doctor. / Book a visit to the doctor.
  doctor! person: name of the doctor / which doctor | with doctor {}
  date! date: day of the visit / date of the appointment | on {}
  time! time: hour of the visit / when to be there | at {}
  patient person: who is ill / name of the patient | for {}
  new bool: first visit there | as a new patient | as a known patient
  gives waiting int 10 90: Booked, the wait is {} minutes. | Be ready to wait {} minutes.
  > Make an appointment{*}.
  > I need a visit to the doctor{*}.
  > Book me a visit{*}.
  > I do not feel well. Get an appointment{*}.
  > Can I get a medical appointment{*}?
  > Please fix a visit{*}.
  > At {time} I could see the doctor, book it{*}.
  ~ Somebody is ill; book a visit{*}.
  ~ My back hurts. I want an appointment{*}.
  ~ Get me a medical appointment{*}.

+ borrow_book: Borrow a book from the library. / Reserve a library book.
  ^book! title: title of the book / which book | the book {} | the novel {}
  card! id: number of the library card / your library card | on card {} | with card {}
  author person: who wrote it / author of the book | by {} | written by {}
  weeks int 2 40: weeks to keep it / for how many weeks | for {} weeks
  branch place: branch of the library / where to collect it | in {} | at the {} branch
  gives shelf id: It waits on shelf {}. | Go to shelf {}.
  > Borrow from the library{*}.
  > I want to read{*}.
  > Lend me{*}.
  > Please reserve at the library{*}.
  > Does the library have{*}? I want to borrow it.
  > Can I borrow{*}?
  > My library card is {card}, get me{*}.
  ~ Get from the library{*}.
  ~ I would love to borrow{*}.
  ~ For my evening, borrow{*}.

- rent_boat: Rent a boat. / Hire a boat on the water.
  lake! place: which lake / where to sail | on lake {} | on the waters of {}
  ^kind! enum canoe sailboat raft motorboat: kind of boat / type of the boat | a {}
  hours! int 2 72: hours on the water / how long, in hours | for {} hours
  date date: day of the trip / when to sail | on {}
  vests int 2 60: number of life vests / how many vests | with {} life vests
  gives pier id: Your boat lies at pier {}. | Go to pier {}.
  > Rent for me{*}.
  > We want to rent{*}.
  > Please hire{*}.
  > I would like to go out in{*}.
  > Get us{*}.
  > For {hours} hours we want to be on the water, so rent{*}.
  ~ I feel like sailing; rent{*}.
  ~ Can we have{*}?

- enter_race: Enter somebody for a race. / Register a runner.
  runner! person: name of the runner / who runs | for {} | as {}
  race! title: name of the race / which race | in the race {} | at the race {}
  kilometers! number 1 90: length in kilometers / kilometers to run | over {} kilometers
  shirt enum small medium large: size of the shirt | with a {} shirt
  team brand: team of the runner / name of the team | running with team {} | from team {}
  gives number int 100 9000: The start number is {}. | Registered with number {}.
  > Register a runner{*}.
  > Sign up a runner{*}.
  > Please enter a runner{*}.
  > Our friend {runner} wants to run; register{*}.
  > One more start place{*}.
  > Can a runner still start{*}?
  ~ Put a runner on the list{*}.
  ~ I have trained hard, so a start place is needed{*}.

- book_court: Book a sports court. / Reserve a court to play on.
  sport! enum tennis squash badminton: sport to play / which sport | for {}
  club! brand: name of the club / which club | at the {} club | in the {} club
  date! date: day of the game / when to play | on {}
  time! time: start of the game / time to begin | at {}
  indoor bool: under a roof | indoors | outdoors
  players int 2 40: number of players / how many play | with {} players
  gives court int 10 99: You play on court {}. | Court {} is booked.
  > Book a court{*}.
  > We want to do some sport{*}, get a court.
  > Reserve us a court{*}.
  > I need a court{*}.
  > Is there a court{*}?
  > At {time} we would like to play; book the court{*}.
  ~ Get a court{*}.
  ~ My friends and I want a court{*}.
"""
