// Log-domain arithmetic, as in reweigh.weighting: nothing overflows, and both ends of [0, 1] are exact.
const LOG2 = Math.log(2);
const logSigmoid = (m) => (m >= 0 ? -Math.log1p(Math.exp(-m)) : m - Math.log1p(Math.exp(m)));
const margin = (p, q) => Math.log(p) - Math.log(q === undefined ? 1 - p : q);

function logAdd(a, b) {
  const top = Math.max(a, b);
  return top === -Infinity ? top : top + Math.log1p(Math.exp(Math.min(a, b) - top));
}

function logSumExp(values) {
  let top = -Infinity;
  for (const value of values) top = Math.max(top, value);
  if (!Number.isFinite(top)) return top;
  let sum = 0;
  for (const value of values) sum += Math.exp(value - top);
  return top + Math.log(sum);
}

// log x with a finite number for log 0, so that x ** a * x ** -a is 1 there as well
const floored = (logX) => Math.max(logX, -Number.MAX_VALUE);

// log(x ** exponent) with 0 ** 0 = 1
const power = (exponent, logX) => exponent * floored(logX);

// log(q / (q + taper)): what lets go of an example that is already right
function logTaper(logQ, taper) {
  if (taper === 0) return 0;
  const floor = floored(logQ);
  return floor - logAdd(Math.log(taper), floor);
}
