"""A repository under git: its scan (package ``scan``) and the actions on it (package ``actions``).

The modules here enforce the limits of both: ``confined_open`` opens files below the root only, ``git`` runs git without
any program that the repository configures, ``secrets`` detects credentials in text, ``credentials`` detects credential
files by name, and ``protection`` matches protected paths.
"""
