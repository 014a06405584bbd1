"""Tools for the office."""

TABLE = """
+ send_email: Send an email. / Write a mail to somebody.
  to! email: address of the receiver / who gets the mail | to {}
  subject! title: subject of the mail / title of the message | with the subject {} | about {}
  text! sentence: what the mail says / body of the message | saying "{}" | with the text "{}"
  urgent bool: mark as urgent | marked as urgent | marked as not urgent
  copy list email: addresses that get a copy / who else gets it | with a copy to {}
  gives message id: Sent as message {}. | The mail is out, its number is {}.
  > Send an email{*}.
  > Write a mail{*}.
  > Can you email somebody{*}?
  > I need a mail sent{*}.
  > Please mail{*}.
  > Drop a line{*}.
  > Somebody at {to} waits for news, send a mail{*}.
  ~ An email should go out{*}.
  ~ Let them know by mail{*}.
  ~ Compose a mail{*} and send it.

+ schedule_meeting: Put a meeting in the calendar. / Arrange a meeting with colleagues.
  topic! title: what the meeting is about / subject of the meeting | about {} | on the topic {}
  date! date: day of the meeting / which day | on {}
  time! time: when it begins / starting time | at {} | starting at {}
  people list first: who is invited / names of the guests | with {}
  minutes int 10 240: length in minutes / how many minutes | for {} minutes | lasting {} minutes
  online bool: held as a video call | as a video call | in person
  gives room id: It is in the calendar, room {}. | Your meeting takes place in room {}.
  > Schedule a meeting{*}.
  > Set up a meeting{*}.
  > Put a meeting in my calendar{*}.
  > We need to meet{*}.
  > Invite everyone to a meeting{*}.
  > On {date} we should sit together{*}.
  > Please find us a slot{*}.
  ~ Arrange for us to meet{*}.
  ~ I would like to hold a meeting{*}.
  ~ My calendar needs a meeting{*}.

+ report_bug: Report a software problem. / Open a ticket for a fault.
  program! brand: program with the fault / which software | in {}
  text! sentence: what to write in the ticket / words of the report | with the text "{}" | saying "{}"
  priority enum low normal high: how urgent it is / priority of the ticket | with {} priority
  person person: who should fix it / engineer in charge | for {} | assigned to {}
  version number 1 30: version of the program / version number | version {}
  gives ticket id: I opened ticket {}. | The ticket number is {}.
  > Report a bug{*}.
  > Open a ticket{*}.
  > There is a fault{*}, please report it.
  > I found a bug{*}.
  > Again {program} crashes, file a ticket{*}.
  > File a problem report{*}.
  > Something is broken{*}. Make a ticket.
  ~ Tell support about a fault{*}.
  ~ A ticket is needed{*}.
  ~ I saw {program} fail again; report it{*}.

+ assign_task: Give a task to somebody. / Put a task on a person's list.
  person! person: who does the task / name of the worker | to {}
  task! sentence: what is to be done / the task in words | the task "{}" | the job "{}"
  due date: last day for it / when it must be done | due {} | to be done by {}
  hours int 2 80: hours it takes / expected hours of work | taking {} hours
  project title: project it belongs to / name of the project | in the project {}
  gives task_number int 100 9000: It is task number {} now. | Assigned, task number {}.
  > Assign{*}.
  > Give{*}.
  > Hand over{*}.
  > Please pass{*}.
  > Surely {person} has time; assign the work{*}.
  > I want to delegate{*}.
  > Can you assign{*}?
  ~ Delegate{*}, please.
  ~ Our planning says: hand{*}.
  ~ As we agreed, give{*}.

+ search_files: Search the files of the company. / Find documents by their words.
  words! title: words to look for / text to find | with the words {} | containing {}
  folder! brand: folder to look in / name of the folder | in the folder {} | under {}
  since date: oldest date / only files newer than this | since {} | newer than {}
  most int 2 90: how many to list / number of results | limited to {} results | showing {} of them
  kind enum reports letters slides tables: kind of document | among the {} | only {}
  gives hits int 10 900: I found {} documents. | There are {} files.
  > Search for files{*}.
  > Find documents{*}.
  > Which files are there{*}?
  > Look for papers{*}.
  > I lost a document{*}, find it.
  > List the documents{*}.
  > Show me files{*}.
  ~ Go through our documents{*}.
  ~ Are there any papers{*}?
  ~ I am looking for a file{*}.

+ translate_text: Translate a text. / Put words into another language.
  ^text! sentence: text to translate / words to put into it | "{}"
  language! enum French German Italian Polish Turkish: language to translate into / target language | into {} | to {}
  formal bool: use polite language | in formal words | in casual words
  glossary id: number of the word list / word list to use | using word list {} | with word list {}
  gives words int 10 900: Translated; {} words used this month. | Done, you have used {} words so far.
  > Translate{*}.
  > Please translate{*}.
  > How do you say{*}?
  > Put{*}.
  > I need a translation of{*}.
  > Can you turn{*}?
  > Translate for me:{*}.
  ~ Give me a translation of{*}.
  ~ What becomes of{*}?
  ~ For my letter, translate{*}.

+ print_document: Print a document. / Send a file to the printer.
  ^file! title: name of the document / what to print | the document {} | the file {}
  copies! int 2 90: number of copies / how many copies | in {} copies | {} times
  paper enum letter legal photo: kind of paper | on {} paper
  color bool: print in color | in color | in black and white
  printer id: code of the printer / which printer | on printer {} | using printer {}
  gives pages int 10 900: {} pages are coming out. | Printing {} pages.
  > Print{*}.
  > Please print{*}.
  > I need on paper:{*}.
  > Send to the printer:{*}.
  > Can you print{*}?
  > For the meeting we need {copies} printouts, so print{*}.
  > Let me have a printout of{*}.
  ~ Get me on paper:{*}.
  ~ Could the printer give us{*}?
  ~ Put on paper for me:{*}.

- plan_interview: Plan a job interview. / Invite a candidate to an interview.
  candidate! person: name of the candidate / who is interviewed | with {}
  date! date: day of the interview / date to meet | on {}
  time! time: hour of the interview / when it starts | at {}
  position title: position to fill / name of the job | as {} | for the position {}
  remote bool: by video | by video | on site
  gives slot id: The interview has the number {}. | Planned as {}.
  > Plan a job interview{*}.
  > Set up an interview{*}.
  > Since {candidate} applied for a job, plan the interview{*}.
  > We want to interview a candidate{*}.
  > Please invite for an interview{*}.
  > The interview should be{*}, please plan it.
  ~ Get me an interview{*}.
  ~ A candidate comes for an interview{*}.

- start_server: Start a cloud server. / Run a new virtual machine.
  name! word: name of the server / what to call it | named {} | called {}
  cores! int 2 96: number of cores / how many processors | with {} cores
  memory! int 2 900: memory in gigabytes / gigabytes of memory | with {} gigabytes of memory | having {} gigabytes
  region enum north south east west: region of the server / where it runs | in the {} region
  backup bool: make backups | including backups | without backups
  gives address digits: It runs at address {}. | The server is up, address {}.
  > Start a server{*}.
  > I need a virtual machine{*}.
  > Launch a server{*}.
  > Bring up a machine{*}.
  > A new server, please,{*}.
  > Can you run a machine{*}?
  ~ Spin up a server{*}.
  ~ Our team wants a virtual machine{*}.
"""
