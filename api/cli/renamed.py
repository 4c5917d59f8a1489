"""Options and commands that had another name once: the old one is refused by a message that says the new one."""

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
"""By command and old spelling: the new one."""

COMMANDS = {("keys", "add"): "create", ("admin", "forget"): "purge"}
"""By group and old command: the new one."""


def find_new_name(error: Exception) -> str | None:
    """What a usage error is about, if it is an old name: where it stands, and the name of today."""
    command = getattr(getattr(error, "ctx", None), "info_name", None)
    option = getattr(error, "option_name", None)
    if new := OPTIONS.get((str(command), str(option))):
        return f"{command}: {option} is now {new}"
    unknown = re.match(r"No such command '([\w-]+)'", getattr(error, "message", "") or "")
    if unknown and (new := COMMANDS.get((str(command), unknown[1]))):
        return f"{command} {unknown[1]} is now {command} {new}"
    return None
