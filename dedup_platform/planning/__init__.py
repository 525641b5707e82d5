"""What is stale, why, and what to run for it. Pure: facts and policies in, plans out; no Spark, no files, no clock."""
