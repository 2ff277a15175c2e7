# expect: error analysis
# an error inside a given fact is found when it is read
m([1: "a", 1: "b"]).
