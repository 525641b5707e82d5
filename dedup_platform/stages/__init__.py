"""The rules as pure Spark stages: DataFrame in, DataFrame out. Nothing here reads or writes a table or knows who calls it."""
