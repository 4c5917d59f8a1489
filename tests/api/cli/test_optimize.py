"""`optimize` on the programs of several devices, which must stay coherent."""

from __future__ import annotations

import json
from pathlib import Path

from tests.testing.command_line import refused, shardplan

TEXT = """mesh.mesh @m(shape = 2)
func.func @f(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  %0 = mesh.all_reduce %x on @m mesh_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %1 = mesh.all_gather %x on @m mesh_axes = [0] gather_axis = 0 : tensor<4xf32> -> tensor<8xf32>
  return %0, %1 : tensor<4xf32>, tensor<8xf32>
}
"""


def written(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"device{number}.mlir" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


# conformance 11: a collective that a pass removes on one device vanishes on all
def test_programs_of_several_devices_are_optimised_together(tmp_path: Path) -> None:
    first, second = written(tmp_path, TEXT, TEXT.replace("%x", "%mine"))
    shown = shardplan("optimize", first, second).out
    assert shown.count("mesh.all_reduce") == 2
    assert "// -----" in shown
    assert len(json.loads(shardplan("optimize", first, second, "--json").out)["programs"]) == 2
    assert "program" in json.loads(shardplan("optimize", first, "--json").out)


# conformance 11
def test_programs_that_reach_different_collectives_are_refused(tmp_path: Path) -> None:
    lines = TEXT.splitlines()
    swapped = "\n".join([*lines[:2], lines[3], lines[2], *lines[4:]])
    fewer = TEXT.replace(lines[3] + "\n", "").replace(", %1", "").replace(", tensor<8xf32>", "")
    for other in (swapped, fewer, TEXT.replace("gather_axis = 0", "gather_axis = 0").replace("[0] : ", "[] : ")):
        paths = written(tmp_path, TEXT, other)
        refused(shardplan("optimize", *paths), "devices reach different collectives (got device 1:")
    # A gather that nothing reads on one device would vanish there alone.
    unread = TEXT.replace("return %0, %1", "return %0").replace("tensor<4xf32>, tensor<8xf32>", "tensor<4xf32>")
    refused(shardplan("optimize", *written(tmp_path, TEXT, unread)), "devices reach different collectives")
