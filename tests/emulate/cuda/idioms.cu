// Idioms of CUDA C++ as they are written, without headers beyond those that nvcc brings in by itself.
#include <cstdio>

#define KERNEL extern "C" __global__ void

KERNEL saxpy(int n, float a, const float *x, float *y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

KERNEL block_sums(const int *x, int *sums, int *total) {
  __shared__ int partial[32];
  int value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    if (threadIdx.x == 0) {
      sums[blockIdx.x] = value;
      atomicAdd(total, value);
    }
  }
}

KERNEL transpose(const float *in, float *out, int rows, int columns) {
  __shared__ float tile[16][17];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
  __syncthreads();
  row = blockIdx.x * 16 + threadIdx.y;
  column = blockIdx.y * 16 + threadIdx.x;
  if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

KERNEL half_pairs(const unsigned *a, const unsigned *b, unsigned *products, unsigned *greater) {
  int i = threadIdx.x;
  asm("{ fma.rn.f16x2 %0, %1, %2, %1; }" : "=r"(products[i]) : "r"(a[i]), "r"(b[i]));
  asm("{ set.gt.u32.f16x2 %0, %1, %2; }" : "=r"(greater[i]) : "r"(a[i]), "r"(b[i]));
}

KERNEL float_max(const float *x, float *most) {
  int *place = (int *)most;
  float mine = x[blockIdx.x * blockDim.x + threadIdx.x];
  int seen = *(volatile int *)place;
  while (__int_as_float(seen) < mine) {
    int before = atomicCAS(place, seen, __float_as_int(mine));
    if (before == seen) break;
    seen = before;
  }
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

KERNEL recursion(unsigned *out) { out[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x / 3); }

typedef int (*Operation)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ __noinline__ int minus(int a, int b) { return a - b; }
__device__ Operation operations[] = {plus, times, minus};
__constant__ int factors[4] = {3, 5, 7, 11};

KERNEL function_pointers(int *out) { out[threadIdx.x] = operations[threadIdx.x % 3](threadIdx.x, factors[threadIdx.x & 3]); }

KERNEL print(int n, const char *word, double x) {
  if (threadIdx.x < n) printf("%s %d of %d: %.3f %5x|%-4d|%c%%\n", word, threadIdx.x, n, x * threadIdx.x, 255, 7, 'a' + threadIdx.x);
}

KERNEL inclusive_scan(const unsigned *in, unsigned *out) {
  extern __shared__ unsigned buffer[];
  unsigned *from = buffer, *to = buffer + blockDim.x;
  from[threadIdx.x] = in[threadIdx.x];
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    to[threadIdx.x] = from[threadIdx.x] + (threadIdx.x >= step ? from[threadIdx.x - step] : 0);
    unsigned *swap = from;
    from = to;
    to = swap;
  }
  out[threadIdx.x] = from[threadIdx.x];
}

// a: 16 x 8 by rows, b: 8 x 8 by columns, c: 16 x 8 by rows
KERNEL matrix_product(const unsigned *a, const unsigned *b, float *c) {
  int group = threadIdx.x / 4, within = threadIdx.x % 4;
  float d[4] = {1, 1, 1, 1};
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[group * 4 + within]), "r"(a[(group + 8) * 4 + within]), "r"(b[group * 4 + within]));
  for (int i = 0; i < 4; i++) c[(group + i / 2 * 8) * 8 + within * 2 + i % 2] = d[i];
}

#if __CUDA_ARCH__ >= 800
KERNEL copied_ahead(const int *in, int *out, int tiles) {
  __shared__ alignas(16) int tile[2][256];
  auto fetch = [&](int number) {
    unsigned place = (unsigned)__cvta_generic_to_shared(&tile[number % 2][threadIdx.x * 4]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(in + number * 256 + threadIdx.x * 4) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  int sum[4] = {0, 0, 0, 0};
  fetch(0);
  for (int number = 0; number < tiles; number++) {
    if (number + 1 < tiles) {
      fetch(number + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    for (int i = 0; i < 4; i++) sum[i] += tile[number % 2][255 - (threadIdx.x * 4 + i)];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = sum[i];
}

KERNEL warp_sums(const unsigned *x, unsigned *sums, int *least) {
  sums[threadIdx.x] = __reduce_add_sync(0xffffffff, x[threadIdx.x]);
  least[threadIdx.x] = __reduce_min_sync(__match_any_sync(0xffffffff, threadIdx.x % 4), (int)x[threadIdx.x]);
}
#endif

struct Shape {
  short kind;
  double sides[3];
  unsigned char tag;
};

__device__ __noinline__ double volume(Shape shape) {
  switch (shape.kind) {
    case 0: return shape.sides[0] * shape.sides[1] * shape.sides[2];
    case 1: return shape.sides[0] * shape.sides[0] * shape.sides[1];
    case 2: return shape.sides[2] - shape.sides[1];
    case 3: return shape.sides[0] / shape.sides[1];
    case 4: return sqrt(shape.sides[2]);
    case 5: return fma(shape.sides[0], shape.sides[1], shape.sides[2]);
    case 6: return shape.tag;
    default: return -1;
  }
}

KERNEL structs(Shape base, double *out) {
  Shape mine = base;
  mine.kind = threadIdx.x % 9;
  mine.sides[threadIdx.x % 3] += threadIdx.x;
  out[threadIdx.x] = volume(mine);
}

KERNEL elementary(const float *x, float *sines, float *exponentials, const double *y, double *logarithms, double *powers) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  sines[i] = sinf(x[i]);
  exponentials[i] = expf(x[i] * 8e-5f);
  logarithms[i] = log(y[i]);
  powers[i] = pow(y[i], 1.5);
}

KERNEL bits(const unsigned *x, unsigned *out) {
  unsigned v = x[threadIdx.x];
  unsigned long long w = (unsigned long long)v * 0x9E3779B97F4A7C15ull;
  unsigned found = __popc(v) + __clz(v) + __ffs(v) + __popcll(w) + __clzll(w | 1);
  found ^= __brev(v) ^ __byte_perm(v, (unsigned)w, 0x2471) ^ __funnelshift_l(v, (unsigned)w, v & 31);
  found += (unsigned)(w / (v | 1)) + (unsigned)(w % 1000003) + __umulhi(v, 0xDEADBEEF) + (unsigned)__mulhi((int)v, -77);
  unsigned dotted;  // cicc -O0 cannot expand the intrinsic
  asm("dp4a.u32.u32 %0, %1, %2, 5;" : "=r"(dotted) : "r"(v), "r"((unsigned)w));
  out[threadIdx.x] = found + dotted;
}

__device__ unsigned arrived;

KERNEL last_block(const unsigned *x, unsigned *partial, unsigned *out) {
  __shared__ bool last;
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) {
    *(volatile unsigned *)&partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(&arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();
    unsigned all = 0;
    for (unsigned i = 0; i < gridDim.x; i++) all += ((volatile unsigned *)partial)[i];
    *out = all;
    arrived = 0;
  }
}

struct Animal {
  __device__ virtual int legs(int) = 0;
  __device__ virtual ~Animal() {}
};
struct Bird : Animal {
  __device__ int legs(int n) override { return 2 * n; }
};
struct Spider : Animal {
  int lost;
  __device__ explicit Spider(int lost) : lost(lost) {}
  __device__ int legs(int n) override { return 8 * n - lost; }
};

KERNEL virtual_calls(int *out) {
  int i = threadIdx.x;
  Animal *animal = i % 2 ? (Animal *)new Bird : (Animal *)new Spider(i);
  out[i] = animal->legs(i);
  delete animal;
}
