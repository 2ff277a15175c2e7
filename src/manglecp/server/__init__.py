"""A pack behind a wire: one message core for all transports, and everything that keeps it standing.

edition     one loaded edition of a pack, ready to be asked and invoked
serving     which edition is served now, and in which state the server is
manifests   what the server says about itself, as bytes with a tag
admission   who may ask how often, and how many are answered at once
core        what transports talk to; sessions are what they talk through
auth        who asks

Transports own sockets and streams and nothing else: a message comes in as bytes and leaves as bytes.
"""

from manglecp.base.lazy import attach

__getattr__ = attach(__name__, __file__)
