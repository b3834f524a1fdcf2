// The arithmetic of weightings. In the log domain, as in the library: nothing overflows, and both ends of [0, 1] are exact.
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

// log x with a finite number for log 0, so that x ** a * x ** -a is 1 at 0
const floored = (logX) => Math.max(logX, -Number.MAX_VALUE);

// log(x ** exponent) with 0 ** 0 = 1
const power = (exponent, logX) => exponent * floored(logX);

// log(q / (q + taper)), which reduces the weight of fitted examples to 0
function logTaper(logQ, taper) {
  if (taper === 0) return 0;
  const floor = floored(logQ);
  return floor - logAdd(Math.log(taper), floor);
}

// Integrals over p are taken in the margin, dp = p q dm, as in reweigh.emphasis: by Gauss-Legendre on panels about one
// unit long over [-60, 60], plus exponential tails.
const REACH = 60;
const FARTHEST = 1000; // the margin for p = 1 and, negative, for p = 0
const GAUSS = [
  [0.1488743389816312, 0.2955242247147529],
  [0.4333953941292472, 0.2692667193099963],
  [0.6794095682990244, 0.2190863625159820],
  [0.8650633666889845, 0.1494513491505806],
  [0.9739065285171717, 0.0666713443086881],
].flatMap(([x, w]) => [[(1 - x) / 2, w / 2], [(1 + x) / 2, w / 2]]);

const logWeightAt = (weighting, m) => weighting.logWeight(logSigmoid(m), logSigmoid(-m));
const weight = (weighting, p, q) => Math.exp(weighting.logWeight(Math.log(p), Math.log(q === undefined ? 1 - p : q)));

function edges(breaks, low = -REACH, high = REACH) {
  const inner = breaks.map((p) => margin(p)).filter((m) => m > low && m < high);
  const cuts = [low, ...inner.sort((a, b) => a - b), high];
  return cuts.slice(1).flatMap((end, i) => {
    const count = Math.max(1, Math.ceil(end - cuts[i]));
    return Array.from({ length: count }, (_, k) => cuts[i] + ((end - cuts[i]) * k) / count);
  }).concat(high);
}

// log of the integral of w^power over p in [low, high]; Infinity if it diverges
function logIntegral(weighting, low = 0, high = 1, exponent = 1) {
  const at = (m) => exponent * logWeightAt(weighting, m) + logSigmoid(m) + logSigmoid(-m);
  const left = low > 0 ? Math.max(margin(low), -REACH) : -REACH;
  const right = high < 1 ? Math.min(margin(high), REACH) : REACH;
  const cuts = edges(weighting.breaks, left, right);
  const terms = [];
  for (let i = 0; i + 1 < cuts.length; i += 1) {
    const width = cuts[i + 1] - cuts[i];
    for (const [x, w] of GAUSS) terms.push(at(cuts[i] + width * x) + Math.log(width * w));
  }
  if (low === 0) terms.push(logTail(at(-REACH), at(-REACH + 1)));
  if (high === 1) terms.push(logTail(at(REACH), at(REACH - 1)));
  return logSumExp(terms);
}

function logTail(end, inner) {
  if (end === -Infinity) return end;
  return inner - end > 1e-9 ? end - Math.log(inner - end) : Infinity;
}

const integral = (weighting) => Math.exp(logIntegral(weighting));

function variance(weighting) {
  const [first, second] = [logIntegral(weighting), logIntegral(weighting, 0, 1, 2)];
  const excess = second - 2 * first;
  return excess < 1e-13 ? 0 : Math.exp(2 * first) * Math.expm1(excess); // less is the rounding error of a constant w
}

function share(weighting, low, high) {
  const total = logIntegral(weighting);
  return total === Infinity ? NaN : Math.exp(logIntegral(weighting, low, high) - total);
}

// argmax of w: a number, [0, 1] if both ends tie, null if w is constant
function mode(weighting) {
  const at = (m) => logWeightAt(weighting, m);
  const grid = [-Infinity, ...Array.from({ length: 4001 }, (_, i) => -40 + i / 50), Infinity];
  const values = grid.map(at);
  const best = values.reduce((a, b) => Math.max(a, b));
  const room = 1e-12 * Math.max(1, Math.abs(best));
  if (best - values.reduce((a, b) => Math.min(a, b)) <= room) return null;
  const [low, high] = [values[0] >= best - room, values[values.length - 1] >= best - room];
  if (low || high) return low && high ? [0, 1] : Number(high);
  let centre = grid[values.indexOf(best)];
  for (let step = 0.02, round = 0; round < 8; round += 1, step /= 50) {
    const fine = Array.from({ length: 101 }, (_, i) => centre + step * (i / 50 - 1));
    centre = fine.reduce((a, b) => (at(b) > at(a) ? b : a));
  }
  return 1 / (1 + Math.exp(-centre));
}

// m -> L(m) with dL/dm = -w/2; null if w(1) is infinite, which has no objective
function potentialOf(weighting) {
  const floor = Math.exp(logWeightAt(weighting, Infinity));
  if (floor === Infinity) return null;
  const excess = (m) => Math.exp(logWeightAt(weighting, m)) - floor;
  const over = (from, width) => GAUSS.reduce((sum, [x, w]) => sum + excess(from + width * x) * w * width, 0);
  const cuts = edges(weighting.breaks);
  const beyond = new Array(cuts.length).fill(0);
  for (let i = cuts.length - 2; i >= 0; i -= 1) beyond[i] = beyond[i + 1] + over(cuts[i], cuts[i + 1] - cuts[i]);
  const fall = excess(REACH - 1) / excess(REACH);
  const rate = fall > 1 ? Math.log(fall) : 1; // otherwise both are 0 or rounding errors
  return (m) => {
    let i = cuts.findIndex((cut) => cut >= m);
    if (i < 0) i = cuts.length - 1;
    const gap = Math.max(0, cuts[i] - m);
    const tail = excess(Math.max(m, REACH)) / rate;
    return (over(m, gap) + beyond[i] + tail - (floor === 0 ? 0 : floor * m)) / 2;
  };
}

// [inf L, sup L], as p goes to 1 and to 0
function potentialRange(weighting) {
  const potential = potentialOf(weighting);
  if (potential === null) return [-Infinity, Infinity];
  const [low, inner] = [logWeightAt(weighting, -REACH), logWeightAt(weighting, -REACH + 1)];
  let tail = 0;
  if (low !== -Infinity) tail = inner - low > 1e-9 ? Math.exp(low) / (inner - low) : Infinity;
  const bottom = Math.exp(logWeightAt(weighting, Infinity)) === 0 ? 0 : -Infinity;
  return [bottom, potential(-REACH) + tail / 2];
}

// each example's share of the derivative of the batch, and the effective number of examples
function batch(weighting, probabilities) {
  const logWeights = probabilities.map((p) => logWeightAt(weighting, Math.min(FARTHEST, Math.max(-FARTHEST, margin(p)))));
  const total = logSumExp(logWeights);
  const shares = logWeights.map((each) => (total === -Infinity ? 0 : Math.exp(each - total)));
  const squares = shares.reduce((sum, s) => sum + s * s, 0);
  return { shares, effective: squares === 0 ? 0 : 1 / squares };
}
