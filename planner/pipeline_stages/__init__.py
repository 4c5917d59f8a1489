"""Pipeline stages: where a training step is cut, in which order its micro-batches run, and how long that takes."""
