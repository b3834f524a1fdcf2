// The single pass over rows that come through shared memory: read once, with the next row on its way meanwhile.
//
// One block for each multiprocessor; of a long row a CLUSTER of blocks has a part each. A warp brings the part, a slot at
// a time. The others take it out of the slots into registers, finding the largest logit and the sum below it as they go;
// one thread weighs the row (as weigh.py does), after an exchange with the other blocks; and the gradient is written
// from the registers, while the next row fills the slots.
//
// Compiled for WIDTH, the bytes of a logit (2: HALF is 1 for float16, 0 for bfloat16), for parts of STEPS slots (so many
// are there: with more, reading runs ahead of writing, and memory does better with both at a time), for the constants
// FAMILY, INNER and TAPER of weigh.py, and for MEAN and NONE, how the value is reduced. After weigh.cu.
typedef unsigned int u32;
typedef unsigned long long u64;
#define THREADS (32 * WARPS)  // that work on a row
#define PER (16 / WIDTH)
#define SLOT (16 * THREADS)
#define PART (STEPS * SLOT)
#define LINE 128  // bytes; rows are counted from the line that they begin in
#define OVERHEAD 2048
#define NEVER (WIDTH == 4 ? 0xff800000u : HALF ? 0xfc00fc00u : 0xff80ff80u)  // -inf, as often as it goes into 32 bits
#define LOG2E 1.4426950408889634f
#define NOTHING (-3.4028234663852886e38f)

INLINE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

INLINE void expect(u32 bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

INLINE void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }

INLINE void wait(u32 bar, u32 parity) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(bar), "r"(parity) : "memory");
}

INLINE void bring(u32 to, const void* from, int bytes, u32 bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

INLINE float power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

INLINE float load_one(const char* at) {
#if WIDTH == 4
  return *(const float*)at;
#elif HALF == 0
  return __uint_as_float((u32) * (const unsigned short*)at << 16);
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(*(const unsigned short*)at));
  return f;
#endif
}

INLINE void unpack(uint4 v, float* x) {
#if WIDTH == 4
  x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y), x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
#else
  u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if HALF == 0
    x[2 * i] = __uint_as_float(w[i] << 16), x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
#else
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(x[2 * i]), "=f"(x[2 * i + 1]) : "r"(w[i]));
#endif
  }
#endif
}

INLINE uint4 pack(const float* x) {
  uint4 v;
#if WIDTH == 4
  v.x = __float_as_uint(x[0]), v.y = __float_as_uint(x[1]), v.z = __float_as_uint(x[2]), v.w = __float_as_uint(x[3]);
#else
  u32 w[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if HALF == 0
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
#endif
  }
  v.x = w[0], v.y = w[1], v.z = w[2], v.w = w[3];
#endif
  return v;
}

INLINE void store_one(char* to, float x) {
#if WIDTH == 4
  *(float*)to = x;
#else
  float two[8] = {x, x, x, x, x, x, x, x};
  *(unsigned short*)to = (unsigned short)pack(two).x;
#endif
}

