"""Figures of the paper from what was measured."""

from __future__ import annotations

from dataclasses import replace

from paper.figures import Panels, paper_figure
from paper.saved import Saved
from reweigh.lab.figures import Figure
from reweigh.lab.report import group


def panels_of(saved: Saved) -> Panels | None:
    """The figure an experiment is about, from its own findings alone; None where it has none or nothing is measured."""
    name = saved.experiment.figure
    if name is None:
        return None
    if name == "1b":
        return paper_figure(name)
    nets = dict.fromkeys(entry.finding.run.net for entry in saved.entries)
    figures, columns = list[Figure](), 1
    for net in nets:  # lines of different nets are never in one panel
        told = {entry.finding.name: entry.finding.told() for entry in saved.entries if entry.finding.run.net == net}
        try:
            panels = paper_figure(name, group(list(told.values())), saved.experiment.figure_rate)
        except ValueError:  # these runs are not what the figure is about
            continue
        columns = panels.columns
        figures += [replace(each, title=f"{net}: {each.title}") if len(nets) > 1 else each for each in panels.figures]
    return Panels(figures, columns) if figures else None
