"""Program to program: propagate shardings, materialise collectives."""
