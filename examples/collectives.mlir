// A sum over the devices of an axis, and a sum over none, which folds. `decompose-all-reduce` turns the first one into
// a reduce_scatter and an all_gather behind the tanh, which is then computed on parts.
mesh.mesh @mesh(shape = 2x4)
func.func @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %sum = mesh.all_reduce %x on @mesh mesh_axes = [1] : tensor<8x16xf32> -> tensor<8x16xf32>
  %same = mesh.all_reduce %sum on @mesh mesh_axes = [] : tensor<8x16xf32> -> tensor<8x16xf32>
  %y = tosa.tanh %same : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}
