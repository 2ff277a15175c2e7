macro("observe_console", "Shows the console.").
macro_step("observe_console", 1, "look").
mandatory("observe_console") :- intent("observe"), current_url(_), console_event(_, _, _, _).
