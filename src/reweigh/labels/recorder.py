"""Record what is needed to find wrong labels in any training loop."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reweigh.labels.suspects import Suspects, find_suspects

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

PENDING = 32  # batches copied to the host at a time, so that a GPU is not waited for in every iteration
LARGEST = 6e4  # of a gap in float16


class Recorder:
    """Record, in anybody's training loop, how each label fares against the strongest other class.

        record = Recorder(len(dataset))
        for inputs, labels, index in loader:
            logits = net(inputs)
            record.update(index, logits, labels)
            ...
        suspects = record.suspects()

    Each visit of an example stores its logit gap as float16 and the other class as an integer: three bytes up to 256
    classes, four up to 65,536, in host memory. The first epochs count most: that is when a net disagrees with labels
    which it memorises later. So call `update` in all of them.

    In several processes, each records the examples that it trains on. `suspects` joins the records; all processes of
    the group must call it. An example that a sampler repeats counts once more.

    Args:
        num_examples: N; indices are from 0 to N - 1.
        process_group: the processes whose records are joined; None for one process.
    """

    def __init__(self, num_examples: int, *, process_group: ProcessGroup | None = None) -> None:
        if num_examples < 1:
            raise ValueError(f"num_examples is {num_examples}; expected 1 or more")
        self.num_examples = num_examples
        self.num_classes: int | None = None
        self.process_group = process_group
        self._labels = np.full(num_examples, -1, dtype=np.int32)
        self._visits = np.zeros(num_examples, dtype=np.int32)
        self._gaps: list[NDArray[np.float16]] = []  # one array over all examples per visit
        self._rivals: list[NDArray[np.unsignedinteger[Any]]] = []
        self._pending: list[tuple[Tensor, ...]] = []

    def __repr__(self) -> str:
        return f"Recorder({self.num_examples} examples, up to {len(self._gaps)} visits)"

    def update(self, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Record a batch; nothing is computed that a gradient flows through.

        Args:
            index: (B,) rows of the examples in the training set.
            logits: (B, C) of any floating type.
            labels: (B,) the given class ids; negative ones, such as an ignore_index, are skipped.
        """
        import torch

        if logits.ndim != 2 or index.shape != logits.shape[:1] or labels.shape != index.shape:
            shapes = f"{tuple(index.shape)}, {tuple(logits.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"index, logits and labels must be (B,), (B, C) and (B,), not {shapes}")
        if self.num_classes not in (None, logits.shape[1]):
            raise ValueError(f"logits has {logits.shape[1]} classes; earlier batches had {self.num_classes}")
        self.num_classes = logits.shape[1]
        with torch.no_grad():
            own = labels.long().to(logits.device).clamp(0, self.num_classes - 1).unsqueeze(1)
            values = logits.detach().float()
            largest, rival = values.scatter(1, own, -torch.inf).max(dim=1)
            gap = values.gather(1, own).squeeze(1) - largest
        self._pending.append((index.detach(), labels.detach(), gap, rival))
        if len(self._pending) >= PENDING:
            self._store()

    def suspects(
        self, *, class_names: Sequence[str] | None = None, sources: Sequence[str] | None = None, bootstrap: int = 100
    ) -> Suspects:
        """Return the recorded examples, ranked by `find_suspects` with the method "duel".

        Examples that were never recorded are missing from the result, with a warning.

        Args:
            class_names: class id -> name; numbers by default.
            sources: N names of examples; row numbers by default.
            bootstrap: as in `find_suspects`.
        """
        if sources is not None and len(sources) != self.num_examples:
            raise ValueError(f"sources has {len(sources)} entries for {self.num_examples} examples")
        labels, gaps, rivals = self._joined()
        seen = np.flatnonzero((labels >= 0) & ~np.isnan(gaps).all(axis=0))
        if not len(seen):
            raise ValueError("nothing was recorded; call update(index, logits, labels) in the training loop")
        if missing := self.num_examples - len(seen):
            warnings.warn(
                f"{missing} of {self.num_examples} examples were never recorded and are not judged", stacklevel=2
            )
        names = class_names if class_names is not None else tuple(map(str, range(self.num_classes or 2)))
        found = find_suspects(
            labels[seen].astype(np.int64),
            logit_gaps=gaps[:, seen].T,
            rivals=rivals[:, seen].T,
            class_names=names,
            sources=[str(i) if sources is None else sources[i] for i in seen.tolist()],
            description=f"1 - mean pairwise p against the strongest other class over up to {len(gaps)} visits",
            bootstrap=bootstrap,
        )
        return replace(found, index=seen)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the record of this process, to resume from a checkpoint."""
        import torch

        self._store()
        gaps, rivals = self._stacked()
        arrays: dict[str, NDArray[Any]] = {
            "labels": self._labels,
            "visits": self._visits,
            "gaps": gaps,
            "rivals": rivals.astype(np.int32),
        }
        classes = torch.tensor(-1 if self.num_classes is None else self.num_classes)
        return {"num_classes": classes, **{name: torch.from_numpy(a.copy()) for name, a in arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the record by that of a checkpoint."""
        labels = state["labels"].numpy()
        if len(labels) != self.num_examples:
            raise ValueError(f"the state has {len(labels)} examples, this recorder {self.num_examples}")
        classes = int(state["num_classes"])
        self.num_classes, self._pending = None if classes < 0 else classes, []
        self._labels, self._visits = labels.copy(), state["visits"].numpy().copy()
        self._gaps = [np.array(each, dtype=np.float16) for each in state["gaps"].numpy()]
        self._rivals = [each.astype(self._rival_type()) for each in state["rivals"].numpy()]

    def _rival_type(self) -> type[np.unsignedinteger[Any]]:
        classes = self.num_classes or 0
        return np.uint8 if classes <= 2**8 else np.uint16 if classes <= 2**16 else np.uint32

    def _store(self) -> None:
        """Copy the pending batches to the host."""
        if not self._pending:
            return
        import torch

        index, labels, gap, rival = (
            torch.cat([each.cpu() for each in parts]).numpy() for parts in zip(*self._pending, strict=True)
        )
        self._pending = []
        index, labels = index.astype(np.int64), labels.astype(np.int64)
        if ((index < 0) | (index >= self.num_examples)).any():
            raise ValueError(f"index must be from 0 to {self.num_examples - 1}, not {index.min()} to {index.max()}")
        if (labels >= (self.num_classes or 0)).any():
            raise ValueError(f"labels must be below {self.num_classes}, not {labels.max()}")
        keep = (labels >= 0) & ~np.isnan(gap)
        index, labels, gap, rival = (array[keep] for array in (index, labels, gap, rival))
        before = self._labels[index]
        self._labels[index] = labels
        changed = ((before >= 0) & (before != labels)) | (self._labels[index] != labels)
        if changed.any():
            raise ValueError(f"example {index[changed][0]} has two labels in the record; pass the given labels")
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.int64)
        repeated = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
        visit = self._visits[ordered] + repeated
        while len(self._gaps) <= visit.max(initial=-1):
            self._gaps.append(np.full(self.num_examples, np.nan, dtype=np.float16))
            self._rivals.append(np.zeros(self.num_examples, dtype=self._rival_type()))
        for number in np.unique(visit).tolist():
            now = order[visit == number]
            self._gaps[number][index[now]] = np.clip(gap[now], -LARGEST, LARGEST)
            self._rivals[number][index[now]] = rival[now]
        np.add.at(self._visits, index, 1)

    def _stacked(self) -> tuple[NDArray[np.float16], NDArray[np.unsignedinteger[Any]]]:
        shape = (len(self._gaps), self.num_examples)
        gaps = np.stack(self._gaps) if self._gaps else np.zeros(shape, np.float16)
        rivals = np.stack(self._rivals) if self._rivals else np.zeros(shape, self._rival_type())
        return gaps, rivals

    def _joined(self) -> tuple[NDArray[np.int32], NDArray[np.float16], NDArray[np.unsignedinteger[Any]]]:
        """Return labels, gaps and rivals, those of all processes one below the other."""
        self._store()
        own = (self.num_classes, self._labels, *self._stacked())
        if self.process_group is None:
            return self._labels, own[2], own[3]
        import torch.distributed as dist

        every: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(every, own, group=self.process_group)
        self.num_classes = max((each[0] for each in every if each[0] is not None), default=None)
        labels = np.max([each[1] for each in every], axis=0)
        return labels, np.concatenate([each[2] for each in every]), np.concatenate([each[3] for each in every])
