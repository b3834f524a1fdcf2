"""The rules by which saved results decide what the paper claims; `claims` says them in words.

All accuracies are final ones unless said otherwise, in percent, and means over seeds. Results of different protocols,
precision or determinism, or on data that have changed, are judged apart; a claim holds only if it does in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from paper.saved import Saved
from paper.table import Block, Entry, Kind
from reweigh.lab.spec import Expression, Run, parse

Results: TypeAlias = Mapping[str, Saved]
"""By name of the experiment."""

LET_GO = 1.0  # points between best and final accuracy up to which nothing was gained by stopping early
NEAR = 2.0  # points within which an accuracy is competitive
TRACKS = 0.95  # correlation from which one number tracks another
COLLAPSE = 20.0  # points below the best variance of a mode that are a collapse
FEWEST = 3  # runs, rates or rows below which nothing is said
OWN_RATE = "own lr"  # the column in which every row has its own best learning rate, beside one such as "lr 0.1"
ABLATION = "ablation"  # as experiments that are one are called, such as "ablation-digits"
EQUAL = ("DM(1, 0)", "DM(beta=0)")  # rows in which all examples count alike: the paper's baseline, not its method

Ablation: TypeAlias = "dict[float, dict[tuple[float, float], float]]"
"""rate -> (lam, beta) -> final accuracy."""


class Found(NamedTuple):
    """Whether a claim holds, and what was seen."""

    holds: bool
    seen: str


def noisy_below_clean(results: Results) -> Found | None:
    """p of wrong labels against p of right ones, at every evaluation of every run under noise."""
    seen = below = runs = 0
    for entry in _entries(results):
        columns = entry.finding.columns
        pairs = [
            (clean, noisy)
            for clean, noisy in zip(columns.get("p_clean", []), columns.get("p_noisy", []), strict=True)
            if clean is not None and noisy is not None
        ]
        runs += bool(pairs)
        seen += len(pairs)
        below += sum(noisy < clean for clean, noisy in pairs)
    if not seen:
        return None
    return Found(below == seen, f"below in {below:,} of {seen:,} evaluations of {runs} runs")


def stopping_unnecessary(results: Results) -> Found | None:
    """best - final of DM(lam > 0) at the settings that the paper prints, under noise."""
    drops: dict[frozenset[str], tuple[float, str]] = {}  # by runs, which may stand in several tables
    for saved, block in _blocks(results):
        for line in block.lines:
            found = [e.finding for e in saved.entries if (e.row, e.column) == (line.row, block.column)]
            own = any(not number.quoted for number in line.reported)
            best, final = line.measured.get("best"), line.measured.get("final")
            if not (best and final and best.seeds == final.seeds):  # one that diverged at once has no best
                continue
            if own and found and _is_dm(found[0].run):
                drop = 100 * (best.mean - final.mean)
                where = f"{block.experiment}, {block.column}, {line.row}"
                drops[frozenset(finding.name for finding in found)] = drop, where
    if not drops:
        return None
    drop, where = max(drops.values())
    within = sum(each <= LET_GO for each, _ in drops.values())
    return Found(drop <= LET_GO, f"within {LET_GO:g} point in {within} of {len(drops)}; most: {drop:.2f} ({where})")


def intact_tracks_test(results: Results) -> Found | None:
    """Correlation of final accuracy on true training labels and on the test part, at each rate on each data set."""
    groups: dict[tuple[object, ...], dict[str, tuple[float, float]]] = {}
    for entry in _entries(results):
        run, metrics = entry.finding.run, entry.finding.metrics
        intact, final = metrics.get("intact"), metrics.get("final")
        if run.rate and intact is not None and final is not None:
            place = (run.data, f"r = {run.rate:g}", run.net, run.precision, run.deterministic)
            groups.setdefault(place, {})[entry.finding.name] = intact, final
    found = {
        place: value
        for place, pairs in groups.items()
        if len(pairs) >= FEWEST and (value := correlation(list(pairs.values()))) is not None
    }
    if not found:
        return None
    at, least = min(found.items(), key=lambda item: item[1])
    where = ", ".join(map(str, at[:3]))
    return Found(least >= TRACKS, f"correlation at least {least:.3f}, over {len(found)} settings; least: {where}")


def mode_rises(results: Results) -> Found | None:
    """The mode of the best DM of every ablation at each rate."""
    found = []
    for name, by_rate in _ablations(results):
        best = {}
        for rate, settings in sorted(by_rate.items()):
            if len({lam for lam, _ in settings}) > FEWEST:
                lam = max(settings, key=settings.__getitem__)[0]
                best[rate] = lam / (lam + 1)
        if len(best) >= FEWEST:
            modes = list(best.values())
            seen = ", ".join(f"{mode:.2g} at r = {rate:g}" for rate, mode in best.items())
            found.append(Found(modes == sorted(modes) and modes[-1] > modes[0], f"{name}: best mode {seen}"))
    return Found(all(each.holds for each in found), "; ".join(each.seen for each in found)) if found else None


def cce_competitive(results: Results) -> Found | None:
    """CCE against GCE, MAE and MSE in every noisy column that has all four."""
    behind = []
    for block, final in _noisy_columns(results):
        four = {name: final[name] for name in ("CCE", "GCE", "MAE", "MSE") if name in final}
        if len(four) == 4:
            behind.append((max(four.values()) - four["CCE"], f"{block.experiment}, {block.column}"))
    if not behind:
        return None
    most, where = max(behind)
    near = sum(each <= NEAR for each, _ in behind)
    return Found(most <= NEAR, f"within {NEAR:g} points in {near} of {len(behind)} columns; most: {most:.2f} ({where})")


def dm_best(results: Results) -> Found | None:
    """The best row of every column that has DM and at least two others."""
    lost, count = [], 0
    for _, block in _blocks(results):
        final = _finals(block)
        own = {row: value for row, value in final.items() if row.startswith("DM") and row not in EQUAL}
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
    seen = f"best in {count - len(lost)} of {count} columns"
    return Found(not lost, seen if not lost else f"{seen}; not in {'; '.join(lost)}")


def variance_collapses(results: Results) -> Found | None:
    """In an ablation, a mode whose largest beta ends far below its best beta."""
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
    return Found(fall >= COLLAPSE, f"in {many} of {len(falls)} modes and rates; most: {fall:.1f} points ({where})")


def correction_helps(results: Results) -> Found | None:
    """Accuracy after training on corrected labels against before, for DM."""
    gains = []
    for _, block in _blocks(results):
        for line in block.lines:
            if line.row.startswith("DM") and {"retrained", "final"} <= line.measured.keys():
                gain = 100 * (line.measured["retrained"].mean - line.measured["final"].mean)
                gains.append((gain, f"{gain:+.1f} ({block.experiment}, {block.column}, {line.row})"))
    if not gains:
        return None
    return Found(min(gains)[0] > 0, ", ".join(text for _, text in gains))


def one_rate_serves(results: Results) -> Found | None:
    """Every row at its own best learning rate against the one that all rows share."""
    changed, count = [], 0
    for saved in results.values():
        finals = {(block.column, block.kind): _finals(block) for block in saved.blocks() if block.kind is not None}
        for (column, kind), shared in finals.items():
            own = finals.get((OWN_RATE, kind), {}) if column.startswith("lr ") else {}
            for row in shared.keys() & own.keys():
                count += 1
                change = own[row] - shared[row]
                if abs(change) > NEAR:
                    changed.append((-abs(change), f"{row} from {shared[row]:.1f} to {own[row]:.1f}"))
    if not count:
        return None
    seen = f"within {NEAR:g} points in {count - len(changed)} of {count} rows"
    return Found(not changed, "; ".join([seen, *(text for _, text in sorted(changed))]))


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's; None where one of the two never changes.

    >>> correlation([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    1.0
    """
    n = len(pairs)
    mean = [sum(column) / n for column in zip(*pairs, strict=True)]
    centred = [(x - mean[0], y - mean[1]) for x, y in pairs]
    xx, yy = sum(x * x for x, _ in centred), sum(y * y for _, y in centred)
    return sum(x * y for x, y in centred) / float((xx * yy) ** 0.5) if xx * yy > 0 else None


