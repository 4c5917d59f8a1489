"""Verdicts on printed blocks: read, run on a figure, or refused by a row of the page on the dialect."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.dialect_differential import reshards
from benchmarks.dialect_documents import DECISIONS, judge_documents, parse_figure

PAGE = Path(__file__).parents[1] / "docs" / "mesh-dialect.md"
PAGE_OF_BLOCKS = """
    ```
    mesh.mesh @m(shape = 2x2)
    ...
    %1 = mesh.all_gather %0 on @m mesh_axes = [1] gather_axis = 1
      : tensor<1x1xi8> -> tensor<1x2xi8>
    ```
    ```
                     +---+---+
    device (0, 0) -> | 1 | 2 | <- device (0, 1)
                     +---+---+
    device (1, 0) -> | 3 | 4 | <- device (1, 1)
                     +---+---+
    ```
    ```
    +------+
    | 1  2 | <- devices (0, 0) and (0, 1)
    +------+
    | 3  4 | <- devices (1, 0) and (1, 1)
    +------+
    ```
    ```
    func.func @twice(%a : tensor<4xf32>) -> () {
      %0 = mesh.shard %a to <@m, [[0]]> : tensor<4xf32>
      %1 = mesh.shard %0 to <@m, [[1]]> : tensor<4xf32>
      ...
    }
    ```
    ```
    %1 = mesh.shift on @m mesh_axes = [1] shift_axis = 1 offset = 1 : tensor<2xi8> -> tensor<2xi8>
    ```
    ```
    %1 = mesh.all_gather %0 on @m mesh_axes = [7] gather_axis = 0 : tensor<2xi8> -> tensor<4xi8>
    ```
"""


def verdicts(folder: Path, text: str) -> list[str]:
    path = folder / "page.td"
    path.write_text(text)
    ((_, rows),) = judge_documents([path])["documents"].items()
    return [row["verdict"] for row in rows]


def test_blocks_are_read_run_and_refused(tmp_path: Path) -> None:
    wanted = ["read", "figure of data", "gives what the document says"]
    wanted += ["refused by decision", "refused by decision", "refused"]
    assert verdicts(tmp_path, PAGE_OF_BLOCKS) == wanted
    wrong = PAGE_OF_BLOCKS.replace("| 3  4 |", "| 4  3 |")
    assert verdicts(tmp_path, wrong)[2] == "gives something else"


def test_a_figure_shows_the_tensor_of_every_device() -> None:
    figure = "+----+----+----+  | along\n| 1 2 | 3 4 | 5 6 |".replace("----", "-----")
    assert {place: each.tolist() for place, each in parse_figure(f"{figure}\n+--", 1).items()} == {
        (0,): [[1, 2]],
        (1,): [[3, 4]],
        (2,): [[5, 6]],
    }


def test_files_of_mlir_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "tests.mlir"
    path.write_text(
        "mesh.mesh @m(shape = 3)\nfunc.func @f(%a: index) -> index { return %a : index // a remark\n}\n"
        "// -----\nmesh.mesh @m(shape = 3) func.func @f(%a: tensor<4xf32>) {\n // expected-error@+1 {{x}}\n"
        " %0 = mesh.all_gather %a on @m mesh_axes = [1] gather_axis = 0 : tensor<4xf32> -> tensor<?xf32> return }\n"
    )
    ((_, rows),) = judge_documents([path])["documents"].items()
    assert [row["verdict"] for row in rows] == ["refused by decision", "refused as it says"]


@pytest.mark.parametrize("words", sorted(set(DECISIONS.values())))
def test_every_decision_is_a_row_of_the_page(words: str) -> None:
    assert words in PAGE.read_text()


def test_reshardings_are_counted_at_their_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.dialect_differential.RESHARDS", range(20))
    counted = reshards()
    assert counted["bytes: least bytes"] == counted["tried"] == 20
    assert counted["bytes: the same, from sources that are not partial"] == counted["from whole values"]
