Decl current_url(Url) descr [doc("The URL of the current browser page"), direction("input")] bound [/string].
Decl console_event(SessionId, Level, Message, Timestamp) temporal
  descr [doc("Browser console event"), direction("both"), untimed("now")]
  bound [/string, /string, /string, /number].
Decl net_request(SessionId, RequestId, Method, Url, Timestamp) temporal
  descr [doc("A request of the page"), direction("input"), untimed("now")]
  bound [/string, /string, /string, /string, /number].
Decl session_id(Id) descr [doc("The session of the browser"), direction("input")] bound [/string].
Decl observation_focus(Part) descr [doc("What to look at"), direction("input")] bound [/string].
Decl error_context(Text) descr [doc("Where the error was seen"), direction("input")] bound [/string].
Decl automation_goal(Goal) descr [doc("What to achieve"), direction("input")] bound [/string].
Decl interactive_elements(Selector) descr [doc("An element to use"), direction("input")] bound [/string].
Decl form_state(Field, Value) descr [doc("A field of a form"), direction("input")] bound [/string, /string].
Decl undiagnosed_error(ErrorId) descr [doc("An error without a known cause"), direction("both")] bound [/string].
Decl diagnosed_error(ErrorId, Cause) descr [doc("An error and its cause"), direction("both")] bound [/string, /string].
Decl fix_candidate(File, Fix) descr [doc("A possible fix"), direction("both")] bound [/string, /string].
