"""StableHLO texts that several tests use."""

from __future__ import annotations

F32 = "tensor<4x8xf32>"
SHARDY = f"""
sdy.mesh @mesh = <["dp"=2, "tp"=4]>
func.func @main(%a: {F32} {{sdy.sharding = #sdy.sharding<@mesh, [{{"dp"}}, {{?}}]>}})
    -> ({F32} {{sdy.sharding = #sdy.sharding<@mesh, [{{"tp", "dp"}}, {{}}]>}}) {{
  %0 = sdy.sharding_constraint %a <@mesh, [{{}}, {{"tp"}}]> : {F32}
  %1 = stablehlo.tanh %0 : {F32}
  %2 = sdy.sharding_constraint %1 <@mesh, [{{"dp"}}, {{"tp"}}]> : {F32}
  return %2 : {F32}
}}
"""


def main_of(body: str, argument: str = F32, result: str = F32) -> str:
    return f"func.func @main(%a: {argument}) -> {result} {{\n{body}\n}}"
