"""Damaged files and messages of every format, read by the real readers: rows or reasons, whatever a byte is.

`python -m dedup_platform_tests.fuzzing --help` tells how to run it, and docs/testing.md how to repeat what it finds.
"""
