// log w of (log p, log q): the formulas of the Python classes of the same names. Parameters and defaults come from
// Python (catalogue.py); a weighting without a line here is not in the explorer.
const FORMULAS = {
  DM: ({ lam, beta }) => (lp, lq) => beta * Math.exp(power(lam, lp) + lq),
  Normal: ({ psi, beta }) => (lp, lq) => beta * Math.exp(lp) * (2 * psi - 1 + Math.exp(lq)),
  Exponential: ({ beta }) => (lp, lq) => beta * Math.exp(lq),
  Beta: ({ alpha, eta }) => (lp, lq) => power(alpha - 1, lp) + power(eta - 1, lq),
  Uniform: () => () => 0,
  IMAE: ({ T }) => (lp, lq) => T * Math.exp(lp + lq),
  CCE: () => (lp, lq) => LOG2 + lq,
  MAE: () => (lp, lq) => LOG2 + lp + lq,
  MSE: () => (lp, lq) => 2 * LOG2 + lp + 2 * lq,
  GCE: ({ q }) => (lp, lq) => LOG2 + power(q, lp) + lq,
  TruncatedGCE: ({ q, k }) => (lp, lq) => (lp > Math.log(k) ? LOG2 + power(q, lp) + lq : -Infinity),
  SL: ({ alpha, b }) => (lp, lq) => LOG2 + lq + logAdd(Math.log(alpha), Math.log(b) + lp),
  Focal: ({ gamma }) => (lp, lq) => {
    if (lp === -Infinity) return LOG2 + power(gamma, lq) + lq;
    // near p = 1 log(-log p) comes from the series q + q²/2
    const surprise = lq < -14 ? lq + Math.exp(lq) / 2 : Math.log(-lp);
    return LOG2 + power(gamma, lq) + logAdd(lq, Math.log(gamma) + lp + surprise);
  },
  PHuber: ({ tau }) => (lp, lq) => LOG2 + lq + Math.min(Math.log(tau) + lp, 0),
  AGCE: ({ a, q }) => (lp, lq) => LOG2 + lq + (floored(lp) + power(q - 1, logAdd(Math.log(a), lp))),
  AUL: ({ a, q }) => (lp, lq) => LOG2 + lp + (floored(lq) + power(q - 1, logAdd(Math.log(a - 1), lq))),
  AEL: ({ a }) => (lp, lq) => LOG2 + lp + lq - Math.log(a) - Math.exp(lp) / a,
  ForwardSymmetric: ({ rate, num_classes }) => (lp, lq) => {
    const t = rate / (num_classes - 1);
    const scaled = lp + Math.log(1 - rate - t);
    return t === 0 ? LOG2 + lq : LOG2 + lq + scaled - logAdd(Math.log(t), scaled);
  },
  Curve: ({ points }) => {
    const slopes = curveSlopes(points);
    return (lp, lq) => Math.log(Math.max(0, curveAt(points, slopes, Math.exp(lp), Math.exp(lq))));
  },
};

// Where w has a kink or a jump: integrals are split there.
const BREAKS = {
  TruncatedGCE: ({ k }) => (k > 0 && k < 1 ? [k] : []),
  PHuber: ({ tau }) => (tau > 1 ? [1 / tau] : []),
  Curve: ({ points }) => points.map(([p]) => p).filter((p) => p > 0 && p < 1),
};

// {name, values} -> {logWeight, breaks}; taper multiplies by q / (q + taper)
function weightingOf({ name, values }, taper = 0) {
  const plain = FORMULAS[name](values);
  return {
    logWeight: taper === 0 ? plain : (lp, lq) => plain(lp, lq) + logTaper(lq, taper),
    breaks: name in BREAKS ? BREAKS[name](values) : [],
  };
}

// Monotone cubic interpolation (Fritsch & Carlson), as reweigh.Curve.
function curveSlopes(points) {
  const gaps = points.slice(1).map(([p], i) => p - points[i][0]);
  const rises = points.slice(1).map(([, w], i) => (w - points[i][1]) / gaps[i]);
  const inner = gaps.slice(1).map((k, i) => {
    const [h, d, e] = [gaps[i], rises[i], rises[i + 1]];
    return d * e > 0 ? (3 * (h + k)) / ((2 * k + h) / d + (k + 2 * h) / e) : 0;
  });
  return [rises[0], ...inner, rises[rises.length - 1]];
}

function curveAt(points, slopes, p, q) {
  let i = 0;
  while (i < points.length - 2 && p >= points[i + 1][0]) i += 1;
  const [[left, a], [right, b]] = [points[i], points[i + 1]];
  const width = right - left;
  const t = Math.min(Math.max((p - left) / width, 0), 1);
  const u = Math.min(Math.max((q - (1 - right)) / width, 0), 1);
  const bend = width * (slopes[i] * u - slopes[i + 1] * t) + (b - a) * (t - u);
  return a * u + b * t + t * u * bend;
}
