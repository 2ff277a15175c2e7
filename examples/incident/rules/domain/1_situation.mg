# The situation. "Recent" means the last ten minutes; tools that depend on recent facts expire with them.

console_error(Message)@[At] :- console_event(_, "error", Message, At).

recent_error(Message) :- <-[10m] console_error(Message).
failed_request(Method, Url, Status) :-
  <-[10m] network_request(_, Method, Url, Status),
  Status >= 400.
failed_request(Method, Url, 0) :- <-[10m] network_request(_, Method, Url, 0).
failing_service(Service, File) :- <-[10m] backend_log(Service, "ERROR", _), log_file(Service, File).

has_failed_request() :- failed_request(_, _, _).
has_backend_log() :- failing_service(_, _).
