"""The first page of results: what works, how well, for how much; the claims; three findings; the list of tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from paper.claims import UNIFORM, Verdict
from paper.experiment import Experiment
from paper.figures import Panels
from paper.findings import Entry, Results
from paper.missing_data import STAND_INS, data_of
from paper.protocols import dm_parameters
from paper.tables import Block, Line, Measured, TextTable, blocks, has_one_seed, markdown_table, measured_text
from reweigh.lab.figures.figure import Lines, Series
from reweigh.lab.report.collect import Group, group
from reweigh.lab.report.figures import dynamics

CLAIMS, MISSING = "results-claims.md", "results-missing.md"
NAMES = {"cifar10": "CIFAR-10", "tin100": "100 classes of Tiny-ImageNet", "imdb": "IMDB", "digits": "digits"}
PLACES = (  # what the first table shows: experiment, column, words
    ("cifar10_rivals", "r = 0.4", "CIFAR-10, 40 % wrong, ResNet-56"),
    ("cifar10_rates", "r = 0.2", "20 % wrong"),
    ("cifar10_rates", "r = 0.6", "60 % wrong"),
    ("cifar10_rates", "r = 0.8", "80 % wrong"),
    ("cifar10_rates", "r = 0", "clean labels"),
    ("tin100_table1", "symmetric 0.4", "Tiny-ImageNet, 100 classes, 40 % wrong, ResNet-44"),
    ("imdb_noise", "r = 0.4", "IMDB, 40 % wrong, one hidden layer"),
    ("auto_digits", "symmetric 0.4", "digits, 40 % wrong, one hidden layer"),
)
SHOWN = ("CCE", "GCE(0.7)", "DM(0.5, 12)", "ELR")  # of findings 1 and 2
RIVALS, POINTS = "cifar10_rivals", 40
ABLATION, LOW, HIGH = "ablation-digits", "r = 0.2", "r = 0.8"  # of finding 3

INTRO = """# Our results and the paper's

Labels are wrong at random here, always at the stated rate of *symmetric* noise: which robust loss keeps the accuracy,
and which claims of the paper hold? All numbers come from the records in `paper/results`, and `python -m paper page`
writes these pages from them. Accuracies are in percent, at the end of training, mean ± standard deviation over seeds.

## What works, how well, and for how much"""


class Section(NamedTuple):
    """An experiment with results: its name, its title and its page."""

    name: str
    title: str
    page: str


def data_name(data: str) -> str:
    """Return the name of a data set in text."""
    return NAMES.get(data, data)


def page_of(results: Results) -> str:
    """Return the page that has the tables of an experiment: that of its data set, CIFAR-10 if nothing is trained."""
    return f"results-{next((entry.finding.run.data for entry in results.entries), 'cifar10')}.md"


def front_page(
    results: Mapping[str, Results],
    judged: Sequence[Verdict],
    sections: Sequence[Section],
    left: Sequence[Experiment],
    figures: Collection[str],
) -> str:
    """Return the first page."""
    parts = [INTRO]
    if table := overview(results):
        parts += [markdown_table(table), advice(results)]
    parts += ["## Claims of the paper", claims_text(judged)]
    if findings := [text for name, text in findings_texts(results).items() if name in figures]:
        parts += ["## Three findings", *findings]
    parts += ["## All tables", tables_text(results, sections), not_measured(left)]
    return "\n\n".join(part for part in parts if part) + "\n"


def block_at(results: Mapping[str, Results], name: str, column: str) -> Block | None:
    """Return a measured column of an experiment."""
    found = blocks(results[name]) if name in results else []
    return next((block for block in found if block.column == column and block.kind is not None), None)


def overview(results: Mapping[str, Results]) -> TextTable | None:
    """Return a table of `PLACES`: CCE, GCE, the best DM, the best row of all, and the seeds."""
    rows = []
    for name, column, words in PLACES:
        block = block_at(results, name, column)
        if block is None:
            continue
        lines = [line for line in block.lines if "final" in line.measured]
        dms = [line for line in lines if line.row.startswith("DM") and line.row not in UNIFORM]
        cells = [
            _cell(next((line for line in lines if line.row == "CCE"), None)),
            _cell(next((line for line in lines if line.row in ("GCE", "GCE(0.7)")), None)),
            _cell(_highest(dms), named=True),
            _cell(_highest(lines), named=True),
        ]
        seeds = sorted({len(line.seeds) for line in lines})
        seed_text = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        rows.append((words, *cells, seed_text))
    names = ("", "cross entropy", "GCE(0.7)", "best DM", "best of all rows", "seeds")
    return TextTable("", names, rows) if rows else None


def _highest(lines: Sequence[Line]) -> Line | None:
    return max(lines, key=lambda line: line.measured["final"].mean, default=None)


def _cell(line: Line | None, named: bool = False) -> str:
    if line is None:
        return "-"
    text = measured_text(line.measured["final"], len(line.seeds))
    return f"{text}, {line.row}" if named and line.row != "DM" else text


