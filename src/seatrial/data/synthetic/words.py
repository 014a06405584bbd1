"""The word stock of the pre-training documents: plain English, and the roles that a field can play."""


def _groups(text: str) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in text.strip().splitlines()]


def _lines(text: str) -> list[str]:
    """Lines, each with the more deeply indented one that goes on with it."""
    return text.strip().replace("\n        ", " ").replace("\n    ", "\n").splitlines()


def _words(text: str) -> list[str]:
    return text.split()


# A line holds verbs of one meaning. The first names cards.
VERBS = _groups("""
    fix repair mend
    build make construct
    clean wash scrub
    send mail ship dispatch
    find locate search
    show display present
    count tally number
    move shift carry
    request demand want
    write note record
    read study scan
    close shut seal
    open unlock unseal
    paint color decorate
    cut trim slice
    test check try
    start begin launch
    stop halt end
    change adjust alter
    keep store save
    sell trade market
    buy purchase get
    lend loan borrow
    rent hire lease
    plan schedule arrange
    reserve book hold
    cancel drop revoke
    measure weigh gauge
    heat warm cook
    cool chill freeze
    print copy duplicate
    sort rank order
    draw sketch outline
    teach train coach
    feed nourish fill
    plant grow sow
    guard watch protect
    inspect examine review
    pack wrap box
    return refund restore
    join attach connect
    split divide separate
    mark label tag
    call phone ring
    invite welcome ask
    remind tell notify
    play perform run
    translate convert turn
    pay settle cover
    collect gather fetch
    hang mount place
    polish shine brush
    load stack pile
    lift raise hoist
    hide bury conceal
    trace track follow
    praise rate grade
    tune set calibrate
    choose pick select
    deliver bring hand
""")

NOUNS = _words("""
    acorn album anchor apple apron arch arrow attic axle badge bag ball balloon banner barn barrel basin basket beam
    bean bed bell belt bench bike bird blanket blanket boat bolt book boot bottle bowl box bracket brick bridge broom
    bucket building button cabin cable cage cake camera camp candle canoe canvas cap car card carpet cart castle cat
    ceiling cellar chain chair chart chest chimney circle clock cloth coat coin collar column comb cottage couch cradle
    crane crate crop crown cup curtain cushion dam desk diary dish dock dog doll door drawer dress drill drum duck
    engine envelope farm feather fence field file film filter flag floor flower flute forest fork fountain frame
    fridge funnel garage garden gate gear gift glove goat grain guitar hall hammer handle hangar harbor harp hat heater
    hedge helmet hill hinge hook horn horse hose house island jacket jar jewel journal jug kennel kettle key kitchen
    kite knot label ladder lake lamp lantern laptop lawn leaf ledger lens letter lever lid lock log loom machine magnet
    mantle map marble mask mast mattress meal medal melon mill mirror mold monitor motor mountain mug museum nail neck
    needle nest net notebook oar office orchard organ oven owl package paddle page pail palace pan panel parcel park
    path pattern pavilion pear pearl pen pencil phone photo piano picture pier pillow pipe pit plan plank plate
    platform plow plug pocket pole pond pool porch poster pot printer prism pump puppet puzzle quilt rack radio raft
    rail ramp recipe record reel ribbon ring river road robe robot rocket roof room rope rose rug saddle sail saw scale
    scarf screen screw sculpture seal seat seed sensor shed sheet shelf ship shirt shoe shop shovel shutter sign signal
    sink skirt sled sleeve slide sock sofa spear spoon spring stable stage stair stamp star statue stool stove strap
    stream street string suit sweater swing sword table tablet tail tank tape tent theater thread throne ticket tile
    timer tire toaster tool torch towel tower town toy track tractor trail trailer train trap tray treasure tree trophy
    truck trumpet trunk tub tube tunnel turbine tutor umbrella valve van vase vault veil vest village vine violin wagon
    wall wallet warehouse watch wave well wheel whistle window wing wire workshop yacht yard
    accident account answer article band bill birthday call class client club concert contract course dinner doctor
    event exam festival flight game guest holiday hotel idea invoice job lecture lesson list lunch market match meeting
    member menu message model movie order party patient payment player poem prize program project question race
    reminder report result sale school season service session singer song speech sport story student task teacher team
    term test title tour trip user visit visitor vote wedding worker
""")

ADJECTIVES = _words("""
    ancient bad big bitter black blue bold brave brief bright broad broken brown busy calm careful cheap clean clear
    clever cold common cool crisp curved daily damp dark deep double dry dull early easy empty fair famous fancy fast
    fine firm flat foreign free fresh full funny gentle giant glad golden good grand gray great green handy happy hard
    heavy high hollow honest huge humble icy idle large late lazy light little local long loose loud low lucky magic
    main mild modern muddy narrow neat new nice noisy odd old open orange pale patient perfect plain polite poor pretty
    private proud public purple quick quiet rare raw ready real red rich rough round royal rusty safe secret shallow
    sharp short shy silent silver simple single slim slow small smart smooth soft solid sour spare special square
    steady steep sticky still strange strict strong sweet tall tame thick thin tidy tight tiny tired tough true urgent
    usual vast warm weak weekly wet white whole wide wild wise wooden yellow young
""")

