from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper import Cell, Choice, Experiment, Option, Reported, Row, grid
from paper.load import load, load_all
from paper.presets import paper
from paper.protocols import BETAS, ours, search_beta, search_rate, shortened, trial_of
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
def test_only_takes_words_from_their_beginning_and_numbers_as_a_whole(words: str, rows: list[str]) -> None:
    found = table(Cell("CCE", "symmetric 0.4"), Cell("CCE-DN", "asymmetric 0.4"), Cell("DM", "asymmetric 0.2"))
    assert [cell.row for cell in found.only(words).cells] == rows


def test_what_is_wrong_is_refused_with_a_sentence(tiny: Callable[..., Run]) -> None:
    with pytest.raises(ValueError, match="cell CCE / a is there twice"):
        table(Cell("CCE", "a"), Cell("CCE", "a"))
    with pytest.raises(ValueError, match="did you mean 'final'"):
        Reported("finall", 1.0)
    with pytest.raises(ValueError, match="protocol is 'auhors'; did you mean 'authors'"):
        replace(table(), protocol="auhors")
    with pytest.raises(ValueError, match="holds nothing out"):
        Choice("beta", (Option("1", tiny(), tiny()),))
    with pytest.raises(ValueError, match="row CCE has 2 numbers for 1 columns"):
        grid(("a",), [Row("CCE", lambda column: tiny(), "1.0 2.0")])


def test_our_protocol_is_the_one_first_measured_with() -> None:
    run = ours(0.4, weighting="GCE(0.7)")
    assert (run.net, run.batch_size, run.lr, run.weight_decay) == ("resnet56", 256, 0.1, 5e-4)
    assert (run.augment, run.precision, run.noise_count, run.include_true) == (
        *("pad-crop-flip", "bf16", "per_class"),
        False,
    )
    assert ours(0, weighting="CCE").noise is None


def test_a_shortened_run_has_the_same_course() -> None:
    run = paper("mars", weighting="CCE")
    assert shortened(run, 0.1).schedule == "halving(every=1000)"
    assert shortened(replace(run, schedule="halving(10000)"), 0.1).schedule == "halving(every=1000)"
    short = shortened(paper("cifar100", rate=0.4), 0.5)
    assert (short.iterations, short.schedule, short.evaluate_every) == (15_000, "step(0.1, at=[7500, 11000])", 500)
    assert shortened(run, 1e-9).iterations == 1


@pytest.mark.parametrize(
    ("whole", "quarter"),
    [
        ({"weighting": "DM(1, linear(0, 16, until=5000))"}, {"weighting": "DM(1, linear(0, 16, until=1250))"}),
        ({"weighting": "DM(1, linear(0, 16, until=0.1))"}, {"weighting": "DM(1, linear(0, 16, until=0.1))"}),
        (
            {"weighting": "CCE + 0.5 * Tapered(DM(1, step(0, 8, 16, at=[0.1, 8000])), cosine(1, 0, until=2))"},
            {"weighting": "CCE + 0.5 * Tapered(DM(1, step(0, 8, 16, at=[0.1, 2000])), cosine(1, 0, until=1.5))"},
        ),
        (
            {"weighting": "DM(1, 16)", "taper": "linear(0.001, 0, until=400)"},
            {"weighting": "DM(1, 16)", "taper": "linear(0.001, 0, until=100)"},
        ),
        ({"weighting": "DM(1, 16)", "taper": 0.25}, {"weighting": "DM(1, 16)", "taper": 0.25}),
        ({"loss": "BootstrapHard(linear(1, 0.8, until=400))"}, {"loss": "BootstrapHard(linear(1, 0.8, until=100))"}),
        (
            {"method": "CoTeaching(forget_rate=linear(0, 0.4, until=4000))"},
            {"method": "CoTeaching(linear(0, 0.4, until=1000), 2)"},
        ),
        ({"method": "CoTeaching(0.4, warm_up=40)"}, {"method": "CoTeaching(0.4)"}),
        ({"method": "D2L(34, k=10)"}, {"method": "D2L(8, 2, 10)"}),
        ({"method": "D2L(start=0, window=2)"}, {"method": "D2L(0, 2)"}),
        ({"method": "MDYRH"}, {"method": "MDYRH(26)"}),
        ({"method": "MDYRH(3)"}, {"method": "MDYRH(0)"}),
        ({"method": "MDDYRSH(cooling=2)"}, {"method": "MDDYRSH(26, 27, 1)"}),
        ({"method": "PrunedGCE(start=41)"}, {"method": "PrunedGCE(start=10, every=2)"}),
        ({"method": "LDAM(drw_at=160)"}, {"method": "LDAM(drw_at=40)"}),
        ({"method": "LDAM"}, {"method": "LDAM"}),
        ({"method": "Decoupling(5000)"}, {"method": "Decoupling(1250)"}),
        ({"method": "MentorNetPD(mentor='net')"}, {"method": "MentorNetPD(mentor='net')"}),
        ({"method": "JointLabels('a.npy')"}, {"method": "JointLabels('a.npy', begin=17, slots=2)"}),
        ({"method": "Curriculum('a.npy', start=0.5)"}, {"method": "Curriculum('a.npy', start=0.5)"}),
    ],
)
def test_what_has_its_time_is_shortened_with_the_run(whole: dict[str, Any], quarter: dict[str, Any]) -> None:
    short = shortened(Run(data="digits", net="mlp-8", iterations=20_000, **whole), 0.25)
    assert {name: getattr(short, name) for name in quarter} == quarter


