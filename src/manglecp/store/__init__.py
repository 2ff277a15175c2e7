"""What must last.

Three ideas:

* **A log that is only added to.** What happened is a row of a stream, and each row holds the hash of the one before it
  (:mod:`.chain`). What is the case now follows from the log and can be computed again from it.
* **One transaction.** A change, the event that says so and the evidence that justifies it are written together or not
  at all (:mod:`.sqlite`).
* **Rules beside the database, not in it.** Which change is admissible is decided by code that sees nothing but small
  tables, so that another database can stand behind the same rules.

Issue memory (:mod:`.issues`) is what turns may mutate. SQLite is behind it; clocks and new ids are passed in.
"""
