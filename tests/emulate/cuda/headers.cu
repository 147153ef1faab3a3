// What needs the headers of the CUDA Core Compute Libraries: halves and matrices by their C++ names.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#define KERNEL extern "C" __global__ void

KERNEL half_pairs(const __half2 *a, const __half2 *b, __half2 *sums, int *all_greater) {
  int i = threadIdx.x;
  sums[i] = __hfma2(a[i], b[i], __hmax2(a[i], b[i]));
  all_greater[i] = __hbgt2(a[i], b[i]) + 2 * __hbne2(a[i], b[i]);
}

KERNEL matrices(const __half *a, const __half *b, float *c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> left;
  fragment<matrix_b, 16, 16, 16, __half, col_major> right;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.5f);
  for (int k = 0; k < 32; k += 16) {
    load_matrix_sync(left, a + k, 32);
    load_matrix_sync(right, b + k, 32);
    mma_sync(sum, left, right, sum);
  }
  for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2;
  store_matrix_sync(c, sum, 16, mem_row_major);
}
