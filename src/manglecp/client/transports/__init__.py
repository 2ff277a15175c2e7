"""How messages reach a server.

protocol      what every transport can do
conversation  the requests under way on one connection
memory        a server in the same process
stdio         a server that is started as a subprocess
websocket     a connection that lasts
http          one request at a time
"""
