"""Plans of pipelines as programs of other frameworks."""
