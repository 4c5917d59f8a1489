"""Turns exceptions into one message and an exit code."""

from __future__ import annotations

import os
import sys

import typer
from typer.main import get_command

from api.cli.renamed import find_new_name
from planner.errors import ShardplanError
from planner.planning.deadline import TimeLimitReached

FAILED, INTERRUPTED = 1, 130


def run_reporting_errors(app: typer.Typer) -> int:
    """Run the application and return its exit code; an error that the user can cause becomes one line on standard
    error.
    """
    try:
        code = get_command(app).main(prog_name="shardplan", standalone_mode=False)
    except ShardplanError as error:
        return _print_error("\n".join([str(error), *getattr(error, "__notes__", ())]))
    except TimeLimitReached:
        return _print_error("the time limit was up before there was an answer (wanted a longer --time-limit)")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        return _print_error(f"{error.filename or 'file'}: {error.strerror or error}")
    except MemoryError:
        return _print_error("out of memory")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):
            return _print_error(find_new_name(error) or error.format_message())
        raise
    return int(code or 0)


def _print_error(message: str) -> int:
    sys.stderr.write(f"{message}\n" if message.startswith("Usage:") else f"shardplan: {message}\n")
    return FAILED
