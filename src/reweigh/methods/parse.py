"""Methods from expressions: "CoTeaching(forget_rate=0.4)", "MetaWeightNet"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reweigh.losses.parse import call
from reweigh.methods.active_bias import ActiveBias
from reweigh.methods.anl import ANL
from reweigh.methods.cae import CAE
from reweigh.methods.class_balanced import ClassBalanced
from reweigh.methods.co_teaching import CoTeaching
from reweigh.methods.curriculum import Curriculum
from reweigh.methods.d2l import D2L
from reweigh.methods.decoupling import Decoupling
from reweigh.methods.drsa import DRSA
from reweigh.methods.dynamic_bootstrap import MDDYRSH, MDYRH
from reweigh.methods.elr import ELR
from reweigh.methods.joint_labels import JointLabels
from reweigh.methods.ldam import LDAM
from reweigh.methods.learning_to_reweight import LearningToReweight
from reweigh.methods.masking import Masking
from reweigh.methods.mentor_net import MentorNetDD, MentorNetPD
from reweigh.methods.meta_weight_net import MetaWeightNet
from reweigh.methods.ohem import OHEM
from reweigh.methods.osm_caa import OSMCAA
from reweigh.methods.pro_self_lc import ProSelfLC
from reweigh.methods.protocol import Context, Method
from reweigh.methods.pruned_gce import PrunedGCE
from reweigh.methods.s_adaptation import SAdaptation
from reweigh.methods.self_paced import SPCL, SelfPaced
from reweigh.methods.sigua import SIGUA, SIGUABC
from reweigh.methods.soft_labels import SoftLabels
from reweigh.spec.expression import Expression, nearest

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
