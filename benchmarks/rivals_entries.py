"""The rivals of `rivals.py`: every weighting, loss, method and procedure, with the settings it is run with.

Settings are the published ones, but for times in epochs, which are scaled from the publication's training to `EPOCHS`.
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
PLAIN = "cross entropy"  # CCE again, by torch's own operations: the unit of cost
_ANY = str([[1] * 10] * 10)
_TRUSTED = (("validation", 0.1),)
_NOISY = (("validation", 0.1), ("validation_labels", "noisy"))
_OFTEN = (("evaluate_every", 40),)  # so that there is an early model to choose


@dataclass(frozen=True)
class Rival:
    """One row of the table.

    Attributes:
        name: in the table.
        family: weighting, loss, method or procedure.
        taught: the expression, for the field of `Run` that the family has; of a procedure, that of its run.
        needs: what it must be given beside data and labels.
        procedure: (run, root) -> its folder.
        role: which of the procedure's results counts.
        fields: of `Run`, where they must differ.
    """

    name: str
    family: str
    taught: str
    needs: str = ""
    procedure: Callable[..., Path] | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    role: str | None = None
    fields: tuple[tuple[str, Any], ...] = ()

    def run(self, base: dict[str, Any]) -> Run:
        """Its run on the data, at the rate and with the seed that `base` says."""
        field = "weighting" if self.family == "procedure" else self.family
        return Run(**(base | dict(self.fields) | {field: self.taught}))

    def carry_out(self, base: dict[str, Any], root: Path, run_one: RunOne) -> tuple[float, tuple[str, ...]]:
        """Final test accuracy, and the names of the run folders it took."""
        run = self.run(base)
        if self.procedure is None:
            folder = run_one(run, root)
            return float(read_result(folder)["final"]["test_accuracy"]), (folder.name,)  # type: ignore[index]  # done
        account = read_journal(self.procedure(run, root, run_one=run_one, **dict(self.settings)))
        result = account.result or {}
        final = (result if self.role is None else result[self.role])["final"]
        return float(final), tuple(name for _, name in account.runs)


def _weightings() -> list[Rival]:
    names = "CCE MAE MSE GCE(0.7) SL(0.1,9.21) Focal(2) Focal(2,detach=True) PHuber(2) AGCE(0.6,0.6)"
    names += " AUL(5.5,3) AEL(2.5) IMAE(8) DM(0.5,8) Normal(0.3,8) Exponential(-1) Beta(2,2) Uniform"
    return [
        *(Rival(name.replace(",", ", "), "weighting", name) for name in names.split()),
        Rival("ForwardSymmetric", "weighting", f"ForwardSymmetric({RATE}, 10)", "noise rate"),
        Rival("TruncatedGCE, k from a third on", "weighting", "TruncatedGCE(0.7, step(0, 0.5, at=[0.33]))"),
        Rival("GCE, q rising", "weighting", "GCE(linear(0.2, 1.5, until=0.5))"),
    ]


def _losses() -> list[Rival]:
    plain = (
        "LabelSmoothing(0.1) BootstrapSoft(0.95) BootstrapHard(0.8) NCE_RCE NCE_AGCE ANL_CE LogitClip(1) FullMAE Brier"
    )
    counts = "LogitAdjustment BalancedSoftmax"
    return [
        Rival(PLAIN, "loss", "LabelSmoothing(0)"),
        *(Rival(name, "loss", name) for name in plain.split()),
        *(Rival(name, "loss", name, "class counts") for name in counts.split()),
        Rival("Forward, true T", "loss", f"Forward(symmetric({RATE}))", "T"),
        Rival("Backward, true T", "loss", f"Backward(symmetric({RATE}))", "T"),
    ]


def _methods() -> list[Rival]:
    def method(taught: str, needs: str = "", name: str | None = None) -> Rival:
        trusted = _TRUSTED if needs == "trusted labels" else ()
        return Rival(name or taught.partition("(")[0], "method", taught, needs, fields=trusted)

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


def _procedures() -> list[Rival]:
    def several(name: str, function: Callable[..., Path], role: str | None, needs: str = "", **settings: Any) -> Rival:
        return Rival(name, "procedure", "CCE", needs, function, tuple(settings.items()), role)

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
        replace(correction, name="Label correction, GCE(0.7)", taught="GCE(0.7)"),
        replace(correction, name="Label correction, DM(0.5, 8)", taught="DM(0.5, 8)"),
    ]


RIVALS = (*_weightings(), *_losses(), *_methods(), *_procedures())
