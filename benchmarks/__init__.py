"""Measures, side by side in one run: the platform beside what people would otherwise write."""
