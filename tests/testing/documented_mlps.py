"""The MLPs of the mesh dialect's documents, with the annotations given there."""

from __future__ import annotations

from planner.ir.indexing import Option
from tests.testing.annotated_notation import mlp, of, used

X_1D, OUT_1D = of("i0", "[[],[],[0]]"), used("n3", "[[],[],[0]]")


BY_VALUES_1D = mlp(X_1D, of("n3", "[[],[],[]] sum[0]"), OUT_1D)


X_2D, OUT_2D = of("i0", "[[],[],[0,1,2]]"), used("n3", "[[],[],[0,1,2]]")


BY_VALUES_2D = mlp(X_2D, of("n0", "[[],[],[1,2]] sum[0]"), of("n3", "[[],[],[0]] sum[1,2]"), OUT_2D)


BY_OPTIONS_2D = mlp(X_2D, OUT_2D)


OPTIONS_2D: dict[str, Option] = {"n0": ((), (), (0,), (1, 2)), "n3": ((), (), (1, 2), (0,))}


COMPLETED_1D = [
    "%i0 to [[],[],[0]]",
    "%i0 to [[],[],[]] for users",
    "%i1 to [[],[0]] for users",
    "%n0 = matmul(%i0, %i1)",
    "%n0 to [[],[],[0]]",
    "%n1 = full()",
    "%n1 to [[],[],[]]",
    "%n0 to [[],[],[0]] for users",
    "%n1 to [[],[],[0]] for users",
    "%n2 = maximum(%n0, %n1)",
    "%n2 to [[],[],[0]]",
    "%n2 to [[],[],[0]] for users",
    "%i2 to [[0],[]] for users",
    "%n3 = matmul(%n2, %i2)",
    "%n3 to [[],[],[]] partial=sum[0]",
    "%n3 to [[],[],[0]] for users",
]
