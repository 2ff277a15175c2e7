# The facts that clients may assert. A predicate with a direction is public; the manifest lists it with these texts.

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
    doc("A request of the page at the time of its response; status 0 if there was no response."),
    direction("input"),
    untimed("now"),
  ]
  bound [/string, /string, /string, /number].
Decl backend_log(Service, Level, Message) temporal
  descr [
    doc("A line of the log of a service; level is ERROR, WARN or INFO."),
    direction("input"),
    untimed("now"),
  ]
  bound [/string, /string, /string].

# The results of a diagnosis, which the client sends with the next request: both directions.

Decl undiagnosed_error(Error)
  descr [doc("An error without a known cause."), direction("both")]
  bound [/string].
Decl diagnosed_error(Error, Cause)
  descr [
    doc("The cause of an error: missing_route, server_error or unreachable."),
    direction("both"),
  ]
  bound [/string, /string].
Decl fix_candidate(File, Fix)
  descr [
    doc("A change that would fix the cause, such as \"add_route /api/users\"."),
    direction("both"),
  ]
  bound [/string, /string].

# Facts of the server. Without a direction, clients cannot assert them.

Decl log_file(Service, File) descr [doc("The log file of a service.")] bound [/string, /string].
Decl protected_path(Prefix)
  descr [doc("No tool changes files with this prefix."), owner("policy")]
  bound [/string].
