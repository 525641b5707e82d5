"""The only package that writes Iceberg.

Nothing is imported here: workers need the data files' part of it only, and start so much sooner.
"""