def advice(results: Mapping[str, Results]) -> str:
    """Return what the table says, and what it costs."""
    lines = []
    block = block_at(results, *PLACES[0][:2])
    if block is not None:
        final = {line.row: line.measured["final"] for line in block.lines if "final" in line.measured}
        gains = [
            f"{row} ends {100 * (final[row].mean - final['CCE'].mean):.1f}"
            for row in ("GCE(0.7)", "DM(0.5, 12)", "ELR")
            if {row, "CCE"} <= final.keys()
        ]
        if gains:
            lines.append(f"- **With 40 % wrong labels** on CIFAR-10, {', '.join(gains)} points above cross entropy.")
    clean = block_at(results, "cifar10_rates", "r = 0")
    if clean is not None:
        final = {line.row: line.measured["final"] for line in clean.lines if "final" in line.measured}
        losses = [f"{row} loses {100 * (final['CCE'].mean - final[row].mean):.1f}" for row in ("GCE", "DM")]
        lines.append(f"- **On clean labels** {' and '.join(losses)} points (one seed).")
    lines.append(
        "- **Best rows are chosen by their test accuracy**, so they are optimistic where many rows compete. GCE(0.7) "
        "is the same setting everywhere, and the safe first choice."
    )
    if RIVALS in results and "cifar10_headline" in results and results["cifar10_headline"].experiment.cost is not None:
        experiment = results["cifar10_headline"].experiment
        lines.append(
            f"- **Cost**: a weighting adds no forward or backward pass. A run on CIFAR-10 takes {experiment.cost:g} s "
            f"on {experiment.cost_on}. Co-teaching trains two nets; ELR and Auto keep a row of class probabilities for "
            "each example."
        )
    return "\n".join(lines)


def claims_text(judged: Sequence[Verdict]) -> str:
    """Return the table of verdicts."""
    head = (
        f"Each claim is split into cases, counted at three thresholds. The middle one decides: 95 % of the cases must "
        f"meet it for *holds*, two thirds for *holds mostly*; fewer than three cases decide nothing. [The claims in "
        f"detail]({CLAIMS}) has the counts by protocol and by the best test checkpoint, and the exceptions."
    )
    rows = []
    for number, each in enumerate(judged, 1):
        counts = "-"
        if each.cases:
            pairs = dict(zip(each.claim.words, each.counts(), strict=True))
            data = ", ".join(sorted({case.data for case in each.cases}))
            met = ", ".join(f"{words} {count}" for words, count in pairs.items())
            counts = f"of {len(each.cases)} ({data}): {met}"
        rows.append((f"{number}. {each.claim.text}", f"**{each.verdict}**", counts, each.claim.why))
    table = markdown_table(TextTable("", ("claim", "verdict", "cases", "explanation"), rows))
    return f"{head}\n\n{table.replace('---:', '---')}"


def findings_figures(results: Mapping[str, Results]) -> dict[str, Panels]:
    """Return the figures of the findings whose results exist, by file name."""
    found: dict[str, Panels] = {}
    if RIVALS in results:
        entries = [entry for entry in results[RIVALS].entries if entry.row in SHOWN]
        for key, shown, title in (
            ("accuracy", SHOWN, "Test accuracy, CIFAR-10, 40 % wrong labels"),
            ("p", SHOWN[:3], "Mean p of clean and noisy labels, CIFAR-10, 40 % wrong labels"),
        ):
            for figure in dynamics(_groups([entry for entry in entries if entry.row in shown]), POINTS):
                if figure.key == key:
                    found[f"finding-{key}.svg"] = Panels([replace(figure, title=title)], 1)
    low, high = (block_at(results, ABLATION, column) for column in (LOW, HIGH))
    if low is not None and high is not None:
        found["finding-beta.svg"] = Panels([_betas(low, high)], 1)
    return found


def _groups(entries: Sequence[Entry]) -> list[Group]:
    order = {row: i for i, row in enumerate(SHOWN)}
    return group([entry.finding.run_summary() for entry in sorted(entries, key=lambda each: order[each.row])])


def _betas(*several: Block) -> Lines:
    """Return final accuracy over beta, one line for each lam and block; blocks differ in their dashes."""
    series = []
    for variant, block in enumerate(several):
        words = f"{100 * float(block.column.removeprefix('r = ')):g} % wrong"
        values: dict[float, list[tuple[float, Measured]]] = {}
        for line in block.lines:
            parameters = dm_parameters(line.row)
            if parameters is not None and line.row not in UNIFORM and "final" in line.measured:
                values.setdefault(parameters[0], []).append((parameters[1], line.measured["final"]))
        for number, (lam, pairs) in enumerate(sorted(values.items())):
            pairs.sort(key=lambda pair: pair[0])
            x, y = tuple(beta for beta, _ in pairs), tuple(value.mean for _, value in pairs)
            spread = tuple(value.deviation for _, value in pairs)
            series.append(Series(f"λ = {lam:g}: {words}", x, y, spread, number, variant, words))
    title = "Digits: final accuracy of DM(λ, β)"
    return Lines("betas", title, title, "β", "final test accuracy", tuple(series), percent=True, top=1.0)


