"""The gate: limits on what may rise from one plan to the next, what broke them, and what was edited there."""
