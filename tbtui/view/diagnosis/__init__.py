"""What is wrong with a run, ranked, and what to do about it: rules over a frozen snapshot. Pure."""
