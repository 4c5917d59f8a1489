// A two-layer perceptron in the mesh dialect of mlir-opt 19: the first weight is split by columns, the result is whole.
mesh.mesh @mesh0(shape = 2)
func.func @mlp(%x: tensor<8x16xf32>, %w1: tensor<16x32xf32>, %w2: tensor<32x16xf32>) -> tensor<8x16xf32> {
  %w1s = mesh.shard %w1 to <@mesh0, [[], [0]]> : tensor<16x32xf32>
  %z = arith.constant dense<0.0> : tensor<8x32xf32>
  %h = linalg.matmul ins(%x, %w1s : tensor<8x16xf32>, tensor<16x32xf32>) outs(%z : tensor<8x32xf32>) -> tensor<8x32xf32>
  %z2 = arith.constant dense<0.0> : tensor<8x16xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<8x32xf32>, tensor<32x16xf32>) outs(%z2 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %ys = mesh.shard %y to <@mesh0, [[], []]> annotate_for_users : tensor<8x16xf32>
  return %ys : tensor<8x16xf32>
}
