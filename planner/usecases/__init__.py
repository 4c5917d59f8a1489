"""What the user asks for: check, explain, capacity, migrate, calibrate, validate on a GPU."""
