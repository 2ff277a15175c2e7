"""A repository under git: what is in it (``scanning``) and what can be done in it (``actions``).

What both need to stay within bounds is here, once: ``opening`` reaches files below the root, ``git`` asks git without
running anything that the repository names, ``secrets`` knows what looks like a credential and ``credentials`` which
files are made for them, ``protection`` which paths are out of bounds.
"""
