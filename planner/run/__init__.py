"""Programs are run: on logical devices in one process, against the unsharded graph."""
