"""What is in a Python repository under git, as facts.

``scan`` puts the rest together. The order in which data meets the modules: ``git`` and ``tree`` say which files there
are and what became of them, ``reading`` and ``analysis`` what each holds (``python``, ``secrets``, ``marks``),
``modules`` and ``collecting`` what they have to do with each other, ``history``, ``owners`` and ``configuration`` what
people did and said. ``cache`` keeps what was expensive. Nothing of the repository is ever run.
"""
