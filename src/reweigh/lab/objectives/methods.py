"""Methods from expressions: "CoTeaching(forget_rate=0.4)", "MetaWeightNet"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reweigh.checks import nearest
from reweigh.lab.methods.active_bias import ActiveBias
from reweigh.lab.methods.anl import ANL
from reweigh.lab.methods.cae import CAE
from reweigh.lab.methods.class_balanced import ClassBalanced
from reweigh.lab.methods.co_teaching import CoTeaching
from reweigh.lab.methods.curriculum import Curriculum
from reweigh.lab.methods.d2l import D2L
from reweigh.lab.methods.decoupling import Decoupling
from reweigh.lab.methods.drsa import DRSA
from reweigh.lab.methods.dynamic_bootstrap import MDDYRSH, MDYRH
from reweigh.lab.methods.elr import ELR
from reweigh.lab.methods.joint_labels import JointLabels
from reweigh.lab.methods.ldam import LDAM
from reweigh.lab.methods.learning_to_reweight import LearningToReweight
from reweigh.lab.methods.masking import Masking
from reweigh.lab.methods.mentor_net import MentorNetDD, MentorNetPD
from reweigh.lab.methods.meta_weight_net import MetaWeightNet
from reweigh.lab.methods.ohem import OHEM
from reweigh.lab.methods.osm_caa import OSMCAA
from reweigh.lab.methods.pro_self_lc import ProSelfLC
from reweigh.lab.methods.protocol import Context, Method
from reweigh.lab.methods.pruned_gce import PrunedGCE
from reweigh.lab.methods.s_adaptation import SAdaptation
from reweigh.lab.methods.self_paced import SPCL, SelfPaced
from reweigh.lab.methods.sigua import SIGUA, SIGUABC
from reweigh.lab.methods.soft_labels import SoftLabels
from reweigh.lab.objectives.losses import call
from reweigh.lab.spec.expression import Expression

NAMES: Mapping[str, Callable[..., Method]] = {
    kind.__name__: kind
    for kind in (
        *(ClassBalanced, LDAM, OHEM, SelfPaced, SPCL, ActiveBias, PrunedGCE, LearningToReweight, MetaWeightNet),
        *(D2L, MentorNetPD, MentorNetDD, SAdaptation, Masking, MDYRH, MDDYRSH),
        *(CoTeaching, Decoupling, SIGUA, SIGUABC, ProSelfLC, ELR, ANL),
        *(OSMCAA, DRSA, CAE),
    )
}
"""Every method that an expression can name, but for `PARTS`."""

PARTS: Mapping[str, Callable[..., Method]] = {kind.__name__: kind for kind in (SoftLabels, JointLabels, Curriculum)}
"""Methods that procedures are made of: each reads a file that an earlier run led to, or writes one for a later."""


def method_from(expression: Expression, context: Context) -> Method:
    """The method that an expression names, ready for the first iteration.

    Some change the net (`LDAM` its classifier), so build the optimiser over `method.trainable` afterwards.
    """
    known = {**NAMES, **PARTS}
    if expression.name not in known:
        raise ValueError(f"no method is called {expression.name!r}; {nearest(expression.name, list(known))}")
    method: Method = call(known[expression.name], expression, {"context": context}, context.num_classes)
    return method
