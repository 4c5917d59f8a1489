"""Lines of SPMD program text: a call in every spelling, and lines that must be refused."""

from __future__ import annotations

from planner.errors import InvalidGraph, InvalidMesh, InvalidProgram, InvalidSharding, ShardplanError, UnsupportedOp

T, U = "tensor<4x8xf32>", "tensor<4x32xf32>"
GATHERED = "all_gather(%a) mesh_axes=[1] gather_axis=1 : f32[4,32]"
# Two spellings of one call on mesh 2x4, default @m, with %a: T, %i: index, %n: index and a constant %c = 1.
SPELLINGS = [
    (f"mesh.all_gather %a on @m mesh_axes = [1] gather_axis = 1 : {T} -> {U}", GATHERED),
    (f"shard.all_gather %a on @m grid_axes = [1] gather_axis = 1 : {T} -> {U}", GATHERED),
    (f'"mesh.all_gather"(%a) {{gather_axis = 1 : index, mesh = @m, mesh_axes = array<i16: 1>}} : ({T}) -> {U}', ""),
    (f'"shard.all_gather"(%a) <{{gather_axis = 1 : index, grid = @m, grid_axes = array<i16: 1>}}> : ({T}) -> {U}', ""),
    (
        "mesh.local_split %a on @m mesh_axes = [1] slice_axis = 1 : tensor<4x8xf32> -> tensor<4x2xf32>",
        "all_slice(%a) mesh_axes=[1] slice_axis=1 : f32[4,2]",
    ),
    (
        f'"shard.all_reduce"(%a) <{{grid = @m, grid_axes = array<i16: 1>, reduction = #shard<partial max>}}>'
        f" : ({T}) -> {T}",
        "all_reduce(%a) mesh_axes=[1] reduction=max : f32[4,8]",
    ),
    (
        f'"mesh.all_reduce"(%a) <{{mesh = @m, mesh_axes = array<i16: 1>, reduction = #mesh.partial<max>}}>'
        f" : ({T}) -> {T}",
        "all_reduce(%a) mesh_axes=[1] reduction=max : f32[4,8]",
    ),
    (f"mesh.broadcast %a on @m mesh_axes = [1] root = [%i] : ({T}, index) -> {T}", ""),
    (
        f'"mesh.broadcast"(%a, %i) <{{mesh = @m, mesh_axes = array<i16: 1>, root = array<i64: -9223372036854775808>}}>'
        f" : ({T}, index) -> {T}",
        "broadcast(%a, %i) mesh_axes=[1] root=[?] : f32[4,8]",
    ),
    # a constant number becomes part of the call
    (
        f"shard.broadcast %a on @m grid_axes = [1] root = [%c] : ({T}, index) -> {T}",
        "broadcast(%a) mesh_axes=[1] root=[1] : f32[4,8]",
    ),
    (
        f"shard.update_halo %a on @m split_axes = [[0]] halo_sizes = [1, %n] : {T}",
        "update_halo(%a, %n, %n) split_axes=[[0]] source_halo_sizes=[1,?] destination_halo_sizes=[1,?] : f32[4,8]",
    ),
    (
        f"mesh.update_halo %a into %b on @m split_axes = [[0]] source_halo_sizes = [1, 1]"
        f" destination_halo_sizes = [2, 1] : {T} -> tensor<5x8xf32>",
        "update_halo(%a, %b) split_axes=[[0]] source_halo_sizes=[1,1] destination_halo_sizes=[2,1] : f32[5,8]",
    ),
    (
        f"mesh.update_halo %a on @m split_axes = [[0]] halo_sizes = [1, 1] target_halo_sizes = [0, 0]"
        f" : {T} -> tensor<2x8xf32>",
        "update_halo(%a) split_axes=[[0]] source_halo_sizes=[1,1] destination_halo_sizes=[0,0] : f32[2,8]",
    ),
    ("mesh.mesh_shape @m axes = [1] : index", "mesh_shape() axes=[1] : index[]"),
    ("shard.grid_shape @m axes = [1] : index", "mesh_shape() axes=[1] : index[]"),
    ("mesh.process_linear_index on @m : index", "process_linear_index() : index[]"),
    ("shard.process_linear_index on @m : index", "process_linear_index() : index[]"),
    ("mesh.process_multi_index on @m axes = [0] : index", "process_multi_index() axes=[0] : index[]"),
    ("mesh.idx {axis = 1 : index} : index", "idx() axis=1 : index[]"),
    ("mesh.size {axis = 0 : index} : index", "size() axis=0 : index[]"),
    ("mesh.shard_shape 7 %s %c : index", "shard_shape() shape=[7] sharding=[[0]] device=1 : index[]"),
    ("shard.shard_shape dims = [7] sharding = %s device = [0, 1] : index", ""),
    ("mesh.shard_shape dims = [%n] sharding = %s device = %i : index", ""),
    (f"mesh.collective_permute %a on @m mesh_axes = [0] pairs = [[0, 1], [1, 0]] : {T} -> {T}", ""),
    (f"mesh.collective_permute %a on @m target = @m : {T} -> {T}", "collective_permute(%a) target=m : f32[4,8]"),
    (f"mesh.shift %a on @m mesh_axes = [0, 1] shift_axis = 1 offset = -2 rotate : {T} -> {T}", ""),
    (f"mesh.recv %a on @m mesh_axes = [0] : ({T}) -> {T}", "recv(%a) mesh_axes=[0] : f32[4,8]"),
    (f"tensor.cast %a : {T} to tensor<?x8xf32>", "cast(%a) : f32[?,8]"),
]
GENERIC = [
    f"mesh.gather %a on @m mesh_axes = [1] gather_axis = 1 root = [%i] : ({T}, index) -> {U}",
    f"mesh.all_to_all %a on @m mesh_axes = [1] split_axis = 1 concat_axis = 0 : {T} -> tensor<16x2xf32>",
    f"mesh.reduce %a on @m mesh_axes = [0, 1] reduction = <min> root = [0, 3] : ({T}) -> {T}",
    f"mesh.shift %a on @m mesh_axes = [0, 1] shift_axis = 1 offset = -2 rotate : {T} -> {T}",
    "mesh.mesh_shape @m axes = [1] : index",
]
# text of the body, error, words
REFUSED = [
    (
        f"%0 = mesh.all_gather %a on @m mesh_axes = [1] gather_axis = 1 : {T} -> tensor<4x5xf32>",
        InvalidProgram,
        "got 5",
    ),
    (f"%0 = mesh.all_gather %z on @m gather_axis = 1 : {T} -> {U}", InvalidGraph, "undefined value (got %z"),
    (
        f"%0 = mesh.all_gather %a on @m gather_axis = 1 : {U} -> {U}",
        InvalidGraph,
        "type of %a (got f32[4,32]; wanted f32[4,8]",
    ),
    (f"%0 = mesh.all_gather %a on @m gather_axis = 1 gather_axis = 0 : {T} -> {T}", ShardplanError, "key repeated"),
    (f"%0 = mesh.all_gather %a on @m gather : {T} -> {T}", ShardplanError, "syntax (got :; wanted '='"),
    (f"%0 = mesh.all_gather %a on @m gather_axis = 0 {{colour = 1}} : {T} -> {T}", InvalidProgram, "unknown attribute"),
    (f"%0 = mesh.all_gather %a on @m mesh_axes = [0] : {T} -> {T}", InvalidProgram, "missing attribute"),
    (
        "%0:2 = mesh.process_multi_index on @m axes = [0] : index, index",
        InvalidProgram,
        "number of results (got 2; wanted 1",
    ),
    (f"%0 = mesh.shard %a to <@m, [[0]]> : {T}", UnsupportedOp, "annotation between collectives"),
    ("%0 = mesh.shard_shape 8x? %s %c : index, index", ShardplanError, "shape of a tensor (got 8x?"),
    ("%0 = mesh.shard_shape dims = [7] sharding = %c device = [0, 1] : index", InvalidGraph, "sharding (got %c"),
    ("%0 = mesh.shard_shape dims = [7] sharding = %s device = [%i, 1] : index", InvalidGraph, "not a constant"),
    ("%0 = mesh.shard_shape dims = [7] sharding = %s device = [2, 1] : index", InvalidMesh, "coordinate out of range"),
    (f"%0 = math.exp %c : {T}", InvalidGraph, "not a tensor"),
    (f"%0 = mesh.all_reduce %c on @m : {T} -> {T}", InvalidGraph, "not a value of the program (got %c"),
    (f"%0 = tensor.cast %a : {T} to tensor<3x8xf32>", InvalidProgram, "dim 0 of the result (got 3; wanted 4"),
]
ENCODED = "tensor<2x4x8xf32, #mesh.shard<[[], [], [0]]>>"
PARTIAL = "tensor<2x4x8xf32, #mesh.shard<[[], [], [], [0]]>>"
WHOLE = "tensor<2x4x8xf32>"
# conformance 42, conformance 43, conformance 45, conformance 51: the RFC's forms, on sharded types
RFC = [
    (f"mesh.all_gather %x {{mesh_axis = [[], [], [0]]}} : {ENCODED} -> {WHOLE}", ENCODED, ["all_gather gather_axis=2"]),
    (f"mesh.local_split %x {{sharding = [[], [], [0]]}} : {WHOLE} -> {ENCODED}", WHOLE, ["all_slice slice_axis=2"]),
    (f"mesh.local_split %x : {WHOLE} -> {ENCODED}", WHOLE, ["all_slice slice_axis=2"]),
    (
        f'mesh.all_reduce %x {{reduction = "sum", mesh_axis = [0]}} : {PARTIAL} -> {WHOLE}',
        PARTIAL,
        ["all_reduce reduction=sum"],
    ),
    (
        f'mesh.reduce_scatter %x {{mesh_axis = [0], reduction = "sum", tensor_axis = 2 : i64}}'
        f" : {PARTIAL} -> {ENCODED}",
        PARTIAL,
        ["reduce_scatter reduction=sum scatter_axis=2"],
    ),
]
RFC_REFUSED = [
    (f"mesh.all_gather %x {{mesh_axis = [[], [0]]}} : {ENCODED} -> {WHOLE}", ENCODED, InvalidSharding, "tail"),
    (
        f"mesh.all_gather %x {{mesh_axis = [[], [], [0]]}} : {ENCODED} -> {ENCODED}",
        ENCODED,
        InvalidSharding,
        "sharding of the result",
    ),
    (
        f"mesh.local_split %x {{sharding = [[], [], [0]]}} : {ENCODED} -> {ENCODED}",
        ENCODED,
        InvalidSharding,
        "mesh axis",
    ),
    (f"mesh.all_reduce %x {{mesh_axis = [0]}} : {WHOLE} -> {WHOLE}", WHOLE, InvalidSharding, "partial"),
    (f"mesh.all_gather %x {{mesh_axis = 0}} : {ENCODED} -> {WHOLE}", ENCODED, InvalidSharding, "mesh axes (got 0"),
    (
        f'mesh.all_reduce %x {{mesh_axis = [0], reduction = "median"}} : {PARTIAL} -> {WHOLE}',
        PARTIAL,
        InvalidSharding,
        "reduction kind (got median",
    ),
    (f"mesh.local_split %x : {ENCODED} -> {WHOLE}", ENCODED, InvalidSharding, "sharding of the result"),
    (f"mesh.collective_permute %x : {ENCODED} -> {ENCODED}", ENCODED, InvalidSharding, "a result on another mesh"),
    (
        f"mesh.collective_permute %x {{mesh_axis = 0}} : {ENCODED} -> {ENCODED}",
        ENCODED,
        InvalidSharding,
        "mesh_axes and pairs",
    ),
]
# Operands, results or attributes that a parser may stumble over; each is read, or refused by design.
ODD = [
    f"tensor.cast : {T} to {T}",
    f"%0 = tensor.cast %a, %a : {T} to {T}",
    "arith.constant 1 : index",
    "mesh.sharding @m split_axes = [[0]] : !mesh.sharding",
    f"mesh.shard %a to <@m, [[0]]> : {T}",
    f"%0 = linalg.fill ins(%a, %a : {T}, {T}) outs(%a : {T}) -> {T}",
    f"%0 = linalg.fill outs(%a : {T}) -> {T}",
    f"tensor.empty() : {T}",
    f"%0 = mesh.annotate %a, %a {{sharding = [[0]]}} : {T} -> {T}",
    f"%0 = tensor.dim %a : {T}",
    f"%0 = arith.index_cast %a, %a : {T}",
    f"mesh.all_gather %a {{mesh_axis = [[], []]}} : {T} -> {T}",
    "mesh.mesh_shape @m : index, index",
    f"mesh.all_reduce %a on @m : {T} -> {T}",
    f"%0 = mesh.all_reduce on @m : {T} -> {T}",
    "%0 = mesh.shard_shape dims = 3 sharding = %a device = 0 : index",
    f"%0 = mesh.all_reduce %a on @m reduction = [1] : {T} -> {T}",
    f"%0 = mesh.all_reduce %a on @m {{shardplan.ids = 3}} : {T} -> {T}",
    f"%0 = mesh.update_halo %a on @m split_axes = 3 halo_sizes = 3 : {T}",
    "%0 = mesh.idx {axis = @m} : index",
    f"%0 = mesh.collective_permute %a on @m pairs = 3 : {T} -> {T}",
    f"%0 = mesh.send %a on @m mesh_axes=[0] destination=[1] {{shardplan.only = 3}} : ({T}) -> {T}",
    f"%0 = arith.negf %a {{shardplan.mesh = [3]}} : {T}",
    f"%0 = arith.negf %a {{shardplan.option = {{d0 = [true]}}}} : {T}",
    f"%0 = arith.negf %a {{sharding = [3]}} : {T}",
    f'%0 = "mesh.all_reduce"(%a, %a) {{mesh = 3}} : ({T}, {T}) -> {T}',
    f"%0 = mesh.all_reduce %a on @m : {T} -> index",
]
