"""How frameworks spell the element types of documents: one row a dtype."""

from __future__ import annotations

from typing import NamedTuple


class DtypeSpelling(NamedTuple):
    """The names of one dtype: in `torch`, in ONNX's `TensorProto`, and as an element type of MLIR."""

    torch: str
    onnx: str
    mlir: str


SPELLINGS = {
    "f64": DtypeSpelling("float64", "DOUBLE", "f64"),
    "f32": DtypeSpelling("float32", "FLOAT", "f32"),
    "bf16": DtypeSpelling("bfloat16", "BFLOAT16", "bf16"),
    "f16": DtypeSpelling("float16", "FLOAT16", "f16"),
    "f8e4m3": DtypeSpelling("float8_e4m3fn", "FLOAT8E4M3FN", "f8E4M3FN"),
    "f8e5m2": DtypeSpelling("float8_e5m2", "FLOAT8E5M2", "f8E5M2"),
    "i64": DtypeSpelling("int64", "INT64", "i64"),
    "i32": DtypeSpelling("int32", "INT32", "i32"),
    "i16": DtypeSpelling("int16", "INT16", "i16"),
    "i8": DtypeSpelling("int8", "INT8", "i8"),
    "u64": DtypeSpelling("uint64", "UINT64", "ui64"),
    "u32": DtypeSpelling("uint32", "UINT32", "ui32"),
    "u16": DtypeSpelling("uint16", "UINT16", "ui16"),
    "u8": DtypeSpelling("uint8", "UINT8", "ui8"),
    "bool": DtypeSpelling("bool", "BOOL", "i1"),
}

FROM_TORCH = {row.torch: name for name, row in SPELLINGS.items()}
FROM_ONNX = {row.onnx: name for name, row in SPELLINGS.items()}
FROM_MLIR = {row.mlir: name for name, row in SPELLINGS.items()}

LARGEST_FLOAT = {
    "f64": (2 - 2**-52) * 2.0**1023,
    "f32": (2 - 2**-23) * 2.0**127,
    "bf16": (2 - 2**-7) * 2.0**127,
    "f16": 65504.0,
    "f8e4m3": 448.0,
    "f8e5m2": 57344.0,
}
"""The largest finite number of every float dtype."""