UNITS = _words("seconds minutes hours days nights weeks months years miles meters pages steps rounds")
PEOPLE = _words("people guests children workers players students visitors friends adults riders passengers members")

# Slots in the notation of the frames, names between hyphens being alternatives. <n> is a noun, <a> an adjective, <u> a
# unit of time or length, <p> people. A card uses a role once, so a preposition and a type tell its fields apart.
ROLES = _lines("""
    origin-<n>_from-source place: where the <n> comes from / place it leaves / <n> it starts at
        | from {} | coming from {} | out of {}
    target-<n>_to-goal place: where the <n> goes / place it must reach / <n> it ends at
        | to {} | going to {} | towards {}
    site-<n>_place-city place: where the <n> is / place of the <n> / city with the <n>
        | in {} | near {} | close to {}
    day-<n>_day-<n>_date date: day of the <n> / date of the <n> / on which day
        | on {} | for {}
    first_day-<n>_start-begin date: first day of the <n> / when the <n> begins
        | starting {} | from {} | beginning on {}
    last_day-<n>_end-due date: last day of the <n> / when the <n> must be over
        | until {} | before {} | by {}
    hour-<n>_time-clock time: time of the <n> / hour of the <n> / what time
        | at {} | around {} | about {}
    close-<n>_until-latest time: when the <n> closes / time it is over
        | until {} | ending at {} | no later than {}
    duration-<n>_<u>-<u> int 2 900: <u> the <n> takes / how long, in <u> / number of <u>
        | for {} <u> | lasting {} <u> | {} <u> long
    <p>-<n>_<p>-<p>_count int 2 900: number of <p> / how many <p> come
        | for {} <p> | with {} <p> | {} <p>
    <n>s-<n>_count-<n>_number int 2 9000: number of <n>s / how many <n>s / count of <n>s
        | {} <n>s | of {} <n>s | with {} <n>s
    level-<n>_percent-share int 2 99: level of the <n> in percent / percent of the <n>
        | at {} percent | to {} percent | {} percent
    weight-<n>_weight-kilos number 1 900: weight of the <n> in kilos / how heavy it is
        | weighing {} kilos | of {} kilos | with {} kilos
    price-<n>_price-limit number 1 900: highest price of the <n> / most to pay for it
        | under {} dollars | for at most {} dollars | up to {} dollars
    amount-<n>_sum-budget number 1 900: amount of money for the <n> / sum in dollars
        | of {} dollars | for {} dollars | worth {} dollars
    degrees-<n>_degrees-heat number 1 300: degrees of the <n> / temperature in degrees
        | at {} degrees | to {} degrees | with {} degrees
    helper-<n>_by-person person: who helps with the <n> / person at the <n>
        | with {} | helped by {} | together with {}
    receiver-<n>_for-name person: who gets the <n> / name of the receiver
        | for {} | given to {} | sent to {}
    owner-<n>_of-boss first: owner of the <n> / whose <n> it is
        | that belongs to {} | owned by {} | of {}
    label-<n>_name-called title: name of the <n> / what the <n> is called
        | called {} | named {} | under the name {}
    topic-<n>_topic-about title: what the <n> is about / topic of the <n>
        | about {} | on the topic {} | dealing with {}
    brand-<n>_brand-make brand: brand of the <n> / make of the <n> / which <n>
        | the {} <n> | of the brand {} | made by {}
    message-<n>_note-text sentence: text of the <n> / what the <n> says / words to add
        | saying "{}" | with the note "{}" | with the words "{}"
    code-<n>_code-<n>_id id: code of the <n> / number of the <n> / <n> id
        | with code {} | under number {} | <n> {}
    pin-<n>_pin-secret digits: secret number of the <n> / digits of the <n>
        | using {} | with the digits {} | pin {}
    mail-<n>_mail-address email: mail address / where to send the <n>
        | mail to {} | with the address {} | writing to {}
    phone-<n>_phone-number phone: phone number of the <n> / number to call
        | calling {} | phone {} | with the number {}
    word-<n>_word-key word: word for the <n> / key of the <n>
        | with the word {} | keyed {} | marked {}
    kind-<n>_kind-type enum: kind of <n> / type of the <n> / which <n> to take
        | in {} | the {} kind | of type {} | as {}
    state-<n>_state-mode enum: state of the <n> / mode of the <n>
        | in {} mode | on {} | set to {} | {} style
    <a>-is_<a>-<a>_<n> bool: <n> is <a> / whether it is <a>
        | that is <a> | that is not <a> | made <a> | by no means <a>
    <n>-with_<n>-has_<n> bool: a <n> comes along / <n> included
        | with a <n> | without a <n> | plus a <n> | but no <n>
    names-<n>_names-places list place: names of the <n>s / places to pass
        | by way of {} | passing {} | through {}
    helpers-<n>_team-persons list first: who takes part / team of the <n>
        | joined by {} | among {} | together: {}
    tags-<n>_tags-words list word: words on the <n> / tags of the <n>
        | tagged {} | with the tags {} | labelled {}
    numbers-<n>_numbers-sizes list int 2 900: sizes of the <n> / numbers on the <n>
        | sized {} | numbered {} | with the numbers {}
""")
