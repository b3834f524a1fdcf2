// The criterion for rows of float32 on a CPU, weighed as on a GPU. See cpu.py.
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

template <class To, class From>
static inline To same_bits(From x) {
  To y;
  static_assert(sizeof x == sizeof y, "bits are neither lost nor made up");
  memcpy(&y, &x, sizeof y);
  return y;
}

// What weigh.cu takes for granted. The taper comes after normalisation, so it is not for `weigh`.
#define __device__ static
#define __forceinline__ inline
#define __int_as_float same_bits<float, int>
#define __float_as_int same_bits<int, float>
#define __longlong_as_double same_bits<double, long long>
#define __double_as_longlong same_bits<long long, double>
#define FAMILY family
#define INNER (of.inner != 0)
#define TAPER false
static thread_local int family;
#include "weigh.cu"

// 2^x for x <= 0 to the last digit or two, 0 where numbers end; 1 above, where only a label's own x may be.
static inline float power_of_2(float x) {
  const float t = x < -150.0f ? -150.0f : x > 0.0f ? 0.0f : x, whole = nearbyintf(t), r = t - whole;
  float p = 1.5403530e-4f;
  p = p * r + 1.3333558e-3f;
  p = p * r + 9.6181291e-3f;
  p = p * r + 5.5504109e-2f;
  p = p * r + 2.4022651e-1f;
  p = p * r + 6.9314718e-1f;
  p = p * r + 1.0f;
  return p * same_bits<float, int>(((int)(whole > -127.0f ? whole : -127.0f) + 127) << 23);
}

// exp(z_j - top) for every class j but y, which gets minus their sum; top is the largest of those z_j. Returns the sum.
static double exponentials(const float* z, float* pull, int64_t c, int64_t y, float& top) {
  const int64_t block = 512;  // so many are added up in float32
  float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < y; j++) largest = z[j] > largest ? z[j] : largest;
#pragma omp simd reduction(max : largest)
  for (int64_t j = y + 1; j < c; j++) largest = z[j] > largest ? z[j] : largest;
  double sum = 0;
  for (int64_t from = 0; from < c; from += block) {
    const int64_t to = from + block < c ? from + block : c;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t j = from; j < to; j++) {
      pull[j] = power_of_2((z[j] - largest) * 1.44269504f);
      part += j == y ? 0.0f : pull[j];
    }
    sum += part;
  }
  pull[y] = (float)-sum;
  top = largest;
  return sum;
}

static void scale(float* row, int64_t c, double by) {
  const float factor = (float)by;
  for (int64_t j = 0; j < c; j++) row[j] *= factor;
}

// The gradient of every row, the mean of -log p in `value`, and room for 3 N numbers in `room`. Not 0 where a label does
// not simply count once: it is ignored or unknown, has no other class to turn to, something is not finite, or all weights
// of a batch are next to 0. Sums are taken in a fixed order, whatever the number of threads.
extern "C" int weigh_rows(const float* logits, const int64_t* target, float* gradient, double* room, double* value,
                          int64_t n, int64_t c, int threads, int form, int batch, double a, double b, double constant,
                          double inner, double taper) {
  const Arguments of = {0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, constant, inner, taper};
  double *w = room, *surprise = room + n, *size = room + 2 * n;
  int odd = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : odd)
  for (int64_t i = 0; i < n; i++) {
    const int64_t y = target[i];
    if (y < 0 || y >= c) {
      odd = 1;
      continue;
    }
    float top, *pull = gradient + i * c;
    const double rest = exponentials(logits + i * c, pull, c, y, top);
    const double m = (double)logits[i * c + y] - top - log(rest);
    family = form;
    weigh(m, 1.0, of, surprise[i], w[i]);
    const double small = exponential(-fabs(m)), odds = m > 0 ? small : 1.0;
    const double kept = taper > 0 ? odds / (odds + taper * (1 + small)) : 1.0;  // odds may be 0
    size[i] = w[i] * kept / (2 * rest);
    if (!batch) scale(pull, c, size[i] / n);
    odd |= !(top > -FLT_MAX && isfinite(m));
  }
  double total = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) total += w[i], sum += surprise[i];
  if (odd || !(total < DBL_MAX && (total > 1e-280 || !batch))) return 1;
  *value = sum / n;
  if (batch) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) scale(gradient + i * c, c, size[i] / total);
  }
  return 0;
}
