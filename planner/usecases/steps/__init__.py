"""Training steps in a stated layout: their graphs, their shardings, and their predicted time and memory."""
