"""The rules over the columns of a few cells in memory: Polars in, Polars out. No Spark, no Iceberg, no files.

A task of Spark calls them with whole cells, so that nothing is ever shuffled: all records of an entity are in one
bucket, and all that a rule can compare lies within the window's reach of a partition.
"""
