"""What choices were made by, on findings without runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paper import Cell, Experiment
from paper.finding import Finding
from paper.judged import grids, judged
from paper.protocols import search_rate
from paper.render import markdown
from reweigh.lab.spec import Run


def test_every_trial_stands_beside_what_it_decided(tiny: Callable[..., Run], measured: Callable[..., Finding]) -> None:
    whole, begun, never = (search_rate(tiny(name), (0.1, 0.3)) for name in ("CCE", "GCE", "MAE"))
    scores = zip((*whole.options, begun.options[0]), (0.4, 0.6125, 0.5), strict=True)
    store = {option.trial.folder_name(): measured(option.trial, validation=score) for option, score in scores}
    cells = (
        Cell("CCE", "own lr", whole),
        Cell("GCE", "own lr", begun),
        Cell("MAE", "own lr", never),
        Cell("CCE", "lr 0.1", tiny("CCE")),
    )
    experiment = Experiment("toy", "A toy", "ours", cells)
    found = judged(experiment, store)
    assert [(choice.place, choice.chosen) for choice in found] == [("CCE, own lr", "lr 0.3"), ("GCE, own lr", None)]
    assert found[0].scores == {"0.1": 0.4, "0.3": 0.6125}
    (grid,) = grids(found)
    assert grid.columns == ("", "0.1", "0.3", "chosen")
    assert grid.rows == [("CCE, own lr", "40.0", "61.3", "lr 0.3"), ("GCE, own lr", "50.0", "-", "-")]
    assert "## Trials of lr: accuracy on the held-out part at their end\n\n|  | 0.1 | 0.3 | chosen |" in markdown(
        experiment, [], [grid]
    )


def test_a_trial_without_a_score_loses(tiny: Callable[..., Run], measured: Callable[..., Finding]) -> None:
    choice = search_rate(tiny("CCE"), (0.1, 0.3))
    diverged = search_rate(replace(tiny("CCE"), rate=0.2), (0.1, 0.3))
    store = {o.trial.folder_name(): measured(o.trial, validation=0.5) for o in choice.options}
    store |= {o.trial.folder_name(): measured(o.trial) for o in diverged.options}  # without a score: not a number
    cells = (Cell("CCE", "a", choice), Cell("CCE, less noise", "a", diverged))
    (grid,) = grids(judged(Experiment("toy", "A toy", "ours", cells), store))
    assert grid.rows == [("CCE", "50.0", "50.0", "lr 0.1"), ("CCE, less noise", "-", "-", "lr 0.1")]
