# What is dangerous about a tool follows from its actions, and no rule of a pack can take it back.

macro_effect(Tool, Effect) :- macro_step(Tool, _, Action), action_effect(Action, Effect).

needs_confirmation(Tool) :- macro_effect(Tool, "payments").
needs_confirmation(Tool) :- macro_effect(Tool, "destructive").
needs_confirmation(Tool) :- macro_effect(Tool, "authentication").
needs_confirmation(Tool) :- macro_step(Tool, _, Action), action_tier(Action, 3).
