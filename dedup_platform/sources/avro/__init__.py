"""Avro: files, and messages of one datum each."""
