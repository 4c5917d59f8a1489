"""Layers and values of transformers' configurations reach the part of the model that they are meant for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from planner.errors import InvalidRequest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch", "transformers")

capture: Any = import_module("planner.frontends.torch.capture")
published_config: Any = import_module("planner.frontends.torch.published_config")


def config_of(kind: str, layers: int | None = None, **settings: object) -> Any:
    return published_config.build_config(kind, capture.model_class(kind), settings, layers=layers)


def test_a_language_model_of_a_larger_one_has_the_layers_and_sizes_that_were_asked_for() -> None:
    config = config_of("qwen3_5", 3, hidden_size=64)
    assert (type(config).__name__, config.num_hidden_layers, config.hidden_size) == ("Qwen3_5TextConfig", 3, 64)


def test_values_of_the_text_part_of_a_model_built_from_the_whole_go_there() -> None:
    config = config_of("gemma3", 3, hidden_size=64, mm_tokens_per_image=16)
    text = config.text_config
    assert (text.num_hidden_layers, text.hidden_size, config.mm_tokens_per_image) == (3, 64, 16)


def test_values_of_a_part_given_as_a_whole_are_kept() -> None:
    text = config_of("gemma3", 3, text_config={"hidden_size": 64}).text_config
    assert (text.num_hidden_layers, text.hidden_size) == (3, 64)


@pytest.mark.parametrize(("kind", "decoder"), [("bart", "decoder_layers"), ("t5", "num_decoder_layers")])
def test_encoder_and_decoder_have_as_many_layers(kind: str, decoder: str) -> None:
    config = config_of(kind, 3)
    assert config.num_hidden_layers == 3 == getattr(config, decoder)


def test_no_keys_and_values_are_cached() -> None:
    config = config_of("gemma3")
    assert not config.text_config.use_cache


@pytest.mark.parametrize("kind", ["gpt2", "gemma3"])
def test_a_name_that_the_configuration_does_not_have_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{kind}: config .got hiden_size; wanted a name such as hidden_size"):
        config_of(kind, hiden_size=64)


@pytest.mark.parametrize("kind", ["resnet", "swin"])
def test_layers_of_a_model_of_stages_are_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="wanted a model whose configuration has one number of layers"):
        config_of(kind, 2)
