// How rows.cu and cpu.cpp weigh a row, as weigh.py does, with the arithmetic of arithmetic.py; and what it is given.
#define LOWEST (-1.7976931348623157e308)
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif
#define INLINE __device__ __forceinline__

// As in rows.py.
struct Arguments {
  const char* logits;
  const long long* target;
  char* gradient;
  float* values;
  int N, C, stride, gradient_stride, ignore;
  double a, b, c, inner, taper;
};

// exp(x) to 1e-10, as in arithmetic.py
INLINE double exponential(double x) {
  const double t = fmin(x * 1.4426950408889634, 1024.0), rounded = t + 6755399441055744.0;
  const double r = t - (rounded - 6755399441055744.0), r2 = r * r;
  const double low = (0.99999999995956175074 + 0.69314718055683241353 * r) +
                     (0.24022651213498092661 + 0.055504109063258666119 * r) * r2;
  const double high = (0.0096180256133180342494 + 0.0013333478473685415281 * r) +
                      (0.00015469729214118297093 + 0.000015303700711365693939 * r) * r2;
  const double power = __longlong_as_double((__double_as_longlong(rounded) + 1023) << 52);
  return x != x ? x : t < -1022 ? 0.0 : (low + high * (r2 * r2)) * power;
}

// log(x) to 1e-7, as in arithmetic.py
INLINE double logarithm(float x) {
  const int bits = __float_as_int(x), n = (bits - 0x3f3504f3) >> 23;
  return x != x ? x : n * 0.6931471805599453 + log1pf(__int_as_float(bits - (n << 23)) - 1);
}

INLINE void weigh(double m, double share, const Arguments& of, double& value, double& force) {
  const double small = exponential(-fabs(m)), bend = log1pf((float)small);
  double log_p = (m < 0 ? m : 0) - bend, log_q = (m > 0 ? -m : 0) - bend;
  if (m != m) log_p = log_q = m;
  if (log_p < LOWEST) log_p = LOWEST;
  if (log_q < LOWEST) log_q = LOWEST;
  double log_w = of.c;
  if (FAMILY == 0) log_w += of.a * log_p + of.b * log_q;
  if (FAMILY == 1) log_w += of.b * exponential(of.a * log_p + log_q);
  if (FAMILY == 2) log_w += of.b * exponential(log_p) * (of.a + exponential(log_q));
  if (FAMILY == 3) {
    const double near = small < 1e-4 ? 1 - 0.5 * small : -log_p / small, ratio = m > 0 ? near : -log_p * small;
    log_w += (of.a + 1) * log_q + logarithm((float)(1 + of.a * ratio));
  }
  const double odds = m > 0 ? small : 1.0;
  if (INNER) log_w += log(odds / (odds + of.inner * (1 + small)));
  if (TAPER) share *= odds * (double)(1.f / (float)(odds + of.taper * (1 + small)));
  force = share == 0 ? 0.0 : share * exponential(log_w);
  value = -log_p;
}
