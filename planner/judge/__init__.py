"""Numbers and reasons: what a program costs, moves and holds."""
