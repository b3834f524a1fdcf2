"""The paper's claims, each measured in cases and judged as a fair reader would.

A case is one comparison that the claim makes, such as one row of a table. Its value is held against three thresholds,
from strict to lenient; the middle one decides: the claim holds if at least 95 % of the cases meet it, holds mostly if
two thirds do, and cannot be judged with fewer than three. Accuracies are final ones, in percent, and means over seeds;
`best` has the same value for the best test checkpoint, which is what most of the paper's tables print. Results of
different protocols, precision or determinism, or on data that changed, are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from paper.experiment import Protocol
from paper.findings import Entry, Results
from paper.protocols import dm_parameters
from paper.tables import Block, Kind, blocks

ByName: TypeAlias = Mapping[str, Results]
"""Results by the name of their experiment."""

HOLDS, MOSTLY = 0.95, 2 / 3  # shares of the cases that meet the middle threshold
FEWEST = 3  # cases needed for a verdict, and runs, betas or rows needed for a case
OWN_RATE = "own lr"  # column with every row at its own best learning rate, next to one such as "lr 0.1"
ABLATION = "ablation"  # beginning of the names of ablations, such as "ablation-digits"
UNIFORM = ("DM(1, 0)", "DM(beta=0)")  # rows that weight all examples equally: the paper's baseline, not its method
DIVIDES = 1e-9  # tolerance, so that 86.9 - 84.9 is within 2 points


class Case(NamedTuple):
    """One comparison.

    Attributes:
        where: its experiment, column and rows.
        data: the data set.
        protocol: of its experiment.
        value: the result; `Claim.value` says of what.
        seeds: the fewest seeds of the rows compared.
        best: the same value for the best test checkpoint; None if it has no such value.
    """

    where: str
    data: str
    protocol: Protocol
    value: float
    seeds: int
    best: float | None = None


class Claim(NamedTuple):
    """A claim of the paper.

    Attributes:
        text: the claim.
        value: what the value of a case is.
        words: the three thresholds in words, from strict to lenient.
        meets: (value, number of the threshold) -> whether a case meets it.
        cases: returns the cases of results.
        why: the best explanation of the outcome found so far.
        exists: the claim is that there are such cases, not that all are.
    """

    text: str
    value: str
    words: tuple[str, str, str]
    meets: Callable[[float, int], bool]
    cases: Callable[[ByName], list[Case]]
    why: str
    exists: bool = False


class Verdict(NamedTuple):
    """A claim with its verdict, "holds", "holds mostly", "does not hold" or "cannot be said", and its cases."""

    claim: Claim
    verdict: str
    cases: list[Case]

    def counts(self, cases: Sequence[Case] | None = None) -> tuple[int, int, int]:
        """Return how many cases meet each threshold."""
        values = [case.value for case in (self.cases if cases is None else cases)]
        strict, fair, lenient = (sum(self.claim.meets(value, i) for value in values) for i in range(3))
        return strict, fair, lenient

    @property
    def exceptions(self) -> list[Case]:
        """The cases that do not meet the middle threshold; of a claim of existence, those that do."""
        return [case for case in self.cases if self.claim.meets(case.value, 1) == self.claim.exists]


def verdicts(results: ByName) -> list[Verdict]:
    """Judge every claim."""
    judged = []
    for claim in CLAIMS:
        found = Verdict(claim, "cannot be said", claim.cases(results))
        if len(found.cases) >= FEWEST:
            met = found.counts()[1]
            share = min(1.0, met / FEWEST) if claim.exists else met / len(found.cases)
            found = found._replace(
                verdict="holds" if share >= HOLDS else "holds mostly" if share >= MOSTLY else "does not hold"
            )
        judged.append(found)
    return judged


def at_most(*limits: float) -> Callable[[float, int], bool]:
    """Return a rule that a value of at most a limit meets its threshold."""
    return lambda value, i: value <= limits[i] + DIVIDES


def at_least(*limits: float) -> Callable[[float, int], bool]:
    """Return a rule that a value of at least a limit meets its threshold."""
    return lambda value, i: value >= limits[i] - DIVIDES


def noisy_below_clean(results: ByName) -> list[Case]:
    """Return for each run with noise the share of its evaluations where noisy labels have the lower mean p."""
    cases = []
    for name, each, entry in _entries(results):
        columns = entry.finding.columns
        pairs = [
            (clean, noisy)
            for clean, noisy in zip(columns.get("p_clean", []), columns.get("p_noisy", []), strict=True)
            if clean is not None and noisy is not None
        ]
        if pairs:
            share = sum(noisy < clean for clean, noisy in pairs) / len(pairs)
            where = f"{name}, {entry.column}, {entry.row}, seed {entry.seed}"
            cases.append(_case(each, where, 100 * share, 1))
    return cases


def stopping_unnecessary(results: ByName) -> list[Case]:
    """Return best - final accuracy of DM(lam > 0), under noise, at the settings that the paper prints."""
    found: dict[frozenset[str], Case] = {}  # by runs, which may occur in several tables
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
                    key = frozenset(finding.name for finding in findings)
                    found[key] = _case(each, where, drop, final.seeds)
    return list(found.values())


def clean_tracks_test(results: ByName) -> list[Case]:
    """Return the correlation of final accuracy on true training labels and on the test set, at each noise rate.

    Runs are compared with those of the same data set, net, noise rate and arithmetic.
    """
    groups: dict[tuple[object, ...], dict[str, tuple[float, float]]] = {}
    tables: dict[tuple[object, ...], Results] = {}
    seeds: dict[tuple[object, ...], set[int]] = {}
    for _, each, entry in _entries(results):
        run, metrics = entry.finding.run, entry.finding.metrics
        clean, final = metrics.get("intact"), metrics.get("final")
        if run.rate and clean is not None and final is not None:
            setting = (run.data, f"r = {run.rate:g}", run.net, run.precision, run.deterministic)
            groups.setdefault(setting, {})[entry.finding.name] = clean, final
            seeds.setdefault(setting, set()).add(run.seed)
            tables[setting] = each
    return [
        _case(tables[setting], f"{', '.join(map(str, setting[:3]))}, {len(pairs)} runs", value, len(seeds[setting]))
        for setting, pairs in groups.items()
        if len(pairs) >= FEWEST and (value := correlation(list(pairs.values()))) is not None
    ]


def mode_rises(results: ByName) -> list[Case]:
    """Return how the mode of the best DM changes from one noise rate to the next, in every ablation."""
    cases = []
    for each, by_rate in _ablations(results):
        best = {}
        for rate, settings in sorted(by_rate.items()):
            if len({lam for lam, _ in settings}) > FEWEST:
                lam = max(settings, key=lambda each: settings[each][0])[0]
                best[rate] = lam / (lam + 1)
        rates = list(best)
        for before, after in pairwise(rates):
            modes = f"{best[before]:.2g} at r = {before:g}, {best[after]:.2g} at r = {after:g}"
            where = f"{each.experiment.name}, {modes}"
            cases.append(_case(each, where, best[after] - best[before], _fewest(by_rate[after])))
    return cases


def cce_competitive(results: ByName) -> list[Case]:
    """Return how far CCE is behind the best of GCE, MAE and MSE in every noisy column that has all four."""
    found: dict[frozenset[str], Case] = {}  # by runs, which may occur in several columns
    for each, block in _blocks(results):
        is_noisy = any(entry.finding.run.rate for entry in each.entries if entry.column == block.column)
        final, best = (
            {row: value for row, value in _scores(block, metric).items() if row in ("CCE", "GCE", "MAE", "MSE")}
            for metric in ("final", "best")
        )
        if is_noisy and len(final) == 4:
            first = max(final, key=final.__getitem__)
            where = f"{block.experiment}, {block.column}: {first} {final[first]:.1f}, CCE {final['CCE']:.1f}"
            gap = max(best.values()) - best["CCE"] if len(best) == 4 else None
            found[_names(each, block, first, "CCE")] = _case(
                each, where, final[first] - final["CCE"], _seeds(block, first, "CCE"), gap
            )
    return list(found.values())


def dm_best(results: ByName) -> list[Case]:
    """Return how far the best DM is behind the best other row, in every column with DM, GCE and another row."""
    found: dict[frozenset[str], Case] = {}  # by runs, which may occur in several columns
    for each, block in _blocks(results):
        final, best = (_apart(_scores(block, metric)) for metric in ("final", "best"))
        if final is None:
            continue
        (dm, others), gap = final, None
        first, second = max(dm, key=dm.__getitem__), max(others, key=others.__getitem__)
        if best is not None:
            gap = max(best[1].values()) - max(best[0].values())
        where = f"{block.experiment}, {block.column}: {second} {others[second]:.1f}, {first} {dm[first]:.1f}"
        found[_names(each, block, first, second)] = _case(
            each, where, others[second] - dm[first], _seeds(block, first, second), gap
        )
    return list(found.values())


def _apart(scores: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]] | None:
    """Return the rows of DM and the others; None without DM, GCE and another row."""
    dm = {row: value for row, value in scores.items() if row.startswith("DM") and row not in UNIFORM}
    others = {row: value for row, value in scores.items() if row not in dm}
    has_rivals = len(others) >= FEWEST - 1 and any(row.startswith("GCE") for row in others)
    return (dm, others) if dm and has_rivals else None


def variance_collapses(results: ByName) -> list[Case]:
    """Return how far the largest beta of a mode ends below the best beta of that mode, in every ablation."""
    cases = []
    for each, by_rate in _ablations(results):
        for rate, settings in by_rate.items():
            for lam in sorted({lam for lam, _ in settings}):
                betas = {beta: value for (own, beta), (value, _) in settings.items() if own == lam}
                if len(betas) >= FEWEST:
                    fall = max(betas.values()) - betas[max(betas)]
                    where = f"{each.experiment.name}, r = {rate:g}, lam = {lam:g}, beta = {max(betas):g}"
                    cases.append(_case(each, where, fall, _fewest(by_rate[rate])))
    return cases


def correction_helps(results: ByName) -> list[Case]:
    """Return the gain of every DM by a second training on corrected labels."""
    cases = []
    for each, block in _blocks(results):
        for line in block.lines:
            retrained, final = line.measured.get("retrained"), line.measured.get("final")
            if line.row.startswith("DM") and retrained and final:
                gain = 100 * (retrained.mean - final.mean)
                where = f"{block.experiment}, {block.column}, {line.row}: {gain:+.1f}"
                cases.append(_case(each, where, gain, min(retrained.seeds, final.seeds)))
    return cases


def one_rate_serves(results: ByName) -> list[Case]:
    """Return how much every row gains at its own best learning rate over the shared one."""
    cases = []
    for each in results.values():
        by_place = {(block.column, block.kind): block for block in blocks(each) if block.kind is not None}
        for (column, kind), block in by_place.items():
            chosen = by_place.get((OWN_RATE, kind)) if column.startswith("lr ") else None
            if chosen is None:
                continue
            (shared, own), (shared_best, own_best) = (
                (_scores(block, metric), _scores(chosen, metric)) for metric in ("final", "best")
            )
            for row in [row for row in shared if row in own]:
                best = abs(own_best[row] - shared_best[row]) if row in shared_best and row in own_best else None
                where = f"{each.experiment.name}, {row} from {shared[row]:.1f} to {own[row]:.1f}"
                seeds = min(_seeds(block, row), _seeds(chosen, row))
                cases.append(_case(each, where, abs(own[row] - shared[row]), seeds, best))
    return cases


CLAIMS = (
    Claim(
        "Noisy labels have a lower p than clean ones throughout training.",
        "share of a run's evaluations at which the mean p of noisy labels is below that of clean ones, in percent",
        ("at all evaluations", "at 95 % of them", "at half of them"),
        at_least(100, 95, 50),
        noisy_below_clean,
        "The exceptions are evaluations at which the net is at chance, so that both means are close to 1 / classes.",
    ),
    Claim(
        "Early stopping is unnecessary with DM.",
        "best - final accuracy, in points, of every DM with lam > 0 that the paper prints, under noise",
        ("within 1 point", "within 2 points", "within 3 points"),
        at_most(1, 2, 3),
        stopping_unnecessary,
        "DM loses most on the 100 classes of Tiny-ImageNet. In the paper's own table, too, DMs with a small lam lose "
        "far more at 60 and 80 % noise. A net that has collapsed meets the threshold: it has nothing to lose.",
    ),
    Claim(
        "Accuracy on the true training labels is always consistent with test accuracy.",
        "correlation of the two over all runs of a net on a data set at one noise rate",
        ("at least 0.99", "at least 0.9", "at least 0.8"),
        at_least(0.99, 0.9, 0.8),
        clean_tracks_test,
        "The two part where nearly all runs are equally accurate, so that what is left is chance.",
    ),
    Claim(
        "The best emphasis mode rises with the noise rate.",
        "change of the mode of the best DM from one noise rate of an ablation to the next",
        ("rises", "rises", "does not fall"),
        lambda value, i: value >= -DIVIDES if i == 2 else value > DIVIDES,
        mode_rises,
        "Here every setting has its own learning rate. The paper's share one, which favours some of them (claim 9). Up "
        "to 60 % noise the two best modes differ by less than seeds do. The ablation on CIFAR-10 is not complete.",
    ),
    Claim(
        "CCE is very competitive with MAE, MSE and GCE.",
        "points by which CCE ends behind the best of them, in every noisy column with all four",
        ("within 1 point", "within 2 points", "within 5 points"),
        at_most(1, 2, 5),
        cce_competitive,
        "The paper prints the best of 30 test checkpoints. CCE reaches its best before it memorises noisy labels, so "
        "that selection on the test set hides what it loses by the end.",
    ),
    Claim(
        "DM is the best in every block.",
        "points by which the best DM ends behind the best other row, in every column with DM, GCE and another row",
        ("best", "within 1 point of it", "within 2 points of it"),
        at_most(0, 1, 2),
        dm_best,
        "By the authors' protocol, with balanced batches and weight decay 5e-4, DM(0.5, 8) is the best on "
        "Tiny-ImageNet. By ours GCE(0.7), which needs no search, is slightly ahead up to 60 % noise and far ahead at "
        "80 %. ELR, which is newer than the paper, is ahead of both.",
    ),
    Claim(
        "Models collapse where the emphasis variance is too large.",
        "points by which the largest beta of a mode ends below the best beta of that mode, in an ablation",
        ("20 points or more", "10 points or more", "5 points or more"),
        at_least(20, 10, 5),
        variance_collapses,
        "A narrow density gives all weight to the classes that are learnt first. The net stops learning the others.",
        exists=True,
    ),
    Claim(
        "Label correction with DM helps.",
        "gain of a second training on corrected labels over the first, in points",
        ("1 point or more", "0.2 points or more", "a loss of at most 0.5"),
        at_least(1, 0.2, -0.5),
        correction_helps,
        "DM leaves little to gain: it has memorised few wrong labels. After cross entropy the same correction gains "
        "more. CIFAR-10 is not measured.",
    ),
    Claim(
        "One learning rate serves all rows of a table (implied by the paper, not stated).",
        "points between a row at the shared learning rate and at its own best one",
        ("within 1 point", "within 2 points", "within 5 points"),
        at_most(1, 2, 5),
        one_rate_serves,
        "Normalising over the batch makes steps larger, most where few examples have weight: GCE-DN, MAE-DN, MSE-DN "
        "and narrow DMs choose a rate of 0.01 or 0.03. CCE, GCE and DM(0.5, 12) stay at 0.1.",
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


def _entries(results: ByName) -> Iterator[tuple[str, Results, Entry]]:
    """Yield every finding once, even if it is in several tables."""
    seen = set()
    for name, each in results.items():
        for entry in each.entries:
            if entry.finding.name not in seen:
                seen.add(entry.finding.name)
                yield name, each, entry


def _blocks(results: ByName) -> Iterator[tuple[Results, Block]]:
    """Yield all measured blocks."""
    for each in results.values():
        for block in blocks(each):
            if block.kind is not None:
                yield each, block


def _scores(block: Block, metric: str = "final") -> dict[str, float]:
    return {line.row: 100 * line.measured[metric].mean for line in block.lines if metric in line.measured}


def _seeds(block: Block, *rows: str) -> int:
    return min(len(line.seeds) for line in block.lines if line.row in rows)


def _names(results: Results, block: Block, *rows: str) -> frozenset[str]:
    """Return the names of the findings in rows of a block's column."""
    return frozenset(e.finding.name for e in results.entries if e.column == block.column and e.row in rows)


def _case(results: Results, where: str, value: float, seeds: int, best: float | None = None) -> Case:
    data = results.entries[0].finding.run.data
    return Case(where, data, results.experiment.protocol, value, seeds, best)


Ablation: TypeAlias = "dict[float, dict[tuple[float, float], tuple[float, int]]]"
"""rate -> (lam, beta) -> final accuracy and number of seeds."""


def _fewest(settings: Mapping[tuple[float, float], tuple[float, int]]) -> int:
    return min(seeds for _, seeds in settings.values())


def _ablations(results: ByName) -> list[tuple[Results, Ablation]]:
    """Return every ablation, separately for each kind."""
    found: dict[tuple[str, Kind], tuple[Results, Ablation]] = {}
    for each, block in _blocks(results):
        if block.experiment.partition("-")[0] != ABLATION or block.kind is None:
            continue
        rate = float(block.column.removeprefix("r = "))
        for row, final in _scores(block).items():
            parameters = dm_parameters(row)
            if parameters is not None and row not in UNIFORM:
                _, ablation = found.setdefault((block.experiment, block.kind), (each, {}))
                ablation.setdefault(rate, {})[parameters] = final, _seeds(block, row)
    return list(found.values())
