// The single pass over rows that wait in shared memory: read once, with the next rows on their way meanwhile.
//
// One block for each multiprocessor. A warp brings rows, in chunks, into a ring of slots; GROUPS of WARPS warps take
// turns at them: the first walk over a row finds the largest logit and the sum below it, one thread weighs the row (as
// weigh.py does), the second walk writes the gradient and gives the slots back.
//
// Compiled for WIDTH, the bytes of a logit (2: HALF is 1 for float16, 0 for bfloat16), for the constants FAMILY, INNER
// and TAPER of weigh.py, and for MEAN and NONE, how the value is reduced.
typedef unsigned int u32;
typedef unsigned long long u64;
#define THREADS (32 * WARPS)  // of a group
#define PER (16 / WIDTH)
#define LINE 128  // bytes; rows are counted from the line that they begin in
#define BARRIERS 1024
#define OVERHEAD 2048
#define LOG2E 1.4426950408889634f
#define NOTHING (-3.4028234663852886e38f)
#define LOWEST (-1.7976931348623157e308)
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#define INLINE __device__ __forceinline__

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
#pragma unroll
  for (int d = 16; d; d /= 2) merge(m, s, __shfl_xor_sync(~0u, m, d), __shfl_xor_sync(~0u, s, d));
}

// The first 16 bytes of a chunk that a thread takes: a warp's are always those of whole lines.
INLINE int begin_at(int at, int first) { return at < first ? at + THREADS * 16 : at; }

INLINE void group_barrier(int group) { asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "n"(THREADS) : "memory"); }

INLINE void weigh(double m, double share, double a, double b, double c, double inner, double taper, double& value,
                  double& force) {
  const double small = exp(-fabs(m)), bend = log1pf((float)small);
  double log_p = (m < 0 ? m : 0) - bend, log_q = (m > 0 ? -m : 0) - bend;
  if (m != m) log_p = log_q = m;
  if (log_p < LOWEST) log_p = LOWEST;
  if (log_q < LOWEST) log_q = LOWEST;
  double log_w = c;
  if (FAMILY == 0) log_w += a * log_p + b * log_q;
  if (FAMILY == 1) log_w += b * exp(a * log_p + log_q);
  if (FAMILY == 2) log_w += b * exp(log_p) * (a + exp(log_q));
  const double odds = m > 0 ? small : 1.0;
  if (INNER) log_w += log(odds / (odds + inner * (1 + small)));
  if (TAPER) share *= odds * (double)(1.f / (float)(odds + taper * (1 + small)));
  force = share == 0 ? 0.0 : share * exp(log_w);
  value = -log_p;
}

