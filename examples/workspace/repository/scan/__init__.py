"""Scan a Python repository under git into facts. No code of the repository is executed.

``scanner`` drives the other modules. ``tree`` lists files and changes with ``git``. ``file_reader`` and ``analysis``
read and analyse each file (``python``, ``secrets``, ``file_kinds``). ``relations`` resolves imports and tests
(``modules``, ``pytest_collection``, ``configuration``). ``differences``, ``history`` and ``owners`` add changed
definitions, commits and owners. ``cache`` stores expensive results.
"""
