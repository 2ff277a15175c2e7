# observe: read-only tools. They are also offered, with a lower detail level, for diagnose_error.

macro("list_failures", "Lists the failed requests of the recorded session, with method, URL, status and time.").
macro_summary("list_failures", "List failed requests.").
macro_step("list_failures", 1, "failed_requests").
arg_value("list_failures", 1, "har", File) :- setting("recording", File).

mandatory("list_failures") :- intent("observe").
relevant("list_failures", 45) :- intent("diagnose_error").

macro("read_errors", "Reads the newest errors from the log of a failing service.").
macro_summary("read_errors", "Read errors from the log of a service.").
macro_step("read_errors", 1, "read_log").
arg_value("read_errors", 1, "file", File) :- failing_service(_, File).

relevant("read_errors", 75) :- intent("observe"), has_backend_log().
relevant("read_errors", 30) :- intent("diagnose_error"), has_backend_log().
