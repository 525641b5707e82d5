"""The rules as pure Spark stages: DataFrame in, DataFrame out. No stage reads or writes a table."""