extern "C" __global__ void __launch_bounds__(GROUPS * THREADS + 32)
rows(const char* logits, const long long* target, char* gradient, float* values, int N, int C, int stride,
     int gradient_stride, int ignore, int chunk, int slots, double a, double b, double c, double inner, double taper) {
  extern __shared__ __align__(128) char shared[];
  const u32 full = shared_address(shared), empty = full + 8 * slots;  // a barrier for each slot, and another
  int* counted = (int*)(shared + BARRIERS);
  char* room = shared + OVERHEAD;
  const int tid = threadIdx.x % THREADS, group = threadIdx.x / THREADS, warp = tid / 32, lane = tid % 32;
  float* book = (float*)(shared + BARRIERS + 16) + 68 * group;  // two numbers a warp; then top, up, down and any
  const int chunks = (C * WIDTH + LINE - WIDTH + chunk - 1) / chunk;
  if (threadIdx.x == 0) {
    for (int k = 0; k < slots; k++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * k));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * k), "r"(WARPS));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    *counted = 0;
  }
  __syncthreads();

  if (group == GROUPS) {  // the warp that brings rows
    if (lane > 0) return;
    int slot = 0;
    u32 use = 0;
    for (int row = blockIdx.x; row < N; row += gridDim.x) {
      const Row r(row, stride, C);
      const char* start = logits + r.begin;
      for (int k = 0; k < chunks; k++) {
        const int from = max(k * chunk, r.first), size = min((k + 1) * chunk, r.last) - from;
        if (use) wait(empty + 8 * slot, (use - 1) & 1);
        if (size > 0) {
          expect(full + 8 * slot, size);
          bring(shared_address(room + slot * chunk + from - k * chunk), start + from, size, full + 8 * slot);
        } else {
          arrive(full + 8 * slot);
        }
        if (++slot == slots) slot = 0, use++;
      }
    }
    return;
  }

  double share = 1;
  if (MEAN) {  // while the first rows come
    int own = 0;
    for (int i = threadIdx.x; i < N; i += GROUPS * THREADS) own += target[i] != ignore;
    own = __reduce_add_sync(~0u, own);
    if (lane == 0) atomicAdd(counted, own);
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * THREADS) : "memory");
    share = 1.0 / max(*counted, 1);
  }
  double total = 0;
  int turn = group, row = blockIdx.x + group * gridDim.x;
  long long y = row < N ? target[row] : 0;
  for (int next; row < N; row = next, turn += GROUPS) {
    next = row + GROUPS * gridDim.x;
    const long long next_y = next < N ? target[next] : 0;  // asked for a row ahead: memory takes its time
    const Row r(row, stride, C);
    const char* from = logits + r.begin;
    char* to = gradient + Row(row, gradient_stride, C).begin;
    const bool live = y != ignore, known = live && y >= 0 && y < C;
    const int mine = known ? r.shift + (int)y * WIDTH : -1;  // where the target is
    // of the numbers before and after whole 16 bytes, each has a thread of its own
    int edge = tid < PER ? r.first - 16 + tid * WIDTH : tid < 2 * PER ? r.last + (tid - PER) * WIDTH : -1;
    if (edge < r.shift || edge >= r.end) edge = -1;
    const float apart = edge >= 0 && edge != mine ? load_one(from + edge) : -INFINITY;
    const double own = tid == 0 && known ? (double)load_one(from + mine) : (double)NAN;
    float m = NOTHING, s = 0;
    const int first_slot = (int)((long long)turn * chunks % slots);
    u32 use = (u32)((long long)turn * chunks / slots);
    for (int k = 0, slot = first_slot; k < chunks; k++) {
      wait(full + 8 * slot, use & 1);
      const int stop = min((k + 1) * chunk, r.last);
      const char* here = room + (slot - k) * chunk;
#pragma unroll 2
      for (int at = begin_at(k * chunk + 16 * tid, r.first); at < stop; at += THREADS * 16) {
        float x[PER];
        unpack(*(const uint4*)(here + at), x);
        if ((u32)(mine - at) < 16u) {
#pragma unroll
          for (int i = 0; i < PER; i++)
            if (mine - at == i * WIDTH) x[i] = -INFINITY;
        }
        float t = m;
#pragma unroll
        for (int i = 0; i < PER; i++) t = fmaxf(t, x[i]);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < PER; i++) sum += below(x[i], t);
        s = s * power((m - t) * LOG2E) + sum;
        m = t;
      }
      if (++slot == slots) slot = 0, use++;
    }
    // not before: it had time to come
    merge(m, s, fmaxf(apart, NOTHING), power((apart - fmaxf(apart, NOTHING)) * LOG2E));
    merge_lanes(m, s);
    if (lane == 0) book[2 * warp] = m, book[2 * warp + 1] = s;
    group_barrier(group);
    if (warp == 0) {
      m = book[2 * (lane % WARPS)];
      s = lane < WARPS ? book[2 * lane + 1] : 0;
      merge_lanes(m, s);
      if (lane == 0) {
        const bool alone = m == NOTHING && s == s;  // no class to turn to; s is NaN where a logit is
        double value = 0, force = 0;
        if (live) weigh(alone ? INFINITY : own - m - log((double)s), share, a, b, c, inner, taper, value, force);
        if (alone) force = 0;
        value *= share;
        total += value;
        if (NONE) values[row] = (float)value;
        book[64] = m, book[65] = (float)(0.5 * force) / s, book[66] = (float)(-0.5 * force), book[67] = force != 0;
      }
    }
    group_barrier(group);
    const float top = book[64], up = book[65], down = book[66];
    const bool any = book[67] != 0;
    for (int k = 0, slot = first_slot; k < chunks; k++) {
      const int stop = min((k + 1) * chunk, r.last);
      const char* here = room + (slot - k) * chunk;
#pragma unroll 2
      for (int at = begin_at(k * chunk + 16 * tid, r.first); at < stop; at += THREADS * 16) {
        float x[PER];
        unpack(*(const uint4*)(here + at), x);
#pragma unroll
        for (int i = 0; i < PER; i++) x[i] = any ? below(x[i], top) * up : 0.f;
        if ((u32)(mine - at) < 16u) {
#pragma unroll
          for (int i = 0; i < PER; i++)
            if (mine - at == i * WIDTH) x[i] = down;
        }
        *(uint4*)(to + at) = pack(x);
      }
      __syncwarp();
      if (lane == 0) arrive(empty + 8 * slot);
      if (++slot == slots) slot = 0;
    }
    y = next_y;
    if (edge >= 0) store_one(to + edge, edge == mine ? down : any ? power((apart - top) * LOG2E) * up : 0.f);
  }
  if (!NONE && tid == 0) values[blockIdx.x * GROUPS + group] = (float)total;
}
