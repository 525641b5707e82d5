"""Spark: its session, Spark Connect and its server, and work on its Python workers."""

CONNECT_PORT = 15002
"""Where a Spark Connect server listens if nothing else is said: Spark's own choice."""
