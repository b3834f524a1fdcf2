"""The page's own arithmetic, in a real browser, against the library."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from reweigh import batch_stats
from reweigh.emphasis import emphasis_share, emphasis_variance, integral, potential, potential_range
from reweigh.lab.report import explorer_page
from reweigh.lab.report.catalogue import catalogue
from reweigh.lab.spec import parse
from reweigh.lab.weightings import weighting_from

P = (0.0, 1e-6, 0.02, 0.1, 0.25, 1 / 3, 0.5, 0.71, 0.9, 0.999, 1.0)
INTERVALS = ((0.0, 0.1), (0.0, 0.5), (0.4, 0.5), (0.9, 1.0))
CASES = (
    *("DM(0.5, 8)", "DM(0, 2)", "DM(0, -0.52)", "DM(2, 24)", "DM(1, -4)", "DM(0.5, 0)", "DM(0.5, 32)"),
    *(
        "Normal(0.3, 6)",
        "Normal(0.7, -2)",
        "Exponential(4)",
        "Exponential(-3)",
        "Beta(2.5, 1.5)",
        "Beta(0.5, 2)",
        "Beta(2, 0.5)",
    ),
    *("Uniform()", "IMAE(8)", "CCE()", "MAE()", "MSE()", "GCE(0.7)", "GCE(0)", "TruncatedGCE(0.7, 0.5)"),
    *("SL(0.1, 9.21)", "SL(6, 0.921)", "Focal(2)", "Focal(0)", "PHuber(2)", "PHuber(10)", "AGCE(0.6, 0.6)"),
    *("AUL(5.5, 3)", "AEL(2.5)", "ForwardSymmetric(0.4, 10)", "ForwardSymmetric(0, 10)"),
    *("AGCE(0, 0)", "AUL(1, 0)", "AUL(1, 0.1)", "Beta(2, 1.1)"),  # slow or without a limit of parts at an end
    "Curve([(0, 0.2), (0.25, 2), (0.5, 1), (0.75, 1), (1, 0)])",
)
TAPERS = (0.0, 5e-7, 1e-2)
SCRIPT = """([cases, ps, intervals, tapers, samples]) => cases.map(({name, values}) => {
  const r = window.reweigh, plain = r.weightingOf({name, values});
  const word = (x) => (typeof x === "number" && !Number.isFinite(x) ? String(x) : x);
  return {
    w: ps.map((p) => word(r.weight(plain, p, 1 - p))),
    integral: word(r.integral(plain)), variance: word(r.variance(plain)), mode: r.mode(plain),
    share: intervals.map(([low, high]) => word(r.share(plain, low, high))),
    tapered: tapers.map((taper) => {
      const w = r.weightingOf({name, values}, taper), L = r.potentialOf(w);
      return {
        potential: L === null ? null : ps.slice(1, -1).map((p) => word(L(r.margin(p, 1 - p)))),
        range: r.potentialRange(w).map(word), batch: r.batch(w, samples),
      };
    }),
  };
})"""
SAMPLES = (0.98, 0.7, 0.5, 0.1, 0.02)


def arguments(text: str) -> dict[str, Any]:
    """An expression as the page takes it: a name, and values by name."""
    weighting: Any = weighting_from(parse(text))
    return {"name": type(weighting).__name__, "values": {k: v for k, v in vars(weighting).items() if k[0] != "_"}}


def number(value: Any) -> float:
    return float(value) if isinstance(value, str) else value


def close(found: Any, expected: float) -> bool:
    return math.isclose(number(found), expected, rel_tol=1e-6, abs_tol=1e-9)


@pytest.fixture(scope="module")
def results(browser: Any) -> dict[str, Any]:
    page = browser.new_page()
    page.set_content(explorer_page())
    found = page.evaluate(SCRIPT, [[arguments(case) for case in CASES], P, INTERVALS, TAPERS, SAMPLES])
    page.close()
    return dict(zip(CASES, found, strict=True))


def test_every_weighting_with_a_formula_is_in_the_explorer() -> None:
    assert {entry["name"] for entry in catalogue()} == {case.partition("(")[0] for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_w_and_its_density(results: dict[str, Any], case: str) -> None:
    weighting, found = weighting_from(parse(case)), results[case]
    p = torch.tensor(P, dtype=torch.float64)
    assert all(map(close, found["w"], weighting(p, 1 - p).tolist()))
    z = float(integral(weighting))
    assert close(found["integral"], z)
    assert close(found["variance"], float(emphasis_variance(weighting)))
    for (low, high), share in zip(INTERVALS, found["share"], strict=True):
        assert close(share, float(emphasis_share(weighting, low, high)))
    mode = weighting.mode
    assert found["mode"] == (list(mode) if isinstance(mode, tuple) else pytest.approx(mode, abs=1e-6))


@pytest.mark.parametrize("case", CASES)
def test_objective_and_batch(results: dict[str, Any], case: str) -> None:
    weighting = weighting_from(parse(case))
    p = torch.tensor(P[1:-1], dtype=torch.float64)
    margins = p.log() - (1 - p).log()
    samples = torch.tensor(SAMPLES, dtype=torch.float64).logit()[:, None] * torch.tensor([[1.0, 0.0]])
    for taper, found in zip(TAPERS, results[case]["tapered"], strict=True):
        if taper == 0 and math.isinf(weighting(1.0)):
            assert found["potential"] is None  # no objective: the library refuses, and the page shows none
        else:
            expected = potential(weighting, margins, taper).tolist()
            assert all(map(close, found["potential"], expected))
            assert all(map(close, found["range"], potential_range(weighting, taper)))
        stats = batch_stats(samples, torch.zeros(len(SAMPLES), dtype=torch.long), weighting, taper=taper)
        assert all(map(close, found["batch"]["shares"], stats.share.tolist()))
        assert close(found["batch"]["effective"], float(stats.effective_size))
