# What a scan of the repository tells. Nobody else can say it: these predicates have no direction.
# A Path is relative to the root, has slashes, and names a file of the work tree that git does not ignore.

# --- files ---------------------------------------------------------------------------------------------------------

Decl file(Path, Language, Size, Hash)
  descr [
    doc("A file. Language is python, markdown, …, binary or other; Size is in bytes; Hash is their SHA-256 in hex, empty if they were not read."),
  ]
  bound [/string, /string, /number, /string].
Decl unreadable(Path, Why)
  descr [
    doc("Nothing is known of its content. Why is binary, too large, not UTF-8, NUL byte, syntax error, nested too deeply, not permitted, not a regular file, name not UTF-8, link out of the root, submodule or nested repository."),
  ]
  bound [/string, /string].
Decl syntax_error(Path, Line)
  descr [doc("A Python file that cannot be parsed, and where; line 0 if nobody knows.")]
  bound [/string, /number].
Decl odd_name(Path)
  descr [
    doc("The name holds line breaks, marks of direction or other signs that are not seen: show it escaped."),
  ]
  bound [/string].
Decl link(Path, Target)
  descr [doc("A symbolic link that leads to something in the root. Links are never followed.")]
  bound [/string, /string].
Decl config_file(Path, Tool)
  descr [doc("It configures a tool: pytest, ci, docker, …")]
  bound [/string, /string].
Decl lock_file(Path, Tool)
  descr [doc("It says exactly what to install; its tool writes it, nobody else should.")]
  bound [/string, /string].
Decl generated(Path, Why)
  descr [
    doc("A program wrote it. Why is marked (a comment says so), attribute (linguist-generated), protobuf, minified, build or snapshot."),
  ]
  bound [/string, /string].
Decl secret_in(Path, Line, Kind)
  descr [
    doc("The line looks as if it held a secret of that kind, or the name of the file says that it does (line 1). The secret itself is no fact."),
  ]
  bound [/string, /number, /string].

Decl small_name(Path, Small, Name)
  descr [
    doc("The path of a file, or the last part of the name of a definition in it, in small letters; only where it has others."),
  ]
  bound [/string, /string, /string].
Decl many_files(Count)
  descr [doc("There are so many files that ripgrep is worth its start. Else nothing is said.")]
  bound [/number].

# --- Python --------------------------------------------------------------------------------------------------------

Decl symbol(Path, Name, Kind, Line, EndLine)
  descr [
    doc("A definition that others can name. Name has the classes around it (Basket.total); Kind is class, function, method or variable; Line is that of its first decorator, if it has some."),
  ]
  bound [/string, /string, /string, /number, /number].
Decl module(Path, Module)
  descr [doc("What a Python file is called when it is imported.")]
  bound [/string, /string].
Decl base_name(Path, Name)
  descr [doc("The name of a Python file without folders and ending.")]
  bound [/string, /string].
Decl subject(Path, Name)
  descr [
    doc("What the name of a Python file says that it tests: orders, of test_orders.py or orders_test.py."),
  ]
  bound [/string, /string].
Decl in_package(Path, Init)
  descr [doc("Init is an __init__.py that runs before the file is imported.")]
  bound [/string, /string].
Decl imports(Path, Module)
  descr [
    doc("The file imports the module, wherever in it; relative imports are given their full name."),
  ]
  bound [/string, /string].
Decl imports_file(Path, Imported)
  descr [
    doc("The file imports a file of the repository. The packages around that one are in in_package."),
  ]
  bound [/string, /string].

# --- tests ---------------------------------------------------------------------------------------------------------

Decl test_file(Path) descr [doc("Pytest looks for tests in it.")] bound [/string].
Decl conftest_of(Path, Conftest)
  descr [doc("The conftest.py is loaded before the tests of the file run.")]
  bound [/string, /string].
Decl test(TestId, Path, Line)
  descr [doc("A test as pytest names it, without parameters: tests/test_a.py::TestB::test_c.")]
  bound [/string, /string, /number].
Decl tests_symbol(TestId, Path, Name)
  descr [
    doc("The test names a definition of the repository, perhaps through files that only pass it on."),
  ]
  bound [/string, /string, /string].

# --- what is not committed -----------------------------------------------------------------------------------------

Decl changed(Path, How)
  descr [
    doc("It differs from the last commit. How is modified, added, deleted, renamed, untracked or conflicted."),
  ]
  bound [/string, /string].
Decl changed_symbol(Path, Name)
  descr [
    doc("A definition of a Python file that was added, removed or written differently since the last commit; what only moved is not."),
  ]
  bound [/string, /string].
Decl staged(Path) descr [doc("The change, or a part of it, is in the index.")] bound [/string].
Decl renamed(Old, New) descr [doc("A rename that is not committed.")] bound [/string, /string].
Decl under_way(What)
  descr [doc("A merge, rebase, cherry-pick, revert or bisect that is not finished.")]
  bound [/string].
Decl head(Commit)
  descr [doc("The commit that is checked out. There is none before the first one.")]
  bound [/string].
Decl current_branch(Branch)
  descr [doc("The branch that is checked out. There is none where a commit is (a detached head).")]
  bound [/string].
Decl default_branch(Branch)
  descr [
    doc("A branch that others build on: those that settings name, what remotes call theirs, and each of main, master and trunk that exists; if there is none of these, every branch. Also each name that stands for another branch."),
  ]
  bound [/string].

# --- history and people --------------------------------------------------------------------------------------------

Decl last_change(Path, Time, Commit)
  descr [doc("The newest commit that changed the file; renames are followed.")]
  bound [/string, /time, /string].
Decl authors(Path, Count)
  descr [doc("How many people have changed the file.")]
  bound [/string, /number].
Decl churn(Path, Commits)
  descr [doc("How many commits have changed the file.")]
  bound [/string, /number].
Decl owner(Path, Owner)
  descr [
    doc("Who has to look at changes of the file, by CODEOWNERS: @user, @org/team or an address."),
  ]
  bound [/string, /string].
Decl invalid_owners(Path, Line)
  descr [doc("A line of CODEOWNERS that says nothing, because it breaks the rules of that file.")]
  bound [/string, /number].

# --- the settings `protected` and `area`, cut into texts that a rule can compare with any path -----------------------

Decl protected_path(Path)
  descr [doc("This very path is protected. What is protected is written in small letters.")]
  bound [/string].
Decl protected_start(Text) descr [doc("Paths that start so are protected.")] bound [/string].
Decl protected_end(Text) descr [doc("Paths that end so are protected.")] bound [/string].
Decl area_path(Path) descr [doc("This very path is in the area.")] bound [/string].
Decl area_start(Text) descr [doc("Paths that start so are in the area.")] bound [/string].
Decl area_end(Text) descr [doc("Paths that end so are in the area.")] bound [/string].
Decl limit_of_tests(What, Most)
  descr [
    doc("What the settings let tests have: seconds for each run of safe_change, and memory in MiB."),
  ]
  bound [/string, /number].
