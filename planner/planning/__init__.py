"""What the pipeline is made of: requests and plans, objectives, folded solves, overlap pricing."""
