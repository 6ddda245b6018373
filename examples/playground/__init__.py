"""The playground: samplers and learning rules moving in the plane, computed here and drawn by a browser."""

from examples.playground.server import open_server, serve

__all__ = ["open_server", "serve"]
