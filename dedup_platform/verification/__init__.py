"""The rules as pure Spark stages: DataFrame in, DataFrame out. No stage reads or writes a table.

Columns that live within a stage only start with `_`, as no column of a stream file can.
"""
