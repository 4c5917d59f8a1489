"""Configurations of the models of transformers: which one a model reads, and where a value of the user's belongs.

A model of several parts, such as text and images, has a configuration of configurations. Where a language model is
built from one of these alone, that one is the model's. Where it is built from the whole, a name that the whole does not
have belongs to its text part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from planner.errors import InvalidRequest

LAYER_COUNTS = ("num_hidden_layers", "num_decoder_layers", "decoder_layers")
"""Names of numbers of layers; a configuration may have several."""


def build_config(kind: str, model: Any, settings: Mapping[str, object], *, layers: int | None) -> Any:
    """Return the configuration of a model of class `model`, without a cache of keys and values.

    kind      type of the model, as transformers names it
    settings  values of the configuration, or of its text part, by name
    layers    number of layers; None: the configuration's

    Raises InvalidRequest for names that the configuration does not have, and for layers where it has no number of them.
    """
    made = _find_class(kind, model)
    defaults = list_defaults(kind, model)
    placed: dict[str, Any] = {}
    counts = {name: layers for name in LAYER_COUNTS if layers is not None and any(has(each, name) for each in defaults)}
    for name, value in {**settings, **counts}.items():
        owner = next((each for each in defaults if has(each, name)), None)
        if owner is None and defaults:
            raise InvalidRequest("config", where=kind, got=name, wanted=_list_near(name, defaults))
        if owner is None or owner is defaults[0]:
            placed[name] = value
        else:
            part = _find_text_name(defaults[0])
            placed[part] = {**placed.get(part, {}), name: value}
    config = made(**placed)
    _check_layers(kind, config, layers)
    for each in (config, *(getattr(config, name) for name in config.sub_configs)):
        if hasattr(each, "use_cache"):
            each.use_cache = False
    return config


def list_defaults(kind: str, model: Any) -> list[Any]:
    """Return the default configuration of a model and that of its text part, if it has one.

    The list is empty where the checks of the configuration refuse its own defaults.
    """
    try:
        default = _find_class(kind, model)()
    except Exception:  # noqa: BLE001 - the checks of configurations raise what they like
        return []
    name = _find_text_name(default)
    return [default, *([getattr(default, name)] if name else [])]


def has(config: Any, name: str) -> bool:
    """Return whether a configuration has a value of this name."""
    try:
        return hasattr(config, name)
    except Exception:  # noqa: BLE001 - some refuse to name a size that differs from layer to layer
        return True


def _find_class(kind: str, model: Any) -> Any:
    from transformers import CONFIG_MAPPING

    whole = CONFIG_MAPPING[kind]
    return model.config_class if model.config_class in whole.sub_configs.values() else whole


def _find_text_name(config: Any) -> str:
    """Return the name of the text part of a configuration, "" if it has none or several."""
    try:
        text = config.get_text_config()
    except ValueError:  # several
        return ""
    return next((name for name in config.sub_configs if getattr(config, name, None) is text), "")


def _list_near(name: str, defaults: Sequence[Any]) -> str:
    names = [key for each in defaults for key in (*vars(each), *each.attribute_map)]
    return f"a name such as {', '.join(get_close_matches(name, names, 3, 0.0))}"


def _check_layers(kind: str, config: Any, layers: int | None) -> None:
    """Refuse a number of layers where the configuration has none, or has one for each stage (`depths`)."""
    read = config.get_text_config() if _find_text_name(config) else config
    if layers is not None and (getattr(read, "num_hidden_layers", None) != layers or hasattr(read, "depths")):
        wanted = "a model whose configuration has one number of layers; others are set by names of the configuration"
        raise InvalidRequest("layers", where=kind, got=layers, wanted=wanted)
