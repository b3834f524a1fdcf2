"""Procedures: training in several runs, each an ordinary run folder, and a small file that lists them."""

from reweigh.lab.procedures.anchor_forward import anchor_forward, anchor_matrix
from reweigh.lab.procedures.curriculum import curriculum
from reweigh.lab.procedures.forgetting import forgetting
from reweigh.lab.procedures.joint_optimisation import joint_optimisation
from reweigh.lab.procedures.journal import ProcedureRecord, read_journal
from reweigh.lab.procedures.label_correction import label_correction

__all__ = [
    "ProcedureRecord",
    "anchor_forward",
    "anchor_matrix",
    "curriculum",
    "forgetting",
    "joint_optimisation",
    "label_correction",
    "read_journal",
]
