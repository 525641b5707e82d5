"""How Dagster runs the platform: the only package that imports dagster. Few lines here, rules live elsewhere."""
