"""Handlers of the supported operations.

An operation without a dialect, such as the documents' `"op0"(%x)`, or one with `shardplan.rule` is opaque: its rule is
the given one, else it is replicated. If it has no result, it gets one without dims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from planner.errors import InvalidGraph, InvalidMesh, ShardplanError, UnsupportedOp
from planner.frontends.mlir.annotation_checks import NamedValue
from planner.frontends.mlir.attributes import DenseAttribute
from planner.frontends.mlir.conv_ops import CONVOLUTIONS, translate_convolution
from planner.frontends.mlir.linalg_ops import (
    translate_broadcast,
    translate_generic,
    translate_reduction,
    translate_tosa_reduction,
    translate_transpose,
)
from planner.frontends.mlir.module import Argument, Module
from planner.frontends.mlir.op_names import ARITY, CONTRACTIONS, ELEMENTWISE, TOSA_REDUCTIONS, find_common_op
from planner.frontends.mlir.operations import CALLS, SHARDINGS, SHARDS, Operation
from planner.frontends.mlir.product_ops import (
    VECTOR_PRODUCTS,
    translate_contraction,
    translate_dot,
    translate_dot_general,
    translate_vector_product,
)
from planner.frontends.mlir.sharding_syntax import ShardingSyntax
from planner.frontends.mlir.translation import InitTensor, MlirTranslation, ScalarValue
from planner.frontends.mlir.types import MlirTensorType
from planner.frontends.uncovered_ops import unrelated_rule
from planner.ir.dynamic_dims import is_known
from planner.ir.graph import OUTPUTS, TensorType
from planner.ir.sharding import Sharding

Handler = Callable[[MlirTranslation, Operation], None]


def translate_statement(translation: MlirTranslation, operation: Operation, module: Module) -> None:
    """Translate one operation. Raises ShardplanError with the place."""
    name = find_common_op(operation.name)
    try:
        for start in operation.inits:
            translation.lookup(start, operation.at)
        if name in CALLS:
            _translate_call(translation, operation, module)
        elif name in HANDLERS:
            HANDLERS[name](translation, operation)
        elif name in ELEMENTWISE:
            _translate_elementwise(translation, operation)
        elif "." not in name or "shardplan.rule" in operation.attrs:
            _translate_opaque(translation, operation)
        else:
            scan = translation.scan
            raise scan.error(
                "unknown operation", at=operation.at, got=name, wanted=SUPPORTED_NAMES, error=UnsupportedOp
            )
        listed = isinstance(operation.attrs.get("sharding"), list) and name != "mesh.annotate"
        if listed or "shardplan.option" in operation.attrs:
            _read_option(translation, operation)
    except ShardplanError as error:
        raise translation.located(error, operation.at) from None


def _translate_elementwise(t: MlirTranslation, operation: Operation) -> None:
    name = find_common_op(operation.name)
    count = ARITY.get(name, len(operation.operands))
    for extra in operation.operands[count:]:
        _must_be_zero(t, extra, operation)
    if operation.attrs.get("shift", 0) != 0:
        raise t.scan.error("shift", at=operation.at, got=operation.attrs["shift"], wanted="0", error=UnsupportedOp)
    t.init_tensors |= {tensor.value for name in operation.inits if isinstance(tensor := t.bound.get(name), NamedValue)}
    inputs = [t.find_tensor(operand, operation.at) for operand in operation.operands[:count]]
    t.add(operation, ELEMENTWISE[name], inputs, {}, t.tensors(operation))


def _must_be_zero(t: MlirTranslation, name: str, operation: Operation) -> None:
    tensor = t.find_tensor(name, operation.at)
    full = next((op for op in t.ops if op.id == tensor.value and op.op == "full"), None)
    if full is None or full.attrs["value"] != 0:
        raise t.scan.error("zero point", at=operation.at, got=f"%{name}", wanted="a constant 0", error=UnsupportedOp)
    t.init_tensors.add(tensor.value)


def _translate_constant(t: MlirTranslation, operation: Operation) -> None:
    value = operation.attrs.get("value", operation.attrs.get("values"))
    if not isinstance(value, DenseAttribute):
        raise t.scan.error("constant", at=operation.at, got=value, wanted="dense<...>")
    if not isinstance(value.type, MlirTensorType):
        if value.value is None or isinstance(value.value, tuple):
            raise t.scan.error("constant", at=operation.at, got=value.type, wanted="a tensor or a number")
        t.give(operation, ScalarValue(value.value))
    elif value.value is None or isinstance(value.value, tuple):
        attrs = {"shardplan.kind": "constant", **operation.attrs}
        for name in operation.results:
            t.input(Argument(name, operation.at, value.type, attrs), value.type)
    else:
        t.add(operation, "full", (), {"value": value.value}, (value.type,))


def _translate_fill(t: MlirTranslation, operation: Operation) -> None:
    name = t.only_operand(operation)
    value = t.bound.get(name)
    if not isinstance(value, ScalarValue) or value.value is None:
        raise t.scan.error("fill", at=operation.at, got=f"%{name}", wanted="a constant number", error=UnsupportedOp)
    t.add(operation, "full", (), {"value": value.value}, t.tensors(operation))


def _translate_empty(t: MlirTranslation, operation: Operation) -> None:
    t.give(operation, InitTensor(neutral=False))


def _translate_dim(t: MlirTranslation, operation: Operation) -> None:
    """tensor.dim: a size, which some later tensor.empty reads."""
    if len(operation.operands) != 2:
        raise t.scan.error("number of operands", at=operation.at, got=len(operation.operands), wanted="2")
    shape, dim = t.find_tensor(operation.operands[0], operation.at).shape, t.number(operation.operands[1], operation.at)
    if not 0 <= dim < len(shape):
        wanted = f"0 to {len(shape) - 1}"
        raise t.scan.error("dim out of range", at=operation.at, got=dim, wanted=wanted, error=InvalidGraph)
    t.give(operation, ScalarValue(shape[dim] if is_known(shape[dim]) else None))


def _translate_cast(t: MlirTranslation, operation: Operation) -> None:
    """tensor.cast between equal types: another name for the operand."""
    (kind,) = t.tensors(operation)
    tensor = t.find_tensor(t.only_operand(operation), operation.at)
    if t.types[tensor.value] != kind.type:
        wanted = str(t.types[tensor.value])
        raise t.scan.error("cast", at=operation.at, got=str(kind.type), wanted=wanted, error=UnsupportedOp)
    t.give(operation, tensor)


def _translate_call(t: MlirTranslation, operation: Operation, module: Module) -> None:
    callee = operation.attrs["callee"].name
    attrs = module.functions[callee].attrs if callee in module.functions else {}
    if "shardplan.op" not in attrs:
        wanted = "a declaration with the attribute shardplan.op"
        raise t.scan.error("call", at=operation.at, got=f"@{callee}", wanted=wanted, error=UnsupportedOp)
    results = t.tensors(operation, len(operation.result_types))
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    rule = attrs.get("shardplan.rule")
    given = attrs.get("shardplan.attrs", {})
    t.add(operation, str(attrs["shardplan.op"]), inputs, given, results, None if rule is None else str(rule))


def _translate_opaque(t: MlirTranslation, operation: Operation) -> None:
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    results = t.tensors(operation, len(operation.result_types)) or (MlirTensorType(TensorType((), "bool")),)
    shapes = [tensor.shape for tensor in inputs], [kind.type.shape for kind in results]
    rule = str(operation.attrs.get("shardplan.rule", unrelated_rule(*shapes, kind="opaque")))
    t.add(operation, operation.name, inputs, operation.attrs.get("shardplan.attrs", {}), results, rule)


def _read_option(t: MlirTranslation, operation: Operation) -> None:
    """Read the option of the last op: mesh axes by loop, as our printer writes it, or the RFC's list of lists.

    The RFC's list has the loops of the result first, in the order of its dims, then the reduction loops.
    """
    op, given = t.ops[-1], operation.attrs.get("shardplan.option", operation.attrs.get("sharding"))
    loops = [loop.name for loop in op.rule.loops]
    if isinstance(given, list):
        first = list(dict.fromkeys(dim.loops[0] for dim in op.rule.results[0] if dim.loops))
        order = [*first, *(loop.name for loop in op.rule.loops if loop.name not in first and loop.kind != "linear")]
        if len(given) > len(order):
            wanted = f"at most {len(order)} lists"
            raise t.scan.error("sharding option", at=operation.at, got=len(given), wanted=wanted)
        given = dict(zip(order, given, strict=False))
    lists = isinstance(given, dict) and all(isinstance(axes, list) for axes in given.values())
    if (
        not lists
        or not set(given) <= set(loops)
        or not all(isinstance(a, int) for axes in given.values() for a in axes)
    ):
        raise t.scan.error("sharding option", at=operation.at, got=given, wanted=f"mesh axes for {', '.join(loops)}")
    option = tuple(tuple(given.get(loop, ())) for loop in loops)
    Sharding(option).complete(len(option), t.shardings.mesh(operation.at))
    t.ops[-1] = replace(op, option=option)


def _translate_sharding(t: MlirTranslation, operation: Operation) -> None:
    t.give(operation, operation.attrs["sharding"])


def _translate_shard(t: MlirTranslation, operation: Operation) -> None:
    spelled = operation.attrs.get("sharding")
    if spelled is None:
        spelled = t.bound.get(operation.attrs.get("layout", ""))
    if not isinstance(spelled, ShardingSyntax):
        raise t.scan.error("sharding", at=operation.at, wanted="a value of the sharding type", error=InvalidGraph)
    for_users = bool(operation.attrs.get("annotate_for_users")) or operation.attrs.get("as_result") is False
    _annotate_value(
        t,
        operation,
        spelled,
        for_users=for_users,
        required=operation.attrs.get("shardplan.required", True) is not False,
    )


def _translate_annotate(t: MlirTranslation, operation: Operation) -> None:
    given = operation.attrs.get("sharding")
    if isinstance(given, list) and given and all(isinstance(axes, list) for axes in given):
        entries = tuple(tuple(axes) for axes in given)
        given = ShardingSyntax(entries, operation.at, trailing_partial=True)
    if not isinstance(given, ShardingSyntax):
        raise t.scan.error("sharding", at=operation.at, got=given, wanted="[[...], ...] or #mesh.shard<...>")
    required = operation.attrs.get("required", True) is not False
    _annotate_value(t, operation, given, for_users=operation.attrs.get("as_result", True) is False, required=required)


def _annotate_value(
    t: MlirTranslation, operation: Operation, spelled: ShardingSyntax, *, for_users: bool, required: bool
) -> None:
    if operation.result_types:
        t.tensors(operation)
    name = t.only_operand(operation)
    bound = t.bound.get(name)
    if isinstance(bound, InitTensor):  # upstream's propagation also annotates tensors that are only written to
        t.give(operation, bound)
        return
    tensor = t.find_tensor(name, operation.at)
    asked = (t.shardings.checked(spelled, tensor.shape, t.number), required)
    if for_users:
        t.give(operation, t.annotations.chain(tensor, asked, operation.at))
    else:
        t.annotations.define(tensor, asked, operation.at)
        t.give(operation, tensor)


def _translate_return(t: MlirTranslation, operation: Operation) -> None:
    got, count = len(operation.operands), len(t.function.result_types)
    if got != count:
        raise t.scan.error("number of results", at=operation.at, got=got, wanted=str(count), error=InvalidGraph)
    for name, kind in zip(operation.operands, t.function.result_types, strict=True):
        t.check_type(name, kind, operation.at)
    returned = [t.find_tensor(name, operation.at) for name in operation.operands]
    t.annotations.read(returned, OUTPUTS, operation.at)
    t.outputs += [tensor.value for tensor in returned]


def _translate_query(t: MlirTranslation, operation: Operation) -> None:
    """mesh.size and mesh.idx of one axis; the function must name its mesh."""
    if t.shardings.default is None:
        raise t.scan.error("function without mesh_cluster", at=operation.at, wanted="the attribute", error=InvalidMesh)
    mesh, axis = t.shardings.mesh(operation.at), operation.attrs.get("axis")
    if not isinstance(axis, int) or not 0 <= axis < len(mesh.axes):
        wanted = f"0 to {len(mesh.axes) - 1}"
        raise t.scan.error("mesh axis out of range", at=operation.at, got=axis, wanted=wanted, error=InvalidMesh)
    size = mesh.axes[axis].size if operation.name == "mesh.size" else None
    t.give(operation, ScalarValue(size))


HANDLERS: MappingProxyType[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("arith.constant", "mhlo.constant", "tosa.const"), _translate_constant),
        **dict.fromkeys(SHARDINGS, _translate_sharding),
        **dict.fromkeys(SHARDS, _translate_shard),
        **dict.fromkeys(("return", "func.return"), _translate_return),
        **dict.fromkeys(("mesh.size", "mesh.idx"), _translate_query),
        **dict.fromkeys(CONTRACTIONS, translate_contraction),
        **dict.fromkeys(TOSA_REDUCTIONS, translate_tosa_reduction),
        "mesh.annotate": _translate_annotate,
        "linalg.fill": _translate_fill,
        "linalg.transpose": translate_transpose,
        "mhlo.transpose": translate_transpose,
        "linalg.reduce": translate_reduction,
        "linalg.broadcast": translate_broadcast,
        "linalg.generic": translate_generic,
        **dict.fromkeys(CONVOLUTIONS, translate_convolution),
        **dict.fromkeys(VECTOR_PRODUCTS, translate_vector_product),
        "mhlo.dot": translate_dot,
        "mhlo.dot_general": translate_dot_general,
        "tensor.empty": _translate_empty,
        "tensor.dim": _translate_dim,
        "tensor.cast": _translate_cast,
    }
)
SUPPORTED_NAMES = f"elementwise arith, math, tosa and mhlo, func.call, or one of {', '.join(HANDLERS)}"
