"""Parts of the pipeline: requests and plans, objectives, folded solves, overlap pricing."""