def _entries(results: Results) -> Iterator[Entry]:
    """Every finding once, in whatever tables it stands."""
    seen = set()
    for saved in results.values():
        for entry in saved.entries:
            if entry.finding.name not in seen:
                seen.add(entry.finding.name)
                yield entry


def _blocks(results: Results) -> Iterator[tuple[Saved, Block]]:
    for saved in results.values():
        for block in saved.blocks():
            if block.kind is not None:
                yield saved, block


def _finals(block: Block) -> dict[str, float]:
    return {line.row: 100 * line.measured["final"].mean for line in block.lines if "final" in line.measured}


def _noisy_columns(results: Results) -> Iterator[tuple[Block, dict[str, float]]]:
    for saved, block in _blocks(results):
        if any(entry.finding.run.rate for entry in saved.entries if entry.column == block.column):
            yield block, _finals(block)


def _ablations(results: Results) -> list[tuple[str, Ablation]]:
    """The accuracies of every ablation with its name, apart for each kind."""
    found: dict[tuple[str, Kind], Ablation] = {}
    for _, block in _blocks(results):
        if block.experiment.partition("-")[0] != ABLATION or block.kind is None:
            continue
        rate = float(block.column.removeprefix("r = "))
        for row, final in _finals(block).items():
            parameters = _dm(parse(row))
            if parameters is not None and row not in EQUAL:
                found.setdefault((block.experiment, block.kind), {}).setdefault(rate, {})[parameters] = final
    return [(name, ablation) for (name, _), ablation in found.items()]


def _is_dm(run: Run) -> bool:
    """Whether it is DM with lam > 0 and beta > 0, under noise."""
    parameters = None if run.weighting is None or not run.rate else _dm(parse(run.weighting))
    return parameters is not None and min(parameters) > 0


def _dm(expression: Expression) -> tuple[float, float] | None:
    if expression.name != "DM":
        return None
    values = dict(expression.bind(("lam", "beta")).kwargs)
    lam, beta = values.get("lam"), values.get("beta")
    return (float(lam), float(beta)) if isinstance(lam, int | float) and isinstance(beta, int | float) else None
