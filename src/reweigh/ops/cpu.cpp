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

// The margin of a row that counts by s, and what `pull` is to be multiplied by to become the direction. False where the
// label has no other class to turn to, or something is not finite.
static bool measure(const float* z, float* pull, int64_t c, int64_t y, double s, double& margin, double& size) {
  if (s == 0) {
    memset(pull, 0, c * sizeof *pull);
    margin = INFINITY, size = 0;
    return true;
  }
  float top;
  const double rest = exponentials(z, pull, c, y, top);
  margin = (double)z[y] - top - log(rest), size = 0.5 / rest;
  return top > -FLT_MAX && isfinite(margin);
}

enum Step { MEASURE = 1, WEIGH = 2 };
enum Reduction { NONE, SUM, MEAN };

// As in cpu.py: what is the same for one batch after the other.
struct Settings {
  int64_t n, c, ignore;
  int reduction, batch, form;
  double a, b, constant, inner, taper;
};

// The value and the gradient of all rows; or, where nothing is reduced, every row's value, and a gradient yet to be
// multiplied by the first of the 5 N numbers in `room`. Factors by class and by row may be null. The two steps may be two
// calls: margins are the third of these numbers, `log_w` their weights if no form is. Not 0 where a label is unknown, a
// row cannot be measured, or all weights are next to 0 or not finite. Sums are taken in a fixed order, whatever the
// number of threads.
extern "C" int weigh_rows(const Settings* by, int steps, int threads, const float* logits, int64_t stride,
                          const int64_t* target, const double* by_class, const double* by_row, const double* log_w,
                          float* value, float* gradient, double* room) {
  const int64_t n = by->n, c = by->c;
  const int reduction = by->reduction, batch = by->batch;
  double *size = room, *s = size + n, *margin = s + n, *w = margin + n, *terms = w + n, count = 0;
  for (int64_t i = 0; i < n; i++) {
    const int64_t y = target[i];
    const int ignored = y == by->ignore;
    if (!ignored && (y < 0 || y >= c)) return 1;
    s[i] = (ignored ? 0.0 : by_class ? by_class[y] : 1.0) * (by_row ? by_row[i] : 1.0);
    count += s[i];
  }
  if (!isfinite(count) || count == 0) return 1;
  const double mean = reduction == MEAN ? count : 1.0;
  int odd = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : odd)
  for (int64_t i = 0; i < n; i++) {
    float* pull = gradient + i * c;
    if (steps & MEASURE) odd |= !measure(logits + i * stride, pull, c, target[i], s[i], margin[i], size[i]);
    if (steps & WEIGH) {
      const double m = margin[i], small = exponential(-fabs(m)), odds = m > 0 ? small : 1.0;
      const Arguments of = {0, 0, 0, 0, 0, 0, 0, 0, 0, by->a, by->b,
                            log_w ? log_w[i] : by->constant, by->inner, by->taper};
      double surprise;
      family = by->form;
      weigh(m, s[i], of, surprise, w[i]);
      terms[i] = s[i] * surprise / mean;
      size[i] *= w[i] * (by->taper > 0 ? odds / (odds + by->taper * (1 + small)) : 1.0);  // odds may be 0
      if (!batch && reduction != NONE) scale(pull, c, size[i] / mean);
    }
  }
  if (odd || !(steps & WEIGH)) return odd;
  double total = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) total += w[i], sum += terms[i];
  if (!(fabs(total) < DBL_MAX && (total > 1e-280 || !batch))) return 1;
  if (batch) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
      size[i] /= total;
      if (reduction != NONE) scale(gradient + i * c, c, size[i]);
    }
  }
  if (reduction != NONE) *value = (float)sum;
  else for (int64_t i = 0; i < n; i++) value[i] = (float)terms[i];
  return 0;
}
