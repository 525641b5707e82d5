"""How Dagster runs the platform: the only room that imports dagster. Bodies are a few lines, rules live elsewhere."""
