from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.cli.app import app
from reweigh.lab.figures import Bars, Figure, Heat, Lines, Series, draw_figures, write_figures
from reweigh.lab.report import Group, collect, group
from reweigh.lab.report.figures import densities, dynamics, group_figures
from reweigh.lab.run import execute
from reweigh.lab.spec import Run

CURVE = Lines("curve", "A curve", "", "x", "y", (Series("line", (0.0, 1.0), (0.0, 1.0)),))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for rate, best in ((0.2, 0.5), (0.4, 1)):
        for lam in (0.5, 1):
            for beta in (4, 8):
                make_run(root, f"DM({lam}, {beta})", rate=rate, top=0.9 if lam == best else 0.8)
    make_run(root, "CCE")
    make_run(root, "CCE", rate=None)
    return root


@pytest.fixture(scope="module")
def groups(runs: Path) -> list[Group]:
    return group(collect([runs]).runs)


def test_every_figure_of_runs_can_be_drawn(groups: list[Group]) -> None:
    emphasis = densities(groups)
    assert emphasis is not None
    figures = [*dynamics(groups), emphasis, *group_figures(groups[0])]
    assert {type(figure).__name__ for figure in figures} == {"Lines", "Stack", "Heat", "Bars"}
    assert len(draw_figures(figures, columns=4).axes) >= len(figures)


def test_figures_without_true_labels(groups: list[Group]) -> None:
    unknown = next(member for member in groups if not member.truth)
    assert {figure.key for figure in group_figures(unknown)} == {
        *("weight-share", "p-histogram", "p-by-class", "class-accuracy", "reliability")
    }
    assert [figure.key for figure in dynamics([unknown])] == ["accuracy", "p", "training", "calibration"]


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_files(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        write_figures([CURVE], tmp_path / f"{name}.{suffix}")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    assert content.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix])
    assert content == (tmp_path / f"b.{suffix}").read_bytes()
    with pytest.raises(ValueError, match=r"a figure ends in .png, .svg, .pdf"):
        write_figures([CURVE], tmp_path / "a.txt")


