from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paper import Cell, Choice, Experiment, Option, Reported, Row, grid
from paper.experiment import load, load_all
from reweigh.errors import DataError
from reweigh.lab.spec import Run


def table(*cells: Cell) -> Experiment:
    return Experiment("toy", "A toy", "ours", cells)


def test_columns_and_rows_keep_their_order(tiny: Callable[..., Run]) -> None:
    cells = grid(("b", "a"), [Row("second", lambda c: tiny() if c == "a" else None), Row("first", lambda c: tiny())])
    found = table(*cells)
    assert found.columns == ("b", "a")
    assert [(cell.row, cell.column) for cell in cells] == [("first", "b"), ("second", "a"), ("first", "a")]


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("", ["CCE", "CCE-DN", "DM"]),
        ("cce", ["CCE", "CCE-DN"]),
        ("symmetric 0.4", ["CCE"]),  # not asymmetric
        ("0", []),  # not 0.4
        ("OURS asymmetric", ["CCE-DN", "DM"]),
    ],
)
def test_only_matches_beginnings_of_words_and_whole_numbers(words: str, rows: list[str]) -> None:
    found = table(Cell("CCE", "symmetric 0.4"), Cell("CCE-DN", "asymmetric 0.4"), Cell("DM", "asymmetric 0.2"))
    assert [cell.row for cell in found.only(words).cells] == rows


def test_bad_tables_are_refused(tiny: Callable[..., Run]) -> None:
    with pytest.raises(ValueError, match="duplicate cell CCE / a"):
        table(Cell("CCE", "a"), Cell("CCE", "a"))
    with pytest.raises(ValueError, match="did you mean 'final'"):
        Reported("finall", 1.0)
    with pytest.raises(ValueError, match="protocol is 'auhors'; did you mean 'authors'"):
        replace(table(), protocol="auhors")
    with pytest.raises(ValueError, match="has no hold-out"):
        Choice("beta", (Option("1", tiny(), tiny()),))
    with pytest.raises(ValueError, match="row CCE has 2 numbers for 1 columns"):
        grid(("a",), [Row("CCE", lambda column: tiny(), "1.0 2.0")])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("EXPERIMENT = 3", "EXPERIMENT must be an Experiment or a list of them, not int"),
        ("x = 1", "not NoneType"),
        ("EXPERIMENT = (", "line 1: '\\(' was never closed"),
    ],
)
def test_a_file_without_an_experiment_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load(path)


def test_two_experiments_with_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.py" for name in ("a", "b", "c")]
    for path, name in zip(paths, ("one", "two", "one"), strict=True):
        path.write_text(f"from paper import Experiment\nEXPERIMENT = Experiment('{name}', '', 'ours', ())")
    assert [each.name for each in load_all([*paths[:2], paths[0]])] == ["one", "two"]
    with pytest.raises(DataError, match=r"c\.py: .*a\.py has an experiment 'one', too"):
        load_all(paths)
    paths[0].write_text("from paper import Experiment\nEXPERIMENT = [Experiment('a', '', 'ours', ())] * 2")
    with pytest.raises(DataError, match="has an experiment 'a', too"):
        load_all(paths[:1])


def test_an_experiment_can_import_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from paper.experiments.taper import EXPERIMENT as TAPER\n"
        "EXPERIMENT = replace(TAPER, name='mine')\n"
    )
    assert load(path)[0].name == "mine"
    for missing in (tmp_path / "none.py", tmp_path):
        with pytest.raises(DataError, match="no such file"):
            load(missing)
