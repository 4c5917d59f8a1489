"""The command line: a module per command, render_* for what is printed on a terminal."""
