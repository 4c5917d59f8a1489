"""What `check` reads and writes: where a base comes from, and the forms in which CI shows what was found."""
