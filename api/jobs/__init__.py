"""The durable queue, its database, and the workers that solve plans in child processes."""
