"""The guide table of docs/methods.md, from benchmarks/results/rivals.csv and one sentence on each rival.

python benchmarks/rivals_guide.py            rewrites the part of docs/methods.md between its two markers
"""

from __future__ import annotations

import csv
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "methods.md"
RESULTS = Path(__file__).parent / "results" / "rivals.csv"
BEGIN, END = "<!-- rivals: begin -->\n", "<!-- rivals: end -->\n"

WHEN = {
    "CCE": "Labels are right. The reference for everything else.",
    "MAE": "Few classes and much noise; hardly learns with a hundred classes.",
    "MSE": "Between CCE and MAE; fades out hard examples and easy ones.",
    "GCE(0.7)": "The first thing to try against noise: one number, from CCE (0) to MAE (1).",
    "TruncatedGCE, k from a third on": "Noise, once the net is worth trusting; k from the start teaches nothing.",
    "SL(0.1, 9.21)": "Noise and few classes: MAE with a small floor of CCE.",
    "Focal(2)": "Clean, very unbalanced data. With wrong labels it emphasises just those.",
    "Focal(2, detach=True)": "To reproduce programs that take the modulator as a constant.",
    "PHuber(2)": "Noise, and CCE is wanted for what is half learned; tau 2 for 10 classes, 10 to 50 for 100.",
    "AGCE(0.6, 0.6)": "As GCE, with a second number.",
    "AUL(5.5, 3)": "As MAE, which it nearly is.",
    "AEL(2.5)": "As MAE, which it nearly is.",
    "IMAE(8)": "DM(1, 8): noise, and the emphasis on p = 1/2.",
    "DM(0.5, 8)": "Noise: mode and spread of the emphasis are chosen apart; wants a smaller learning rate.",
    "Normal(0.3, 8)": "DM by mode and width directly.",
    "Exponential(-1)": "Much noise: easy examples count most.",
    "Beta(2, 2)": "MAE with batch normalisation; both ends fade out.",
    "Uniform": "Every example alike: the control for DM.",
    "ForwardSymmetric": "Symmetric noise of a known rate.",
    "GCE, q rising": "CCE at first, beyond MAE at the end: learn, then stop believing.",
    "cross entropy": "CCE by torch's own operations: the unit of cost.",
    "LabelSmoothing(0.1)": "Calibration; it is no remedy for wrong labels.",
    "BootstrapSoft(0.95)": "History; nearly CCE.",
    "BootstrapHard(0.8)": "Light noise, nothing else known.",
    "NCE_RCE": "Noise and few classes; more classes want alpha 10, beta 0.1.",
    "NCE_AGCE": "As NCE_RCE.",
    "ANL_CE": "As NCE_RCE.",
    "LogitClip(1)": "Noise, with any net and no other change; caps confidence.",
    "FullMAE": "To compare with papers that define MAE as 2 (1 - p).",
    "Brier": "Calibration. It turns the direction, unlike the paper's MSE.",
    "LogitAdjustment": "Unbalanced classes, tested on balanced ones; with balanced ones it is CCE.",
    "BalancedSoftmax": "LogitAdjustment with tau = 1.",
    "Forward, true T": "The noise is known, e.g. from annotators' statistics.",
    "Backward, true T": "An unbiased loss is wanted; high variance, can go below 0.",
    "ClassBalanced": "Unbalanced classes; with balanced ones it is CCE.",
    "LDAM-DRW": "Long tails: margins for rare classes, and a cosine head.",
    "OHEM": "Clean data with many easy examples. The opposite of robust.",
    "SelfPaced": "Noise; whole classes can be lost early on, so watch accuracy per class.",
    "SPCL": "Self-paced with a soft edge, which loses fewer classes.",
    "ActiveBias": "Clean or lightly noisy data.",
    "ActiveBias, closeness": "As ActiveBias, without the variance.",
    "PrunedGCE": "Noise, and a net whose early epochs can be trusted.",
    "LearningToReweight": "A few hundred trusted labels, any kind of noise or imbalance.",
    "MetaWeightNet": "Trusted labels; what it learns is a weighting that can be looked at.",
    "D2L": "Long trainings in which memorising sets in visibly; a ResNet-44 on tin100 fell to chance.",
    "MentorNetPD": "To reproduce it; the curriculum is a formula of the loss.",
    "MentorNetDD": "Trusted labels for one data set, many trainings on similar ones.",
    "SAdaptation, simple": "Class-dependent noise that nobody knows.",
    "SAdaptation, complex": "Noise that depends on the example; C² H more weights.",
    "Masking": "It is known which classes can be confused, but not how often.",
    "M-DYR-H": "Heavy symmetric noise, nothing known.",
    "MD-DYR-SH": "As M-DYR-H; its authors' choice for 80 % and more.",
    "CoTeaching": "Noise of a rate that is roughly known; two nets.",
    "Decoupling": "Two nets and nothing known; weak against symmetric noise.",
    "SIGUA-SL": "As CoTeaching, with one net.",
    "SIGUA-BC": "T is known and a net is strong enough to fit wrong labels.",
    "ProSelfLC": "Noise; trusts the net as it becomes confident, no rate needed.",
    "ELR": "Noise of any kind; keeps N x C numbers.",
    "ANL": "ANL_CE with its L1 penalty in place of weight decay.",
    "Joint Optimisation": "The cleaned labels themselves are wanted; classes are balanced or their prior is known.",
    "Forward, anchor T": "Class-dependent noise that nobody knows, few classes.",
    "Backward, anchor T": "As above; the inverse multiplies errors of T.",
    "Forgetting": "Nothing but dropout is at hand.",
    "Curriculum": "Clean data; with noise the first net has memorised what it should rank.",
    "Curriculum to 60 %": "Noise of a known rate: the hardest 40 % of every class never come in.",
    "Label correction, CCE": "To see what correction does alone.",
    "Label correction, GCE(0.7)": "Time for a second training, or corrected labels are wanted.",
    "Label correction, DM(0.5, 8)": "As above: the paper's own.",
}


def main() -> None:
    """Rewrite the table."""
    page = DOCS.read_text()
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    DOCS.write_text(head + BEGIN + table() + END + tail)


def table() -> str:
    """One line per rival, best mean gain first within its family."""
    with RESULTS.open(newline="") as file:
        lines = list(csv.DictReader(file))
    by_rival: dict[str, dict[str, dict[str, str]]] = {}
    for line in lines:
        by_rival.setdefault(line["rival"], {})[line["data"]] = line
    whole = {name: found for name, found in by_rival.items() if len(found) == 2}
    families = list(dict.fromkeys(line["family"] for line in lines))

    def order(name: str) -> tuple[int, float]:
        found = whole[name].values()
        return families.index(next(iter(found))["family"]), -sum(float(line["minus_cce"]) for line in found)

    rows = ["| method | needs | cost | toy | digits | when to use it |", "|---|---|---:|---:|---:|---|"]
    family = ""
    for name in sorted(whole, key=order):
        found = whole[name]
        first = found["toy"]
        if first["family"] != family:
            family = first["family"]
            rows.append(f"| ***{family}*** | | | | | |")
        accuracies = " | ".join(
            f"{float(line['accuracy']):.1f} ± {float(line['deviation']):.1f}" for line in (first, found["digits"])
        )
        rows.append(f"| {name} | {first['needs'] or '-'} | {float(first['cost']):.1f} | {accuracies} | {WHEN[name]} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
