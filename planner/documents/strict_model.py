"""The base of all document models: exact types, no unknown keys, immutable."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _require_whole(value: object) -> object:
    """Refuse 1.0 and True, which Python takes for 1."""
    if isinstance(value, bool | float):
        raise ValueError("a whole number")
    return value


Id = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Name = Annotated[str, Field(max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Dim = Annotated[int, Field(ge=1, le=1 << 40)]
Dtype = Literal[
    "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"
]
Size = Annotated[int, Field(ge=0)]
Version = Annotated[Literal[1], BeforeValidator(_require_whole)]
Version2 = Annotated[Literal[2], BeforeValidator(_require_whole)]
Axis = Annotated[int | Id, Field(description="a mesh axis: its name, or its position")]


class StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


Shape = Annotated[list[Dim], Field(max_length=16, fail_fast=True)]
AxisList = Annotated[list[Axis], Field(max_length=16, fail_fast=True)]
Counts = Annotated[list[Annotated[int, Field(ge=-(1 << 40), le=1 << 40)]], Field(max_length=4096, fail_fast=True)]
AxisLists = Annotated[list[AxisList], Field(max_length=64, fail_fast=True)]
