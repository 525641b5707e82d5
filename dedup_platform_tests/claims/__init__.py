"""Processes that claim work: many at once, killed, or asleep while others take over."""
