"""The decisions: which options an op has, what they cost, how layouts change, which to take."""
