"""Spark: its session, Spark Connect and its server, and work on its Python workers."""
