from .handlers import McpOptions as McpOptions, make_server as make_server
from .hosts import HOSTS as HOSTS, HostConfig as HostConfig, plan_installation as plan_installation
from .sources import PackSource as PackSource, ServerSource as ServerSource, Source as Source
from .transports import http_app as http_app, serve_http as serve_http, serve_stdio as serve_stdio
