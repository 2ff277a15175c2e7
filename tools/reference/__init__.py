"""The parts of the documentation that are generated from the code.

A generated block is between the marks ``<!-- generated: NAME -->`` and ``<!-- end -->`` of a page; the text around it
is written by hand. :data:`pages.BLOCKS` has the generator of each name. ``make reference`` writes all blocks, and a
test fails while a page differs.
"""
