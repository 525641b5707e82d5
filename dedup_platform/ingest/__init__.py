"""Takes in what the source has: rows and positions become one Iceberg commit, by compare-and-set (rule 1).

Nothing is imported here: workers need the part only that reads and appends, and start so much sooner.
"""
