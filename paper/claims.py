"""The paper's claims, each with a rule that decides it from results.

Unless stated otherwise, accuracies are final ones, in percent, and means over seeds. Results of different protocols,
precision or determinism, or on data that changed, are judged separately; a claim holds only if it holds in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from paper.findings import Entry, Results
from paper.protocols import dm_parameters
from paper.tables import Block, Kind, blocks

ByName: TypeAlias = Mapping[str, Results]
"""Results by the name of their experiment."""

STOPPING_GAIN = 1.0  # points between best and final accuracy that count as no gain from early stopping
COMPETITIVE = 2.0  # points within which an accuracy is competitive
CORRELATED = 0.95  # smallest correlation at which one number tracks another
COLLAPSE = 20.0  # points below the best beta of a mode that count as a collapse
FEWEST = 3  # runs, rates or rows needed for a verdict
OWN_RATE = "own lr"  # column with every row at its own best learning rate, next to one such as "lr 0.1"
ABLATION = "ablation"  # beginning of the names of ablations, such as "ablation-digits"
UNIFORM = ("DM(1, 0)", "DM(beta=0)")  # rows that weight all examples equally: the paper's baseline, not its method


class Judgement(NamedTuple):
    """Whether a claim holds, and the evidence."""

    holds: bool
    evidence: str


class Claim(NamedTuple):
    """A claim of the paper, the rule that decides it in words, and the rule; None means there is nothing to judge."""

    text: str
    rule: str
    judge: Callable[[ByName], Judgement | None]


class Verdict(NamedTuple):
    """A claim with its verdict: "holds", "does not hold" or "not measured"."""

    claim: str
    rule: str
    verdict: str
    evidence: str


def verdicts(results: ByName) -> list[Verdict]:
    """Judge every claim."""
    judged = []
    for claim in CLAIMS:
        outcome = claim.judge(results)
        word = "not measured" if outcome is None else "holds" if outcome.holds else "does not hold"
        judged.append(Verdict(claim.text, claim.rule, word, "" if outcome is None else outcome.evidence))
    return judged


def noisy_below_clean(results: ByName) -> Judgement | None:
    """Compare the mean p of noisy and clean labels at every evaluation of every run with noise."""
    total = below = runs = 0
    for entry in _entries(results):
        columns = entry.finding.columns
        pairs = [
            (clean, noisy)
            for clean, noisy in zip(columns.get("p_clean", []), columns.get("p_noisy", []), strict=True)
            if clean is not None and noisy is not None
        ]
        runs += bool(pairs)
        total += len(pairs)
        below += sum(noisy < clean for clean, noisy in pairs)
    if not total:
        return None
    return Judgement(below == total, f"below in {below:,} of {total:,} evaluations of {runs} runs")


def stopping_unnecessary(results: ByName) -> Judgement | None:
    """Compare best and final accuracy of DM(lam > 0), under noise, at the settings that the paper prints."""
    drops: dict[frozenset[str], tuple[float, str]] = {}  # by runs, which may occur in several tables
    for each, block in _blocks(results):
        for line in block.lines:
            findings = [e.finding for e in each.entries if (e.row, e.column) == (line.row, block.column)]
            is_printed = any(not number.quoted for number in line.reported)
            best, final = line.measured.get("best"), line.measured.get("final")
            if not (best and final and best.seeds == final.seeds):  # a run that diverged at once has no best
                continue
            if is_printed and findings and findings[0].run.rate:
                parameters = dm_parameters(findings[0].run.weighting)
                if parameters is not None and min(parameters) > 0:
                    drop, where = 100 * (best.mean - final.mean), f"{block.experiment}, {block.column}, {line.row}"
                    drops[frozenset(finding.name for finding in findings)] = drop, where
    if not drops:
        return None
    drop, where = max(drops.values())
    within = sum(each <= STOPPING_GAIN for each, _ in drops.values())
    evidence = f"within {STOPPING_GAIN:g} point in {within} of {len(drops)}; most: {drop:.2f} ({where})"
    return Judgement(drop <= STOPPING_GAIN, evidence)


def clean_tracks_test(results: ByName) -> Judgement | None:
    """Correlate final accuracy on true training labels and on the test set, for each data set, net and noise rate."""
    groups: dict[tuple[object, ...], dict[str, tuple[float, float]]] = {}
    for entry in _entries(results):
        run, metrics = entry.finding.run, entry.finding.metrics
        clean, final = metrics.get("intact"), metrics.get("final")
        if run.rate and clean is not None and final is not None:
            setting = (run.data, f"r = {run.rate:g}", run.net, run.precision, run.deterministic)
            groups.setdefault(setting, {})[entry.finding.name] = clean, final
    correlations = {
        setting: value
        for setting, pairs in groups.items()
        if len(pairs) >= FEWEST and (value := correlation(list(pairs.values()))) is not None
    }
    if not correlations:
        return None
    least_at, least = min(correlations.items(), key=lambda item: item[1])
    where = ", ".join(map(str, least_at[:3]))
    evidence = f"correlation at least {least:.3f}, over {len(correlations)} settings; least: {where}"
    return Judgement(least >= CORRELATED, evidence)


def mode_rises(results: ByName) -> Judgement | None:
    """Follow the mode of the best DM over the noise rates of every ablation."""
    outcomes = []
    for name, by_rate in _ablations(results):
        best = {}
        for rate, settings in sorted(by_rate.items()):
            if len({lam for lam, _ in settings}) > FEWEST:
                lam = max(settings, key=settings.__getitem__)[0]
                best[rate] = lam / (lam + 1)
        if len(best) >= FEWEST:
            modes = list(best.values())
            listed = ", ".join(f"{mode:.2g} at r = {rate:g}" for rate, mode in best.items())
            outcomes.append(Judgement(modes == sorted(modes) and modes[-1] > modes[0], f"{name}: best mode {listed}"))
    if not outcomes:
        return None
    return Judgement(all(each.holds for each in outcomes), "; ".join(each.evidence for each in outcomes))


def cce_competitive(results: ByName) -> Judgement | None:
    """Compare CCE with GCE, MAE and MSE in every noisy column that has all four."""
    behind = []
    for each, block in _blocks(results):
        final = _finals(block)
        four = {name: final[name] for name in ("CCE", "GCE", "MAE", "MSE") if name in final}
        is_noisy = any(entry.finding.run.rate for entry in each.entries if entry.column == block.column)
        if is_noisy and len(four) == 4:
            behind.append((max(four.values()) - four["CCE"], f"{block.experiment}, {block.column}"))
    if not behind:
        return None
    most, where = max(behind)
    near = sum(gap <= COMPETITIVE for gap, _ in behind)
    evidence = f"within {COMPETITIVE:g} points in {near} of {len(behind)} columns; most: {most:.2f} ({where})"
    return Judgement(most <= COMPETITIVE, evidence)


def dm_best(results: ByName) -> Judgement | None:
    """Find the best row of every column that has DM and at least two others."""
    lost, count = [], 0
    for _, block in _blocks(results):
        final = _finals(block)
        own = {row: value for row, value in final.items() if row.startswith("DM") and row not in UNIFORM}
        others = {row: value for row, value in final.items() if row not in own}
        if own and len(others) >= FEWEST - 1:
            count += 1
            first, second = max(own, key=own.__getitem__), max(others, key=others.__getitem__)
            if own[first] < others[second]:
                lost.append(
                    f"{block.experiment}, {block.column}: {second} {others[second]:.1f}, {first} {own[first]:.1f}"
                )
    if not count:
        return None
    evidence = f"best in {count - len(lost)} of {count} columns"
    return Judgement(not lost, evidence if not lost else f"{evidence}; not in {'; '.join(lost)}")


def variance_collapses(results: ByName) -> Judgement | None:
    """Look for a mode of an ablation whose largest beta ends far below its best beta."""
    falls = []
    for name, by_rate in _ablations(results):
        for rate, settings in by_rate.items():
            for lam in sorted({lam for lam, _ in settings}):
                betas = {beta: value for (own, beta), value in settings.items() if own == lam}
                if len(betas) >= FEWEST:
                    fall = max(betas.values()) - betas[max(betas)]
                    falls.append((fall, f"{name}, r = {rate:g}, lam = {lam:g}, beta = {max(betas):g}"))
    if not falls:
        return None
    fall, where = max(falls)
    many = sum(each >= COLLAPSE for each, _ in falls)
    return Judgement(fall >= COLLAPSE, f"in {many} of {len(falls)} modes and rates; most: {fall:.1f} points ({where})")


def correction_helps(results: ByName) -> Judgement | None:
    """Compare the accuracy of DM after training on corrected labels with that before."""
    gains = []
    for _, block in _blocks(results):
        for line in block.lines:
            if line.row.startswith("DM") and {"retrained", "final"} <= line.measured.keys():
                gain = 100 * (line.measured["retrained"].mean - line.measured["final"].mean)
                gains.append((gain, f"{gain:+.1f} ({block.experiment}, {block.column}, {line.row})"))
    if not gains:
        return None
    return Judgement(min(gains)[0] > 0, ", ".join(text for _, text in gains))


def one_rate_serves(results: ByName) -> Judgement | None:
    """Compare every row at its own best learning rate with the same row at the shared one."""
    changed, count = [], 0
    for each in results.values():
        finals = {(block.column, block.kind): _finals(block) for block in blocks(each) if block.kind is not None}
        for (column, kind), shared in finals.items():
            own = finals.get((OWN_RATE, kind), {}) if column.startswith("lr ") else {}
            for row in shared.keys() & own.keys():
                count += 1
                change = own[row] - shared[row]
                if abs(change) > COMPETITIVE:
                    changed.append((-abs(change), f"{row} from {shared[row]:.1f} to {own[row]:.1f}"))
    if not count:
        return None
    evidence = f"within {COMPETITIVE:g} points in {count - len(changed)} of {count} rows"
    return Judgement(not changed, "; ".join([evidence, *(text for _, text in sorted(changed))]))


CLAIMS = (
    Claim(
        "Noisy labels have a lower p than clean ones throughout training.",
        "At every evaluation of every run with noise, the mean p of noisy labels is below that of clean ones.",
        noisy_below_clean,
    ),
    Claim(
        "Early stopping is unnecessary with DM.",
        f"For every DM with lam > 0 that the paper prints, under noise, best - final is at most {STOPPING_GAIN:g} "
        "point.",
        stopping_unnecessary,
    ),
    Claim(
        "Accuracy on the true training labels is always consistent with test accuracy.",
        f"Over the runs of each net at each noise rate, the two have a correlation of at least {CORRELATED}.",
        clean_tracks_test,
    ),
    Claim(
        "The best emphasis mode rises with the noise rate.",
        "In every ablation, the mode of the best DM never falls from one rate to the next and rises overall.",
        mode_rises,
    ),
    Claim(
        "CCE is very competitive with MAE, MSE and GCE.",
        f"In every noisy column with all four, CCE is within {COMPETITIVE:g} points of the best of them.",
        cce_competitive,
    ),
    Claim(
        "DM is the best in every block.",
        "In every column with DM and at least two other rows, a row of DM is the best.",
        dm_best,
    ),
    Claim(
        "Models collapse where the emphasis variance is too large.",
        f"In an ablation there is a mode whose largest beta ends {COLLAPSE:g} points or more below its best beta.",
        variance_collapses,
    ),
    Claim(
        "Label correction with DM helps.",
        "For every DM, training on corrected labels ends above the first training.",
        correction_helps,
    ),
    Claim(
        "One learning rate serves all rows of a table (implied by the paper, not stated).",
        f"Every row ends within {COMPETITIVE:g} points of its result at its own best learning rate.",
        one_rate_serves,
    ),
)
"""In the order of the paper."""


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return Pearson's correlation; None if one of the two is constant.

    >>> correlation([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    1.0
    """
    n = len(pairs)
    mean = [sum(column) / n for column in zip(*pairs, strict=True)]
    centred = [(x - mean[0], y - mean[1]) for x, y in pairs]
    xx, yy = sum(x * x for x, _ in centred), sum(y * y for _, y in centred)
    return sum(x * y for x, y in centred) / float((xx * yy) ** 0.5) if xx * yy > 0 else None


