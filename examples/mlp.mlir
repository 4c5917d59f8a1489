mesh.mesh @mesh0(shape = 2)
func.func @mlp(%x: tensor<8x16xf32>, %w1: tensor<16x32xf32>, %w2: tensor<32x16xf32>) -> tensor<8x16xf32> {
  %s = mesh.sharding @mesh0 split_axes = [[], [0]] : !mesh.sharding
  %w1s = mesh.shard %w1 to %s : tensor<16x32xf32>
  %z = arith.constant dense<0.0> : tensor<8x32xf32>
  %h = linalg.matmul ins(%x, %w1s : tensor<8x16xf32>, tensor<16x32xf32>) outs(%z : tensor<8x32xf32>) -> tensor<8x32xf32>
  %z2 = arith.constant dense<0.0> : tensor<8x16xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<8x32xf32>, tensor<32x16xf32>) outs(%z2 : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}
