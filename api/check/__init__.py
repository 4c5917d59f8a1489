"""Where the base of a check comes from, and the formats in which CI shows its result."""
