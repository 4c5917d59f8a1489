"""Options and commands that had another name, or that do not exist yet: they are refused by a message that says so."""

from __future__ import annotations

import re

OPTIONS = {
    ("report", "--beside"): "--compare-to",
    ("check", "--acknowledged"): "--waivers",
    ("serve", "--queued"): "--max-queued",
    ("serve", "--rate"): "--rate-limit",
    ("serve", "--keep-days"): "--retention-days",
    ("explain", "--options"): "--alternatives",
    ("capacity", "--processes"): "--jobs",
    **{(command, "--validate"): "--verify" for command in ("reshard", "migrate")},
    **{(command, "--no-validate"): "--no-verify" for command in ("reshard", "migrate")},
}
"""The new name by command and old option."""

MICROBATCHES = "--global-batch asks for updates in as many micro-batches of each batch as it takes"
NOT_YET = {
    ("capacity", "--stages"): "--pipeline says how many stages there are",
    **{("capacity", option): MICROBATCHES for option in ("--microbatches", "--micro-batches")},
}
"""What to say by command and option that does not exist yet."""

COMMANDS = {("keys", "add"): "create", ("admin", "forget"): "purge"}
"""The new name by group and old command."""


def find_new_name(error: Exception) -> str | None:
    """Return a message with the new name, where a usage error is about an old name, or of what is yet to come.

    None for other errors.
    """
    command = getattr(getattr(error, "ctx", None), "info_name", None)
    option = getattr(error, "option_name", None)
    if new := OPTIONS.get((str(command), str(option))):
        return f"{command}: {option} is now {new}"
    if why := NOT_YET.get((str(command), str(option))):
        return f"{command}: {option}: {why}"
    unknown = re.match(r"No such command '([\w-]+)'", getattr(error, "message", "") or "")
    if unknown and (new := COMMANDS.get((str(command), unknown[1]))):
        return f"{command} {unknown[1]} is now {command} {new}"
    return None
