"""Element types: the names that documents use, and their sizes in bytes."""

from __future__ import annotations

DTYPE_BYTES = {
    "f64": 8,
    "f32": 4,
    "bf16": 2,
    "f16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "u64": 8,
    "u32": 4,
    "u16": 2,
    "u8": 1,
    "bool": 1,
}


def is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def is_integer(dtype: str) -> bool:
    return dtype.startswith(("i", "u"))


def is_unsigned(dtype: str) -> bool:
    return dtype.startswith("u")