def test_a_search_tries_every_beta_on_four_fifths() -> None:
    choice = search_beta(lambda weighting: ours(0.4, weighting=weighting), 0.5)
    assert [option.run.weighting for option in choice.options] == [f"DM(0.5, {beta})" for beta in BETAS]
    for option in choice.options:
        assert (option.trial.validation, option.trial.validation_labels) == (0.2, "clean")
        assert option.run.validation == 0
        assert option.trial.iterations == 5_000
    rates = search_rate(ours(weighting="CCE"), short=0.1)
    assert [option.run.lr for option in rates.options] == [0.01, 0.03, 0.1, 0.3]
    assert {(option.trial.iterations, option.trial.evaluate_every) for option in rates.options} == {(2_000, 1_000)}
    assert trial_of(replace(ours(weighting="CCE"), iterations=5), 1, looks=2).evaluate_every == 3


def test_trials_are_those_of_the_search(tiny: Callable[..., Run]) -> None:
    """So that `reweigh search` on the same grid finds them done, and the other way round."""
    pytest.importorskip("optuna")
    from reweigh.lab.search import plan_search

    run = tiny("DM(0.5, 1)")
    fields = {key: value for key, value in run.to_mapping().items() if key != "weighting"}
    plan = plan_search(fields, "DM(lam=0.5, beta={1, 2})")
    choice = search_beta(lambda weighting: replace(run, weighting=weighting), 0.5, (1, 2), short=1)
    assert plan.points is not None
    trials = [plan.run(point).hash() for point in plan.points]
    assert trials == [option.trial.hash() for option in choice.options]
    assert trial_of(run, 1).hash() == trials[0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("EXPERIMENT = 3", "EXPERIMENT must be an Experiment or a list of them, not int"),
        ("x = 1", "not NoneType"),
        ("EXPERIMENT = (", "line 1: '\\(' was never closed"),
        (
            "from paper import Experiment\nEXPERIMENT = [Experiment('a', '', 'ours', ())] * 2",
            "two of its experiments are called 'a'",
        ),
    ],
)
def test_a_file_that_is_no_experiment(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(content)
    with pytest.raises(DataError, match=told):
        load(path)


def test_of_several_files_no_two_experiments_share_a_name(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.py" for name in ("a", "b", "c")]
    for path, name in zip(paths, ("one", "two", "one"), strict=True):
        path.write_text(f"from paper import Experiment\nEXPERIMENT = Experiment('{name}', '', 'ours', ())")
    assert [each.name for each in load_all([*paths[:2], paths[0]])] == ["one", "two"]
    with pytest.raises(DataError, match=r"c\.py: an experiment called 'one' is in .*a\.py, too"):
        load_all(paths)


def test_a_file_can_use_its_neighbour_and_leaves_nothing_behind(tmp_path: Path) -> None:
    import sys

    (tmp_path / "neighbour.py").write_text("NAME = 'shared'")
    path = tmp_path / "mine.py"
    path.write_text(
        "from neighbour import NAME\nfrom paper import Experiment\nEXPERIMENT = Experiment(NAME, '', 'ours', ())"
    )
    before = list(sys.path)
    assert load(path)[0].name == "shared"
    assert sys.path == before
    assert "neighbour" not in sys.modules
    for missing in (tmp_path / "none.py", tmp_path):
        with pytest.raises(DataError, match="no such file"):
            load(missing)
