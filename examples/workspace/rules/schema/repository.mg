# The facts of a repository scan. Clients cannot assert them: the predicates have no direction.
# A Path is relative to the root and names a file of the work tree that git does not ignore.

# --- files ---------------------------------------------------------------------------------------------------------

Decl file(Path, Language, Size, Hash)
  descr [
    doc("A file. Language is python, markdown, …, binary or other; Size is in bytes; Hash is the SHA-256 in hex, empty if the file was not read."),
  ]
  bound [/string, /string, /number, /string].
Decl unreadable(Path, Why)
  descr [
    doc("A file whose content was not read. Why is binary, too large, not UTF-8, NUL byte, syntax error, nested too deeply, not permitted, not a regular file, name not UTF-8, link out of the root, submodule or nested repository."),
  ]
  bound [/string, /string].
Decl syntax_error(Path, Line)
  descr [doc("A Python file that cannot be parsed, and the line of the error; 0 if it is unknown.")]
  bound [/string, /number].
Decl odd_name(Path)
  descr [
    doc("The name has line breaks, direction marks or other invisible characters: show it escaped."),
  ]
  bound [/string].
Decl link(Path, Target)
  descr [doc("A symbolic link with a target in the root. Links are never followed.")]
  bound [/string, /string].
Decl config_file(Path, Tool)
  descr [doc("The file configures a tool: pytest, ci, docker, …")]
  bound [/string, /string].
Decl lock_file(Path, Tool)
  descr [doc("A lock file, which only its tool should write.")]
  bound [/string, /string].
Decl generated(Path, Why)
  descr [
    doc("A generated file. Why is marked (by a comment), attribute (linguist-generated), protobuf, minified, build or snapshot."),
  ]
  bound [/string, /string].
Decl secret_in(Path, Line, Kind)
  descr [
    doc("The line seems to contain a secret of that kind, or the file is a credential file (line 1). The secret itself is not in a fact."),
  ]
  bound [/string, /number, /string].

Decl small_name(Path, Small, Name)
  descr [
    doc("The path of a file, or the last part of the name of a definition in it, in lower case; only for names with upper-case letters."),
  ]
  bound [/string, /string, /string].
Decl many_files(Count)
  descr [doc("The number of files, if it is large enough for ripgrep to be faster.")]
  bound [/number].

# --- Python --------------------------------------------------------------------------------------------------------

Decl symbol(Path, Name, Kind, Line, EndLine)
  descr [
    doc("A definition that other modules can refer to. Name is qualified (Basket.total); Kind is class, function, method or variable; Line is that of its first decorator, if it has one."),
  ]
  bound [/string, /string, /string, /number, /number].
Decl module(Path, Module) descr [doc("The module name of a Python file.")] bound [/string, /string].
Decl base_name(Path, Name)
  descr [doc("The name of a Python file without folders and extension.")]
  bound [/string, /string].
Decl subject(Path, Name)
  descr [
    doc("The subject of a test file by its name: orders, of test_orders.py or orders_test.py."),
  ]
  bound [/string, /string].
Decl in_package(Path, Init)
  descr [doc("Init is an __init__.py that Python executes before it imports the file.")]
  bound [/string, /string].
Decl imports(Path, Module)
  descr [
    doc("The file imports the module, at any place; relative imports have their absolute name."),
  ]
  bound [/string, /string].
Decl imports_file(Path, Imported)
  descr [
    doc("The file imports a file of the repository; in_package has the packages of the imported file."),
  ]
  bound [/string, /string].

# --- tests ---------------------------------------------------------------------------------------------------------

Decl test_file(Path) descr [doc("Pytest collects the file.")] bound [/string].
Decl conftest_of(Path, Conftest)
  descr [doc("The conftest.py is loaded before the tests of the file run.")]
  bound [/string, /string].
Decl test(TestId, Path, Line)
  descr [doc("The pytest id of a test without parameters: tests/test_a.py::TestB::test_c.")]
  bound [/string, /string, /number].
Decl tests_symbol(TestId, Path, Name)
  descr [doc("The test uses a definition of the repository, directly or through re-exports.")]
  bound [/string, /string, /string].

# --- uncommitted changes -------------------------------------------------------------------------------------------

Decl changed(Path, How)
  descr [
    doc("A file that differs from the last commit. How is modified, added, deleted, renamed, untracked or conflicted."),
  ]
  bound [/string, /string].
Decl changed_symbol(Path, Name)
  descr [
    doc("A definition of a Python file that was added, removed or changed since the last commit; a moved definition is unchanged."),
  ]
  bound [/string, /string].
Decl staged(Path) descr [doc("The change, or a part of it, is in the index.")] bound [/string].
Decl renamed(Old, New) descr [doc("An uncommitted rename.")] bound [/string, /string].
Decl under_way(What)
  descr [doc("A merge, rebase, cherry-pick, revert or bisect in progress.")]
  bound [/string].
Decl head(Commit)
  descr [doc("The current commit; absent before the first commit.")]
  bound [/string].
Decl current_branch(Branch)
  descr [doc("The current branch; absent if HEAD is detached.")]
  bound [/string].
Decl default_branch(Branch)
  descr [
    doc("A protected branch: the branches of the settings, the default branches of remotes, and main, master and trunk; if none of them exists, all branches. Symbolic references too."),
  ]
  bound [/string].

# --- history and owners --------------------------------------------------------------------------------------------

Decl last_change(Path, Time, Commit)
  descr [doc("The newest commit that changed the file; renames are followed.")]
  bound [/string, /time, /string].
Decl authors(Path, Count)
  descr [doc("The number of authors of the file.")]
  bound [/string, /number].
Decl churn(Path, Commits)
  descr [doc("The number of commits that changed the file.")]
  bound [/string, /number].
Decl owner(Path, Owner)
  descr [
    doc("A required reviewer of the file, by CODEOWNERS: @user, @org/team or an e-mail address."),
  ]
  bound [/string, /string].
Decl invalid_owners(Path, Line)
  descr [doc("An invalid line of CODEOWNERS.")]
  bound [/string, /number].

# --- the settings `protected` and `area`, as texts that rules compare with paths --------------------------------------

Decl protected_path(Path)
  descr [doc("This path is protected. Protected paths and texts are in lower case.")]
  bound [/string].
Decl protected_start(Text)
  descr [doc("Paths that start with the text are protected.")]
  bound [/string].
Decl protected_end(Text) descr [doc("Paths that end with the text are protected.")] bound [/string].
Decl area_path(Path) descr [doc("This path is in the area.")] bound [/string].
Decl area_start(Text)
  descr [doc("Paths that start with the text are in the area.")]
  bound [/string].
Decl area_end(Text) descr [doc("Paths that end with the text are in the area.")] bound [/string].
Decl limit_of_tests(What, Most)
  descr [
    doc("A limit of test runs from the settings: seconds for each run of safe_change, or memory in MiB."),
  ]
  bound [/string, /number].
