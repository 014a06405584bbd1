"""Tools for paying and shopping."""

TABLE = """
+ transfer_money: Transfer money to somebody. / Send money from an account.
  ^amount! number 1 900: sum to transfer / amount of money | {} dollars
  to! person: who gets the money / name of the receiver | to {}
  account! digits: account to take it from / your account number | from account {} | out of account {}
  purpose sentence: words on the transfer / text for the receiver | with the words "{}" | noting "{}"
  date date: day of the transfer / when to send it | on {}
  gives transfer id: The money is on its way, transfer {}. | Transfer {} is done.
  > Transfer{*}.
  > Send{*}.
  > Please wire{*}.
  > I owe money to {to}, so transfer what I owe:{*}.
  > Can you move{*}?
  > Make a transfer of{*}.
  > I want to send{*}.
  ~ Wire the sum of{*}.
  ~ Please have my bank send{*}.
  ~ As promised, {to} gets money from me:{*}.

+ convert_currency: Convert money into another currency. / Change one currency into another.
  ^amount! number 1 900: amount to convert / how much money | {}
  from! enum dollars euros pounds yen: currency it is in / currency to change | from {}
  to! enum francs pesos crowns rupees: currency to get / target currency | into {} | to {}
  date date: day of the exchange rate / date of the rate | at the rate of {}
  gives result number 10 900: That makes {}. | You get {}.
  > Convert the sum of{*}.
  > How much is{*}?
  > Change the amount{*}.
  > Please exchange{*}.
  > Work out the exchange of{*}.
  > I have {amount} in my pocket, change it{*}.
  > What do I get for{*}?
  ~ Tell me the value of{*}.
  ~ Exchange for me{*}.
  ~ There is {amount} on the table; do the conversion{*}.

+ track_parcel: Track a parcel. / Find out where a package is.
  ^parcel! id: number of the parcel / tracking code | {}
  carrier brand: who delivers it / delivery company | sent with {} | carried by {}
  mail email: where to send news / address for updates | with news to {} | and send updates to {}
  gives stop place: It is in {} now. | The parcel has reached {}.
  > Where is parcel{*}?
  > Track the package{*}.
  > Follow parcel{*}.
  > My parcel {parcel} is late, where is it{*}?
  > Has the package arrived yet, number{*}?
  > Can you locate parcel{*}?
  > I am waiting for package{*}.
  ~ What happened to parcel{*}?
  ~ Tell me how far parcel{*} has come.
  ~ I still do not have package {parcel}. Look it up{*}.

+ order_product: Order a product. / Buy goods in the online shop.
  ^product! brand: what to order / name of the product | the {} | the product {}
  quantity! int 2 90: how many to order / number of pieces | {} pieces | in a quantity of {}
  address! place: where to deliver / delivery address | delivered to {} | shipped to {}
  express bool: fast delivery | by express | by normal mail
  color enum red green blue black: color of the product | in {}
  gives order digits: Your order number is {}. | Ordered, number {}.
  > Order from the shop{*}.
  > I would like to order{*}.
  > Buy online{*}.
  > Please order for me{*}.
  > I want {quantity} of these:{*}. Place the order.
  > Place an order:{*}.
  > Get me from the online shop{*}.
  ~ Make an order for{*}.
  ~ The shop should send{*}.
  ~ Our office needs this from the shop:{*}.

+ return_product: Return a product. / Send goods back to the shop.
  ^order! digits: number of the order / which order | order {}
  reason! sentence: why it is returned, in words / reason to give | giving the reason "{}" | with the reason "{}"
  refund enum card cash voucher: how the money comes back / way of the refund | for a {} refund | refunded as {}
  pickup date: day of collection / when it is collected | collected on {} | picked up on {}
  gives label id: Use the label {}. | The return label is {}.
  > I want to return{*}.
  > Send back{*}.
  > Please take back{*}.
  > Return to the shop{*}.
  > What I got is wrong, so return{*}.
  > Can I send back{*}?
  > Start a return of{*}.
  ~ I do not want to keep{*}, so return it.
  ~ Let the shop have back{*}.
  ~ I am not happy and send back{*}.

+ get_share_price: Get the price of a share. / Look up what a stock costs.
  company! brand: name of the company / whose share it is | of {} | for {}
  date date: day of the price / which trading day | on {}
  exchange place: city of the exchange / where it is traded | in {} | at the exchange of {}
  currency enum dollars euros pounds yen: currency of the answer | in {}
  gives price number 10 900: The share costs {}. | It is traded at {}.
  > What is the share price{*}?
  > Get the stock price{*}.
  > How much is one share{*}?
  > Look up the stock{*}.
  > Tell me the price of a share{*}.
  > I hold stock in {company}, what is it worth{*}?
  > Check the share price{*}.
  ~ How is the stock doing{*}?
  ~ Give me a stock quote{*}.
  ~ Before I sell, I need the share price{*}.

+ pay_invoice: Pay an invoice. / Settle a bill.
  ^invoice! id: number of the invoice / which bill | invoice {} | bill {}
  amount! number 1 900: amount to pay / sum of the bill | with {} dollars | of {} dollars
  method! enum card cash bank: how to pay / way of paying | by {}
  date date: day of payment / when to pay | on {}
  gives receipt digits: Paid, the receipt is {}. | Your receipt number is {}.
  > Pay{*}.
  > Please settle{*}.
  > I have to pay{*}.
  > Can you pay{*}?
  > Take care of the payment:{*}.
  > It is due: pay{*}.
  > See that we pay{*}.
  ~ Settle for me{*}.
  ~ My supplier waits for money. Pay{*}.
  ~ Clear{*}, please.

- open_account: Open a bank account. / Create an account at the bank.
  holder! person: name of the holder / who owns the account | for {} | in the name of {}
  kind! enum savings checking student: kind of account / type of the account | as a {} account
  deposit! number 10 900: first payment / money to start with | with {} dollars in it | starting with {} dollars
  mail email: address for letters / where to write | with mail to {}
  card bool: a bank card comes with it | with a card | without a card
  gives number digits: The account number is {}. | Account {} is open.
  > Open a bank account{*}.
  > I need a new account{*}.
  > Create an account at the bank{*}.
  > Set up an account{*}.
  > Our customer {holder} wants a new account{*}.
  > Can the bank open an account{*}?
  ~ A bank account, please,{*}.
  ~ Get an account going{*}.

- insure_item: Insure something against damage. / Buy insurance for an object.
  ^item! brand: what is insured / name of the object | the {} | my {}
  value! int 10 9000: value in dollars / what it is worth | worth {} dollars | valued at {} dollars
  years! int 2 60: years of cover / how long it is insured | for {} years
  theft bool: covers theft | including theft | but not theft
  start date: first day of cover / when the insurance starts | from {} | starting {}
  gives policy id: The policy number is {}. | Insured under policy {}.
  > Insure{*}.
  > I want to insure{*}.
  > Get insurance for{*}.
  > Please insure{*}.
  > I have a new {item}; insure it{*}.
  > Can you insure{*}?
  ~ Take out insurance for{*}.
  ~ We need cover for{*}.

- split_bill: Split a bill among people. / Share the cost of a dinner.
  ^total! number 10 900: sum of the bill / what the dinner cost | {} dollars | a total of {} dollars
  people! list first: names of those who pay / who shares the cost | among {} | between {}
  tip int 2 40: tip in percent / percent for the waiter | with {} percent tip | adding {} percent
  round bool: round the shares | with rounded shares | without rounding
  gives share number 10 90: Each pays {}. | Everyone owes {}.
  > Split the bill:{*}.
  > Share the cost of{*}.
  > We had dinner, divide the bill:{*}.
  > Please divide{*}.
  > The dinner cost {total} dollars, split it{*}.
  > Who owes what? Split{*}.
  ~ Work out the shares of{*}.
  ~ Let us share the bill:{*}.
"""