@pytest.mark.parametrize("name", ["US$ and A$", "$_$", r"$\frac$", "a_b"])
def test_names_are_drawn_literally(tmp_path: Path, name: str) -> None:
    line, pair = Series(name, (0.0, 1.0), (0.0, 1.0)), (name, "other")
    figures: list[Figure] = [
        Lines("lines", name, "", name, name, (line,)),
        Heat("heat", name, "", name, name, pair, pair, ((1.0, None), (None, 2.0))),
        Bars("bars", name, "", name, name, pair, ((name, (0.5, None)), ("more", (0.5, 1.0)))),
    ]
    write_figures(figures, tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text().count(f"<!-- {name}")  # matplotlib comments each text with its source
    titles_and_axes, line_in_legend, ticks, bar_in_legend = 3 * 3, 1, 2 + 1, 1
    assert drawn == titles_and_axes + line_in_legend + ticks + bar_in_legend


def test_event_files_hold_every_number(tmp_path: Path, runs: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from reweigh.lab.report.events import write_events

    run = collect([runs]).runs[0]
    (folder,) = write_events([run], tmp_path / "events")
    read = EventAccumulator(str(folder), size_guidance={"histograms": 0}).Reload()
    scalars = [(event.step, event.value) for event in read.Scalars("test/accuracy")]
    assert scalars == [(row["step"], pytest.approx(row["test_accuracy"])) for row in run.rows]
    assert len(read.Histograms("weight/histogram")) == len(run.rows)
    with pytest.raises(ValueError, match="already exists"):
        write_events([run], tmp_path / "events")
    other = run._replace(folder=tmp_path / run.folder.name)
    with pytest.raises(ValueError, match="have the same name"):
        write_events([run, other], tmp_path / "more")
    assert not (tmp_path / "more").exists()


def command(*arguments: str) -> Any:
    from typer.testing import CliRunner

    return CliRunner().invoke(app, list(arguments))


def test_commands(tmp_path: Path, runs: Path) -> None:
    page = tmp_path / "page.html"
    ended = command("report", str(runs), "-o", str(page), "--title", "Mine", "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout) == {"runs": 10, "files": [str(page)]}
    assert "<title>Mine · reweigh</title>" in page.read_text(encoding="utf-8")
    ended = command("explore", "GCE(0.5)", "-o", str(tmp_path / "explore.html"))
    assert '"start":{"name":"GCE","values":{"q":0.5}}' in (tmp_path / "explore.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_figure_as_a_file(tmp_path: Path, runs: Path) -> None:
    one = next(runs.glob("*CCE-symmetric*"))
    ended = command(
        *("report", str(one), "-o", str(tmp_path / "page.html"), "--json"),
        *("--figures", str(tmp_path / "figures"), "--tensorboard", str(tmp_path / "events")),
    )
    assert ended.exit_code == 0, ended.output
    written = [Path(file) for file in json.loads(ended.stdout)["files"]]
    assert len(written) == 1 + 7 + 8 + 1  # page, figures over time and densities, figures of the group, events
    assert all(file.is_dir() or file.stat().st_size > 0 for file in written)


def test_figures_of_changed_data_are_written_apart(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    for root, data in (("old", "c"), ("new", "d")):
        make_run(tmp_path / root, data_hash=data * 64)
    folders = [str(tmp_path / root) for root in ("old", "new")]
    ended = command("report", *folders, "-o", str(tmp_path / "a.html"), "--figures", str(tmp_path / "drawn"), "--json")
    files = json.loads(ended.stdout)["files"]
    assert len(set(files)) == len(files) > 2


def test_wrong_input_is_one_message(tmp_path: Path) -> None:
    ended = command("report", str(tmp_path))
    assert (ended.exit_code, ended.output.count("\n")) == (3, 1)
    assert "neither a run nor a folder of runs" in ended.output
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    ended = command("report", str(tmp_path), "-o", str(tmp_path / "page.html"))
    assert ended.exit_code == 3
    assert "none of these runs can be read" in ended.output
    assert not (tmp_path / "page.html").exists()
    assert command("explore", "DMM").exit_code == 2


def test_the_noisy_holdout_is_named(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    for weighting, holdout in (("CCE", "noisy hold-out"), ("GCE(0.7)", "test")):
        make_run(tmp_path, weighting, rate=None, holdout=holdout)
    both = sorted(group(collect([tmp_path]).runs), key=lambda member: member.label)
    shown = {figure.key: figure for figure in dynamics(both)}
    for key in ("accuracy", "calibration"):
        assert [(series.words, series.variant) for series in shown[key].series] == [("noisy hold-out", 2), ("", 0)]
        assert "with its given labels" in shown[key].caption
    assert "hold-out" not in shown["training"].caption
    alone = {figure.key: figure for figure in [*dynamics(both[:1]), *group_figures(both[0])]}
    assert alone["accuracy"].title == "Noisy hold-out accuracy"
    assert alone["class-accuracy"].caption.startswith("On the noisy hold-out set")
    assert "predictions on the noisy hold-out" in alone["reliability"].caption
    assert not [figure for figure in [*dynamics(both[1:]), *group_figures(both[1])] if "hold-out" in figure.caption]


def test_a_run_that_diverged_can_be_drawn(tmp_path: Path) -> None:
    diverging = Run(
        data="digits", net="mlp-8", weighting="CCE", lr=1e12, iterations=20, evaluate_every=10, device="cpu"
    )
    execute(diverging, tmp_path)
    (run,) = collect([tmp_path]).runs
    assert run.state == "done, but training diverged by iteration 10"
    figures = [*dynamics(group([run])), *group_figures(group([run])[0])]
    assert "reliability" not in {figure.key for figure in figures}
    draw_figures(figures)


@pytest.mark.parametrize("count", [4, 12])
def test_a_long_legend_hides_no_line(count: int) -> None:
    pytest.importorskip("matplotlib")
    series = tuple(Series(f"line {k}", (0, 1, 2), (0.1 * k, 0.2 * k, 0.1)) for k in range(count))
    drawn = draw_figures([Lines("many", "Many lines", "", "x", "y", series)])
    drawn.draw_without_rendering()
    (axes,) = drawn.axes
    legend, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert (legend.x0 >= panel.x1) == (count > 8)
    assert legend.x1 <= drawn.bbox.x1
