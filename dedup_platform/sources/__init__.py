"""Where records come from. A source turns what was delivered into rows of `raw_events`, good or rejected."""
