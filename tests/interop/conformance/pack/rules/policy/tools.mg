permitted(Tool) :- macro(Tool, _).
