# What the application can state with a call.

Decl customer_message(Text)
  descr [doc("A message of the customer in this conversation."), direction("input")]
  bound [/string].