// -inf in the place of a logit that has been brought, before another is
INLINE void hide(char* at) {
  store_one(at, -INFINITY);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Where a row is, in bytes: the line it begins in, how much later it does and where it ends, both from there, and what
// lies in whole 16 bytes, from first to last.
struct Row {
  u64 begin;
  int shift, end, first, last;
  INLINE Row(int row, int stride, int C) {
    const u64 at = (u64)row * stride * WIDTH;
    begin = at / LINE * LINE;
    shift = at % LINE;
    end = shift + C * WIDTH;
    first = (shift + 15) / 16 * 16;
    last = end / 16 * 16;
  }
};

// exp(x - top); for half precision by one instruction, as in language.py
INLINE float below(float x, float top) {
  return power(WIDTH == 4 ? (x - top) * LOG2E : fmaf(x, LOG2E, -fmaxf(top * LOG2E, NOTHING)));
}

INLINE void merge(float& m, float& s, float m2, float s2) {
  const float t = fmaxf(m, m2);
  s = s * power((m - t) * LOG2E) + s2 * power((m2 - t) * LOG2E);
  m = t;
}

INLINE void merge_lanes(float& m, float& s) {
  const int bits = __float_as_int(m), order = bits < 0 ? bits ^ 0x7fffffff : bits;  // as numbers go, so do these
  const int most = __reduce_max_sync(~0u, order);
  const float t = __int_as_float(most < 0 ? most ^ 0x7fffffff : most);
  s *= power((m - t) * LOG2E);
  m = t;
#pragma unroll
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
}

INLINE void together() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// What this block has found of a row goes to all blocks of its cluster, and theirs to this one.
INLINE void exchange(float& m, float& s, float2* found, u32 met, u32 parity, int lane, u32 rank) {
  if (lane == 0) expect(met, 8 * CLUSTER);
  if (lane < CLUSTER) {
    u32 to, bar;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(found + rank)), "r"(lane));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(met), "r"(lane));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                 ::"r"(to), "f"(m), "f"(s), "r"(bar) : "memory");
  }
  wait(met, parity);
  m = found[lane % CLUSTER].x, s = lane < CLUSTER ? found[lane].y : 0;
  merge_lanes(m, s);
}

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(THREADS + 32)
rows(const __grid_constant__ Arguments of) {
  const char* logits = of.logits;
  const long long* target = of.target;
  const int N = of.N, C = of.C, ignore = of.ignore, tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  const int rank = blockIdx.x % CLUSTER, apace = gridDim.x / CLUSTER, base = rank * PART;
  extern __shared__ __align__(128) char shared[];
  const u32 full = shared_address(shared), empty = full + 8 * STEPS, met = empty + 8 * STEPS;  // barriers
  float* book = (float*)(shared + OVERHEAD / 2);  // two numbers a warp; then top, up, down and any
  int* counted = (int*)(book + 2 * WARPS + 4);
  float2* found = (float2*)(book + 2 * WARPS + 8);  // by the blocks of a cluster, for two rows
  char* room = shared + OVERHEAD;
  if (tid < STEPS) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * tid));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * tid), "n"(WARPS));
    if (tid < 2) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(met + 8 * tid));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    *counted = 0;
  }
  __syncthreads();
  if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");  // for the kernel before

  u32 turn = 0;  // counts rows
  if (warp == WARPS) {  // brings them
    if (lane > 0) return;
    for (int row = blockIdx.x / CLUSTER; row < N; row += apace, turn++) {
      const Row r(row, of.stride, C);
#pragma unroll
      for (int k = 0; k < STEPS; k++) {
        const int from = max(base + k * SLOT, r.first), size = min(base + (k + 1) * SLOT, r.last) - from;
        wait(empty + 8 * k, ~turn & 1);  // which is over at once for the first row
        expect(full + 8 * k, max(size, 0));
        if (size > 0) bring(shared_address(room + from - base), logits + r.begin + from, size, full + 8 * k);
      }
    }
    return;
  }

  double share = 1, total = 0;
  if (MEAN) {  // while the first rows come
    int own = 0;
    for (int i = tid; i < N; i += THREADS) own += target[i] != ignore;
    own = __reduce_add_sync(~0u, own);
    if (lane == 0) atomicAdd(counted, own);
    together();
    share = 1.0 / max(*counted, 1);
  }
  int row = blockIdx.x / CLUSTER;
  long long y = row < N ? target[row] : 0;
  for (int next; row < N; row = next, turn++) {
    next = row + apace;
    const long long next_y = next < N ? target[next] : 0;  // asked for a row ahead: memory takes its time
    const Row r(row, of.stride, C);
    const char* from = logits + r.begin;
    char* to = of.gradient + Row(row, of.gradient_stride, C).begin;
    const bool live = y != ignore, known = live && y >= 0 && y < C;
    const int mine = known ? r.shift + (int)y * WIDTH : -1;  // where the target is
    // of the numbers before and after whole 16 bytes, each has a thread of its own
    int edge = tid < PER ? r.first - 16 + tid * WIDTH : tid < 2 * PER ? r.last + (tid - PER) * WIDTH : -1;
    if (rank > 0 || edge < r.shift || edge >= r.end) edge = -1;
    const float apart = edge >= 0 && edge != mine ? load_one(from + edge) : -INFINITY;
    const double own = tid == 0 && known ? (double)load_one(from + mine) : (double)NAN;
    // at which step this thread has the target, if it has
    const int here = mine - base, mine_at = here >= 0 && here < PART && here / 16 % THREADS == tid ? here / SLOT : -1;
    const int left = r.last - base - 16 * tid;
    // only the first step of a row may begin before it; of a row in one part, only the last two end after it
    auto inside = [&](int k) {
      return ((CLUSTER == 1 && k < STEPS - 2) || k * SLOT < left) && (k > 0 || base + 16 * tid >= r.first);
    };
    float m = NOTHING, s = 0;
    uint4 kept[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
      wait(full + 8 * k, turn & 1);
      if (k == mine_at) hide(room + here);
      kept[k] = inside(k) ? *(const uint4*)(room + k * SLOT + 16 * tid) : make_uint4(NEVER, NEVER, NEVER, NEVER);
      __syncwarp();
      if (lane == 0) arrive(empty + 8 * k);
      float x[PER], sum = 0, t = m;
      unpack(kept[k], x);
#pragma unroll
      for (int i = 0; i < PER; i++) t = fmaxf(t, x[i]);
#pragma unroll
      for (int i = 0; i < PER; i++) sum += below(x[i], t);
      s = s * power((m - t) * LOG2E) + sum;
      m = t;
    }
    // not before: it had time to come
    merge(m, s, fmaxf(apart, NOTHING), power((apart - fmaxf(apart, NOTHING)) * LOG2E));
    merge_lanes(m, s);
    if (lane == 0) book[2 * warp] = m, book[2 * warp + 1] = s;
    together();
    if (warp == 0) {
      m = book[2 * (lane % WARPS)];
      s = lane < WARPS ? book[2 * lane + 1] : 0;
      merge_lanes(m, s);
      const int which = turn & 1;  // a block may be ahead of another by a row
      if (CLUSTER > 1) exchange(m, s, found + CLUSTER * which, met + 8 * which, turn / 2 & 1, lane, rank);
      if (lane == 0) {
        const bool alone = m == NOTHING && s == s;  // no class to turn to; s is NaN where a logit is
        double value = 0, force = 0;
        if (live) weigh(alone ? INFINITY : own - m - logarithm(s), share, of, value, force);
        if (alone) force = 0;
        value *= share;
        total += value;
        if (NONE && rank == 0) of.values[row] = (float)value;
        float* result = book + 2 * WARPS;
        result[0] = m, result[1] = (float)(0.5 * force) / s, result[2] = (float)(-0.5 * force), result[3] = force != 0;
      }
    }
    together();
    const float top = book[2 * WARPS], up = book[2 * WARPS + 1], down = book[2 * WARPS + 2];
    const bool any = book[2 * WARPS + 3] != 0;
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
      float x[PER];
      unpack(kept[k], x);
#pragma unroll
      for (int i = 0; i < PER; i++) x[i] = any ? below(x[i], top) * up : 0.f;
      if (inside(k)) *(uint4*)(to + base + k * SLOT + 16 * tid) = pack(x);
    }
    if (edge >= 0) store_one(to + edge, edge == mine ? down : any ? power((apart - top) * LOG2E) * up : 0.f);
    // after what the same thread has put there
    if (mine_at >= 0 && mine >= r.first && mine < r.last) store_one(to + mine, down);
    y = next_y;
  }
  asm volatile("griddepcontrol.launch_dependents;");
  if (!NONE && tid == 0 && rank == 0) of.values[blockIdx.x / CLUSTER] = (float)total;
}