def _entries(results: ByName) -> Iterator[Entry]:
    """Yield every finding once, even if it is in several tables."""
    seen = set()
    for each in results.values():
        for entry in each.entries:
            if entry.finding.name not in seen:
                seen.add(entry.finding.name)
                yield entry


def _blocks(results: ByName) -> Iterator[tuple[Results, Block]]:
    """Yield all measured blocks."""
    for each in results.values():
        for block in blocks(each):
            if block.kind is not None:
                yield each, block


def _finals(block: Block) -> dict[str, float]:
    return {line.row: 100 * line.measured["final"].mean for line in block.lines if "final" in line.measured}


def _ablations(results: ByName) -> list[tuple[str, dict[float, dict[tuple[float, float], float]]]]:
    """Return name and rate -> (lam, beta) -> final accuracy of every ablation, separately for each kind."""
    found: dict[tuple[str, Kind], dict[float, dict[tuple[float, float], float]]] = {}
    for _, block in _blocks(results):
        if block.experiment.partition("-")[0] != ABLATION or block.kind is None:
            continue
        rate = float(block.column.removeprefix("r = "))
        for row, final in _finals(block).items():
            parameters = dm_parameters(row)
            if parameters is not None and row not in UNIFORM:
                found.setdefault((block.experiment, block.kind), {}).setdefault(rate, {})[parameters] = final
    return [(name, ablation) for (name, _), ablation in found.items()]
