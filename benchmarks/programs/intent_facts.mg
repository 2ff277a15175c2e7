utterance(/u1).
token(/u1, 0, "please").
token(/u1, 1, "fix").
token(/u1, 2, "the").
token(/u1, 3, "failing").
token(/u1, 4, "login.go").
token(/u1, 5, "test").
token(/u1, 6, "and").
token(/u1, 7, "refactor").
token(/u1, 8, "auth").
token(/u1, 9, "handler").
token(/u1, 10, "then").
token(/u1, 11, "explain").
token(/u1, 12, "tests").
token(/u1, 13, "quickly").
ctx_file(/f/0, "src/auth/login.go", 480, 30).
lang_of(/f/0, /go).
ctx_file(/f/1, "src/auth/session.py", 120, 8).
lang_of(/f/1, /py).
ctx_file(/f/2, "src/db/query.ts", 120, 15).
lang_of(/f/2, /ts).
ctx_file(/f/3, "src/db/pool.go", 2400, 15).
lang_of(/f/3, /go).
ctx_file(/f/4, "src/ui/button.py", 9900, 15).
lang_of(/f/4, /py).
ctx_file(/f/5, "src/ui/panel.ts", 480, 1).
lang_of(/f/5, /ts).
ctx_file(/f/6, "src/net/dial.go", 2400, 1).
lang_of(/f/6, /go).
ctx_file(/f/7, "src/net/route.py", 2400, 15).
lang_of(/f/7, /py).
ctx_file(/f/8, "src/core/engine.ts", 5100, 1).
lang_of(/f/8, /ts).
ctx_file(/f/9, "src/core/store.go", 9900, 15).
lang_of(/f/9, /go).
ctx_file(/f/10, "src/cli/main.py", 950, 3).
lang_of(/f/10, /py).
ctx_file(/f/11, "src/cli/flags.ts", 5100, 1).
lang_of(/f/11, /ts).
test_result(/t/0, /f/0, /fail).
test_result(/t/1, /f/1, /pass).
test_result(/t/2, /f/2, /pass).
test_result(/t/3, /f/3, /fail).
test_result(/t/4, /f/4, /pass).
test_result(/t/5, /f/5, /pass).
test_result(/t/6, /f/8, /fail).
test_result(/t/7, /f/9, /pass).
config("min_score", 4).
config("max_files", 5).
config("hot_churn", 10).
config("large_size", 2000).
config("cooldown", 2).
user_role(/alice, /dev).
permission(/dev, /edit).
permission(/dev, /run).
permission(/dev, /read).
permission(/dev, /list).
recent_action(/run_tests, 1).
recent_action(/edit_file, 4).
recent_action(/explain, 9).
