"""A row of a record: what the net makes of the training part, and of the parts held out."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

from reweigh.lab.methods.protocol import Method
from reweigh.lab.record import Record
from reweigh.lab.run.material import Material
from reweigh.lab.run.outcome import finite
from reweigh.lab.run.parts import Batches, Parts
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import See
from reweigh.lab.train.evaluate import Seen, Waiting, holdout_row, training_row


class Evaluation:
    """Looks at all parts of a run, and writes down what was seen.

    Args:
        run: says what is recorded.
        material: labels as given, and true ones where they are known.
        parts: what there is to look at.
        method: who predicts, and weighs.
        see: (net, part, weigh) -> what was seen.
    """

    def __init__(self, run: Run, material: Material, parts: Parts, method: Method, see: See) -> None:
        self._run, self._parts, self._method, self._see = run, parts, method, see
        self._given = torch.from_numpy(material.train.labels.copy())
        self._clean = None if material.clean is None else torch.from_numpy(material.clean.copy())
        self._num_classes = material.dataset.num_classes
        self._seen: Seen  # of the training part, at the evaluation at hand

    def row(self, step: int) -> Generator[Waiting, None, dict[str, Any]]:
        """What a row holds after `step` iterations."""
        self._seen = yield from self._see(
            self._method.predictor, self._parts.train, lambda z, y, i: self._method.weights(z, y, i, step - 1)
        )
        row = training_row(self._seen, self._given, self._clean, self._num_classes)
        for name, part in (("test", self._parts.test), ("validation", self._parts.validation)):
            if part is not None:
                row |= holdout_row((yield from self.of(part)), part.labels.cpu(), name)
        return row

    def of(self, part: Batches) -> Generator[Waiting, None, Seen]:
        """What the net makes of a part."""
        return self._see(self._method.predictor, part)

    def write(self, row: dict[str, Any], record: Record) -> dict[str, Any]:
        """Write down the row last made, and what goes with it for every training example; returns it as written."""
        row = finite(row)
        p, margins, rivals = (column.numpy() for column in (self._seen.p, self._seen.margin, self._seen.rival))
        record.append(row, p if self._run.record_p else None, (margins, rivals) if self._run.record_margins else None)
        return row
