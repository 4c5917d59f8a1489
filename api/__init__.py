"""The faces of the planner: the command line. They translate; they decide nothing."""
