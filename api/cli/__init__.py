"""The command line: a module per command; the render_* modules print documents on a terminal."""
