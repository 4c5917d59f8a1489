"""Formulate the assignment problem: the options of ops, their costs, reshards between them, and the way back."""