def findings_texts(results: Mapping[str, Results]) -> dict[str, str]:
    """Return heading, sentence and figure of every finding, by the file name of the figure."""
    texts: dict[str, str] = {}
    block = block_at(results, RIVALS, "r = 0.4")
    if block is not None:
        lines = {line.row: line for line in block.lines}
        falls = [
            f"{row} {100 * (lines[row].measured['best'].mean - lines[row].measured['final'].mean):.1f}"
            for row in SHOWN
            if row in lines and {"best", "final"} <= lines[row].measured.keys()
        ]
        texts["finding-accuracy.svg"] = _finding(
            "1. Cross entropy memorises wrong labels at the end; robust losses hardly do",
            f"Points lost between the best evaluation and the end: {', '.join(falls)}. The loss comes after the "
            "learning rate falls.",
            "Test accuracy over iterations of cross entropy, GCE, DM and ELR",
            "finding-accuracy.svg",
        )
        entries = [entry for entry in results[RIVALS].entries if entry.row in SHOWN[:3]]
        ends = [text for row in SHOWN[:3] if (text := _p_at_end(row, entries))]
        texts["finding-p.svg"] = _finding(
            "2. Wrong labels keep a lower p, which is why a function of p alone can tell them apart",
            f"Mean p at the end, of clean and of wrong labels: {'; '.join(ends)}. The gap is what the paper builds on, "
            "and it exists with every loss.",
            "Mean p of clean and noisy labels over iterations",
            "finding-p.svg",
        )
    wide, narrow = (_fall(block_at(results, ABLATION, column)) for column in (LOW, HIGH))
    if wide is not None and narrow is not None:
        texts["finding-beta.svg"] = _finding(
            "3. A narrow density collapses at high noise",
            f"Between the best and the largest β of a mode lie at most {wide:.1f} points at 20 % noise, and up to "
            f"{narrow:.1f} at 80 %. On CIFAR-10, DM(1, 16) stops learning entire classes ([tables]"
            "(results-cifar10.md)). Start wide, such as DM(0.5, 8).",
            "Final accuracy over beta at 20 and 80 % noise",
            "finding-beta.svg",
        )
    return texts


def _finding(title: str, text: str, alternative: str, figure: str) -> str:
    return f"### {title}\n\n{text}\n\n![{alternative}](figures/{figure})"


def _p_at_end(row: str, entries: Sequence[Entry]) -> str:
    pairs = [
        (columns["p_clean"][-1], columns["p_noisy"][-1])
        for entry in entries
        if entry.row == row and (columns := entry.finding.columns) and "p_clean" in columns
    ]
    known = [(clean, noisy) for clean, noisy in pairs if clean is not None and noisy is not None]
    if not known:
        return ""
    clean, noisy = (sum(column) / len(known) for column in zip(*known, strict=True))
    return f"{row} {clean:.2f} and {noisy:.2f}"


def _fall(block: Block | None) -> float | None:
    """Return the most points between the best and the largest beta of a mode."""
    if block is None:
        return None
    falls = []
    for line in _betas(block).series:
        values = [value for value in line.y if value is not None]
        falls.append(100 * (max(values) - values[-1]))
    return max(falls, default=None)


def tables_text(results: Mapping[str, Results], sections: Sequence[Section]) -> str:
    """Return a list of the pages with their tables; those in which every row has one seed are marked."""
    parts = []
    for page in dict.fromkeys(section.page for section in sections):
        here = [section for section in sections if section.page == page]
        data = next((e.finding.run.data for each in here for e in results[each.name].entries), "cifar10")
        titles = (f"{each.title}{' (one seed)' * _is_single(results[each.name])}" for each in here)
        parts.append("\n".join([f"[Results: {data_name(data)}]({page})", "", *(f"* {title}" for title in titles)]))
    return "\n\n".join(parts)


def _is_single(results: Results) -> bool:
    measured = [block for block in blocks(results) if block.kind is not None]
    return bool(measured) and all(has_one_seed(block) for block in measured)


def not_measured(left: Sequence[Experiment]) -> str:
    """Return which experiments have no results, and why."""
    missing = [each for each in left if data_of(each) in STAND_INS]
    waiting = [each for each in left if each not in missing]
    lines = []
    if waiting:
        names = ", ".join(f"`{each.name}`" for each in waiting)
        lines.append(f"- Not run yet (`python -m paper next` runs them, the most important first): {names}.")
    if missing:
        names = ", ".join(f"`{each.name}`" for each in missing)
        lines.append(f"- [Data could not be had]({MISSING}): {names}.")
    return "\n".join(["## Not measured", "", *lines]) if lines else ""
