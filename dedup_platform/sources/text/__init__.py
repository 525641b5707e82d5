"""Formats of text: CSV, JSON lines and plain lines."""
