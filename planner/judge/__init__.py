"""Analyze programs and plans: costs, bytes, memory, bounds, comparisons and explanations."""
