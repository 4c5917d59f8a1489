"""The old name of an option or a command is refused by a message with the new name."""

from __future__ import annotations

import pytest

from api.cli.renamed import COMMANDS, OPTIONS
from tests.testing.command_line import shardplan


@pytest.mark.parametrize(("old", "new"), OPTIONS.items())
def test_an_old_option_is_refused_with_its_new_name(old: tuple[str, str], new: str) -> None:
    command, option = old
    answer = shardplan(command, "x", option, "1")
    assert (answer.code, answer.err) == (1, f"shardplan: {command}: {option} is now {new}\n")
    assert new in shardplan(command, "--help").out


@pytest.mark.parametrize(("old", "new"), COMMANDS.items())
def test_an_old_command_is_refused_with_its_new_name(old: tuple[str, str], new: str) -> None:
    group, command = old
    answer = shardplan(group, command)
    assert (answer.code, answer.err) == (1, f"shardplan: {group} {command} is now {group} {new}\n")
    assert new in shardplan(group, "--help").out


def test_an_unknown_name_is_refused_as_usual() -> None:
    assert "No such command 'lend'" in shardplan("keys", "lend").err
    assert "No such option: --beside" in shardplan("plan", "x", "--beside", "1").err
