"""The parts of the documentation that are written from the code, so that they cannot say something else.

A page has such a part between two marks, ``<!-- generated: NAME -->`` and ``<!-- end -->``; what stands around them is
written by people. :data:`BLOCKS` knows each name. ``make reference`` writes all of them, and a test fails while a page
differs from what would be written.
"""
