Decl current_url(Url) descr [doc("The page."), direction("input")] bound [/string].
Decl console_event(SessionId, Level, Message, Timestamp)
  descr [doc("A line of the console."), direction("input")]
  bound [/string, /string, /string, /any].
