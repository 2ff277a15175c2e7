# What clients may say. A direction publishes a predicate; the manifest lists it with these names and texts.

Decl current_url(Url)
  descr [doc("The page that the browser shows."), direction("input")]
  bound [/string].
Decl console_event(SessionId, Level, Message, Timestamp)
  descr [
    doc("A line of the browser console; level is error, warning, info or log."),
    direction("input"),
  ]
  bound [/string, /string, /string, /time].
Decl network_request(RequestId, Method, Url, Status) temporal
  descr [
    doc("A request of the page, when it was answered; status 0 if it never was."),
    direction("input"),
  ]
  bound [/string, /string, /string, /number].
Decl backend_log(Service, Level, Message) temporal
  descr [doc("A line of the log of a service; level is ERROR, WARN or INFO."), direction("input")]
  bound [/string, /string, /string].

# What a diagnosis finds and the next request brings back: it travels both ways.

Decl undiagnosed_error(Error)
  descr [doc("Nobody knows yet why."), direction("both")]
  bound [/string].
Decl diagnosed_error(Error, Cause)
  descr [
    doc("The cause of an error: missing_route, server_error or unreachable."),
    direction("both"),
  ]
  bound [/string, /string].
Decl fix_candidate(File, Fix)
  descr [
    doc("A change that would mend the cause, such as \"add_route /api/users\"."),
    direction("both"),
  ]
  bound [/string, /string].

# What the server knows itself. Without a direction nobody else can say it.

Decl log_file(Service, File)
  descr [doc("Where the log of a service lies.")]
  bound [/string, /string].
Decl protected_path(Prefix)
  descr [doc("No tool changes what lies there."), owner("policy")]
  bound [/string].
