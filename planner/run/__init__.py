"""Programs are run against the unsharded graph: on logical devices in one process, or a process a device."""
