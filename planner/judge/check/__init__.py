"""Check two plans against limits: what rose from one to the other, and which edit of the graph caused it."""
