"""The entries of `rivals.py`: every weighting, loss, method and procedure, with its settings.

Settings are the published ones, except that times in epochs are scaled from the published training to `EPOCHS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reweigh.lab.procedures import (
    anchor_forward,
    curriculum,
    forgetting,
    joint_optimisation,
    label_correction,
    read_journal,
)
from reweigh.lab.procedures.journal import RunOne
from reweigh.lab.record import read_result
from reweigh.lab.spec import Run

EPOCHS = 20
RATE = 0.4
PLAIN = "cross entropy"  # CCE in torch's operations: the unit of cost
_ANY = str([[1] * 10] * 10)
_TRUSTED = (("validation", 0.1),)
_NOISY = (("validation", 0.1), ("validation_labels", "noisy"))
_OFTEN = (("evaluate_every", 40),)  # these procedures choose an early checkpoint


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        name: name in the table.
        family: weighting, loss, method or procedure.
        objective: expression of the weighting, loss or method; for a procedure, the weighting of its runs.
        needs: what it requires in addition to data and labels.
        procedure: (run, root) -> its folder.
        settings: keyword arguments of the procedure.
        role: the result of the procedure that is reported.
        fields: fields of `Run` that differ from those of the other entries.
    """

    name: str
    family: str
    objective: str
    needs: str = ""
    procedure: Callable[..., Path] | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    role: str | None = None
    fields: tuple[tuple[str, Any], ...] = ()

    def run(self, base: dict[str, Any]) -> Run:
        """Return its run, with the data, learning rate and seed of `base`."""
        field = "weighting" if self.family == "procedure" else self.family
        return Run(**(base | dict(self.fields) | {field: self.objective}))

    def execute(self, base: dict[str, Any], root: Path, run_one: RunOne) -> tuple[float, tuple[str, ...]]:
        """Execute it, and return the final test accuracy and the names of its run folders."""
        run = self.run(base)
        if self.procedure is None:
            folder = run_one(run, root)
            return float(read_result(folder)["final"]["test_accuracy"]), (folder.name,)  # type: ignore[index]  # done
        journal = read_journal(self.procedure(run, root, run_one=run_one, **dict(self.settings)))
        result = journal.result or {}
        final = (result if self.role is None else result[self.role])["final"]
        return float(final), tuple(name for _, name in journal.runs)


def _weightings() -> list[Entry]:
    names = "CCE MAE MSE GCE(0.7) SL(0.1,9.21) Focal(2) Focal(2,detach=True) PHuber(2) AGCE(0.6,0.6)"
    names += " AUL(5.5,3) AEL(2.5) IMAE(8) DM(0.5,8) Normal(0.3,8) Exponential(-1) Beta(2,2) Uniform"
    return [
        *(Entry(name.replace(",", ", "), "weighting", name) for name in names.split()),
        Entry("ForwardSymmetric", "weighting", f"ForwardSymmetric({RATE}, 10)", "noise rate"),
        Entry("TruncatedGCE, k from a third on", "weighting", "TruncatedGCE(0.7, step(0, 0.5, at=[0.33]))"),
        Entry("GCE, q rising", "weighting", "GCE(linear(0.2, 1.5, until=0.5))"),
    ]


def _losses() -> list[Entry]:
    plain = (
        "LabelSmoothing(0.1) BootstrapSoft(0.95) BootstrapHard(0.8) NCE_RCE NCE_AGCE ANL_CE LogitClip(1) FullMAE Brier"
    )
    counts = "LogitAdjustment BalancedSoftmax"
    return [
        Entry(PLAIN, "loss", "LabelSmoothing(0)"),
        *(Entry(name, "loss", name) for name in plain.split()),
        *(Entry(name, "loss", name, "class counts") for name in counts.split()),
        Entry("Forward, true T", "loss", f"Forward(symmetric({RATE}))", "T"),
        Entry("Backward, true T", "loss", f"Backward(symmetric({RATE}))", "T"),
    ]


def _methods() -> list[Entry]:
    def method(objective: str, needs: str = "", name: str | None = None) -> Entry:
        trusted = _TRUSTED if needs == "trusted labels" else ()
        return Entry(name or objective.partition("(")[0], "method", objective, needs, fields=trusted)

    rate = f"noise rate, here {RATE}"
    return [
        method("ClassBalanced", "class counts"),
        method("LDAM(drw_at=16)", "class counts", "LDAM-DRW"),
        method("OHEM(0.5)"),
        method("SelfPaced(0.7)"),
        method("SPCL(0.7)"),
        method("ActiveBias(warm_up=2)"),
        method("ActiveBias('closeness', warm_up=2)", name="ActiveBias, closeness"),
        method("PrunedGCE(0.7, 0.5, start=7, every=2)"),
        method("LearningToReweight", "trusted labels"),
        method("MetaWeightNet(inner_lr=0.1)", "trusted labels"),  # the published rate: these nets learn by Adam
        method("D2L(start=5)"),
        method("MentorNetPD(0.75)"),
        method("MentorNetDD(0.6, dump_epochs=20, mentor_steps=2000)", "trusted labels"),
        method("SAdaptation(warm_up=4)", name="SAdaptation, simple"),
        method("SAdaptation('complex', warm_up=4)", name="SAdaptation, complex"),
        method(f"Masking({_ANY}, warm_up=4, pretrain=500, average=0.99)", "structure of T", "Masking"),
        method("MDYRH(warm_up=7)", name="M-DYR-H"),
        method("MDDYRSH(warm_up=7, soft_from=8, cooling=6)", name="MD-DYR-SH"),
        method(f"CoTeaching({RATE}, warm_up=4)", rate),
        method("Decoupling(warm_up=50)"),
        method(f"SIGUA({RATE}, warm_up=4)", rate, "SIGUA-SL"),
        method(f"SIGUABC(symmetric({RATE}))", "T", "SIGUA-BC"),
        method("ProSelfLC"),
        method("ELR(3, 0.7)"),
        method("ANL"),
    ]


def _procedures() -> list[Entry]:
    def several(name: str, function: Callable[..., Path], role: str | None, needs: str = "", **settings: Any) -> Entry:
        return Entry(name, "procedure", "CCE", needs, function, tuple(settings.items()), role)

    correction = several("Label correction, CCE", label_correction, "retrained")
    anchor = replace(several("Forward, anchor T", anchor_forward, "corrected"), fields=_OFTEN)
    search = several("Forgetting", forgetting, None, "validation part", rates=(0.2, 0.4, 0.6, 0.8))
    return [
        several("Joint Optimisation", joint_optimisation, "phase 2", begin=7, slots=5),
        anchor,
        replace(anchor, name="Backward, anchor T", settings=(("correction", "Backward"),)),
        replace(search, fields=_NOISY),
        several("Curriculum", curriculum, "paced"),
        several("Curriculum to 60 %", curriculum, "paced", "noise rate", end=0.6),
        correction,
        replace(correction, name="Label correction, GCE(0.7)", objective="GCE(0.7)"),
        replace(correction, name="Label correction, DM(0.5, 8)", objective="DM(0.5, 8)"),
    ]


ENTRIES = (*_weightings(), *_losses(), *_methods(), *_procedures())
