"""The calling side of the IPC contract: one pool of warm hosts per plugin, one result per call.

From the caller inwards: :mod:`.catalogue` makes calls of what a plugin lists; :mod:`.pool` decides which host runs a
call and what becomes of it when the host is lost; :mod:`.process` owns one host process, which :mod:`.launching`
started; :mod:`.messages` is what the two say to each other, :mod:`.framing` how the lines are cut. :mod:`.breakers`
leaves alone what keeps failing, :mod:`.errors` is what callers get instead of an answer and :mod:`.settings` what the
environment says.
"""

from manglecp.toolhost.dispatch.catalogue import Catalogue
from manglecp.toolhost.dispatch.errors import DispatchError, is_failure
from manglecp.toolhost.dispatch.launching import HostCommand
from manglecp.toolhost.dispatch.messages import Answer, Call
from manglecp.toolhost.dispatch.pool import Pool

__all__ = ["Answer", "Call", "Catalogue", "DispatchError", "HostCommand", "Pool", "is_failure"]
