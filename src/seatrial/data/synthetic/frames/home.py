"""Tools around the house."""

TABLE = """
+ set_thermostat: Set the temperature of a room. / Heat or cool a room.
  room! title: name of the room / which room | in the {} room | for the {} room
  degrees! number 5 35: target temperature / degrees to reach | to {} degrees | at {} degrees
  until time: when to stop / end time | until {}
  mode enum heat cool auto: heating or cooling | in {} mode
  gives minutes int 10 90: It will take {} minutes. | The room gets there in {} minutes.
  > Set the temperature{*}.
  > Please set the thermostat{*}.
  > Make it {degrees} degrees{*}.
  > I am not comfortable, adjust the temperature{*}.
  > Change the heating{*}.
  > Can you put the thermostat{*}?
  > Keep the temperature{*}.
  ~ Turn the thermostat{*}.
  ~ Would you bring the temperature{*}?
  ~ It would be nice to have {degrees} degrees{*}.

+ dim_lights: Change the brightness of lights. / Dim or brighten the lights.
  room! title: room with the lights / name of the room | in the {} room
  percent! int 2 99: brightness in percent / how bright, in percent | to {} percent | at {} percent
  color enum white warm red blue green: color of the light | in {} | with {} light
  minutes int 10 90: minutes until then / fade time in minutes | over {} minutes
  gives lamps int 10 40: {} lamps were changed. | Done for {} lamps.
  > Dim the lights{*}.
  > Set the lights{*}.
  > Turn the lights{*}.
  > Can you change the lights{*}?
  > It is too bright, put the lamps{*}.
  > I would like the lights{*}.
  > Bring the lamps down{*}.
  ~ Please adjust the lamps{*}.
  ~ My eyes hurt; set the brightness{*}.
  ~ Lights{*}, please.

+ add_grocery_item: Add an item to the shopping list. / Put something on the grocery list.
  ^item! brand: what to buy / name of the item | {}
  amount! int 2 90: how many to buy / number of pieces | times {} | in a number of {}
  list enum weekly party office: which list | on the {} list | to the {} list
  gives entries int 10 90: The list now has {} entries. | Added, {} entries in all.
  > Add to the groceries:{*}.
  > I need to buy{*}.
  > Put on the shopping list:{*}.
  > We are out of {item}, write it down{*}.
  > Remember to buy{*}.
  > Groceries needed:{*}.
  > Please note for shopping:{*}.
  ~ Something for the grocery list:{*}.
  ~ Do not let me forget to buy{*}.
  ~ There is no {item} left, note it for shopping{*}.

+ set_alarm: Set an alarm clock. / Wake somebody up.
  time! time: when it rings / alarm time | at {} | for {}
  label! title: name of the alarm / what the alarm is called | called {} | named {}
  date date: day of the alarm / which day | on {}
  repeat enum daily weekly never: how often it repeats | repeating {} | repeated {}
  loud bool: ring loudly | loudly | quietly
  gives number int 10 90: Alarm {} is set. | It is set as alarm number {}.
  > Set an alarm{*}.
  > Wake me up with an alarm{*}.
  > I need an alarm{*}.
  > Let the clock ring{*}.
  > Can you set the alarm clock{*}?
  > I must get up at {time}, so set an alarm{*}.
  > Please make an alarm{*}.
  ~ Ring the alarm clock{*}.
  ~ I want to be woken up by an alarm{*}.
  ~ An alarm{*}, please.

+ start_vacuum: Send the robot vacuum to clean. / Clean a floor with the robot.
  room! title: room to clean / where to clean | in the {} room
  minutes! int 10 120: minutes to clean / length of cleaning | for {} minutes
  power enum low normal high: suction power | on {} power | at {} power
  mop bool: mop the floor as well | with mopping | without mopping
  gives battery int 10 99: It has started; the battery is at {} percent. | Cleaning now, battery {} percent.
  > Start the vacuum{*}.
  > Let the robot clean{*}.
  > Vacuum the floor{*}.
  > The floor is dirty, send the robot vacuum{*}.
  > Can the robot clean{*}?
  > Have the vacuum run{*}.
  > Clean the carpet{*}.
  ~ Get the cleaning robot going{*}.
  ~ Please run the robot vacuum{*}.
  ~ Dust everywhere! Vacuum{*}.

+ water_plants: Water the plants. / Turn on the garden water.
  bed! title: garden bed to water / which bed | in the {} bed
  liters! number 1 60: liters of water / amount of water | with {} liters
  time! time: when to start / start time | at {}
  days list title: garden parts to skip / what to leave out | leaving out {} | but not {}
  gives tank int 10 900: The tank has {} liters left. | Done, {} liters are left.
  > Water the plants{*}.
  > The garden is dry, give it water{*}.
  > Please water the flowers{*}.
  > Can you water the garden{*}?
  > At {time} the garden needs water{*}.
  > Let the sprinkler run{*}.
  > Give the plants a drink{*}.
  ~ Sprinkle the garden{*}.
  ~ The flowers are thirsty; water them{*}.
  ~ Some {liters} liters should do for the plants{*}.

- open_gate: Let a visitor in at the gate. / Open the gate for somebody.
  visitor! person: name of the visitor / who may come in | for {}
  gate! title: which gate / name of the gate | at the {} gate
  code! digits: code of the gate / secret number | with code {} | using code {}
  minutes int 10 240: how long it stays open / minutes until it closes | for {} minutes
  car bool: visitor comes by car | with a car | without a car
  gives entry id: It is open, logged as {}. | The gate reports entry {}.
  > Open up{*}.
  > Let somebody in{*}.
  > A visitor is here, open{*}.
  > Please open the gate{*}.
  > Now {visitor} is at the door, let them in{*}.
  > Can you let a guest in{*}?
  ~ Somebody wants to come in{*}.
  ~ Unlock the entrance{*}.

- bake_program: Start an oven program. / Heat the oven for a dish.
  dish! brand: what is baked / name of the dish | for the {}
  degrees! int 60 280: oven temperature / degrees of heat | at {} degrees
  minutes! int 10 240: baking time in minutes / how many minutes | for {} minutes
  fan bool: use the fan | with the fan on | with the fan off
  rack enum top middle bottom: rack to use | on the {} rack
  gives ready time: It will be ready at {}. | Done baking at {}.
  > Start the oven{*}.
  > Bake{*}.
  > Set the oven{*}.
  > I have a {dish} to bake, heat the oven{*}.
  > Please turn the oven on{*}.
  ~ Heat up the oven{*}.
  ~ Can the oven be set{*}?
"""
