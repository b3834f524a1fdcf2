"""Write the table of docs/methods.md, from benchmarks/results/rivals.csv and one sentence on each method.

python benchmarks/rivals_guide.py            rewrites the part of docs/methods.md between its two markers
"""

from __future__ import annotations

import csv
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs" / "methods.md"
RESULTS = Path(__file__).parent / "results" / "rivals.csv"
BEGIN, END = "<!-- rivals: begin -->\n", "<!-- rivals: end -->\n"

WHEN = {
    "CCE": "Clean labels; the reference for all others.",
    "MAE": "Few classes and much noise; hardly learns with a hundred classes.",
    "MSE": "Between CCE and MAE; low weight for hard and for easy examples.",
    "GCE(0.7)": "The first to try against noise: one parameter, from CCE (0) to MAE (1).",
    "TruncatedGCE, k from a third on": "Noise, once predictions are reliable; with k from the start it learns nothing.",
    "SL(0.1, 9.21)": "Noise and few classes: MAE with a small floor of CCE.",
    "Focal(2)": "Clean, very unbalanced data; with noise it emphasises the wrong labels.",
    "Focal(2, detach=True)": "Reproducing programs that treat the modulating factor as a constant.",
    "PHuber(2)": "Noise, with CCE for p above 1 / tau; tau 2 for 10 classes, 10 to 50 for 100.",
    "AGCE(0.6, 0.6)": "As GCE, with a second parameter.",
    "AUL(5.5, 3)": "As MAE, to which it is close.",
    "AEL(2.5)": "As MAE, to which it is close.",
    "IMAE(8)": "DM(1, 8): noise, emphasis on p = 1/2.",
    "DM(0.5, 8)": "Noise: separate parameters for mode and spread; needs a smaller learning rate.",
    "Normal(0.3, 8)": "As DM, with the mode as a parameter.",
    "Exponential(-1)": "Much noise: easy examples count most.",
    "Beta(2, 2)": "MAE with batch normalisation.",
    "Uniform": "All examples count the same: the control for DM.",
    "ForwardSymmetric": "Symmetric noise of a known rate.",
    "GCE, q rising": "From CCE to beyond MAE during training.",
    "cross entropy": "CCE by torch's own operations: the unit of cost.",
    "LabelSmoothing(0.1)": "Calibration; no remedy for wrong labels.",
    "BootstrapSoft(0.95)": "A historical baseline; close to CCE.",
    "BootstrapHard(0.8)": "Light noise, nothing else known.",
    "NCE_RCE": "Noise and few classes; more classes want alpha 10, beta 0.1.",
    "NCE_AGCE": "As NCE_RCE.",
    "ANL_CE": "As NCE_RCE.",
    "LogitClip(1)": "Noise, with any net and no other change; limits confidence.",
    "FullMAE": "Comparison with papers that define MAE as 2 (1 - p).",
    "Brier": "Calibration. It changes the direction, unlike the paper's MSE.",
    "LogitAdjustment": "Unbalanced training set, balanced test set; with balanced classes it is CCE.",
    "BalancedSoftmax": "LogitAdjustment with tau = 1.",
    "Forward, true T": "The transition matrix is known, e.g. from annotators' statistics.",
    "Backward, true T": "An unbiased loss is needed; high variance, can be negative.",
    "ClassBalanced": "Unbalanced classes; with balanced ones it is CCE.",
    "LDAM-DRW": "Long tails: larger margins for rare classes, and a cosine classifier.",
    "OHEM": "Clean data with many easy examples; the opposite of robust.",
    "SelfPaced": "Noise; classes can collapse early, so check accuracy per class.",
    "SPCL": "As SelfPaced with a soft threshold, under which fewer classes collapse.",
    "ActiveBias": "Clean or lightly noisy data.",
    "ActiveBias, closeness": "As ActiveBias, without the variance.",
    "PrunedGCE": "Noise, and a net whose predictions are reliable after a few epochs.",
    "LearningToReweight": "A few hundred trusted labels, any kind of noise or imbalance.",
    "MetaWeightNet": "Trusted labels; learns a weighting that can be inspected.",
    "D2L": "Long trainings with visible memorisation; a ResNet-44 on tin100 fell to chance.",
    "MentorNetPD": "Reproducing it; the curriculum is a formula of the loss.",
    "MentorNetDD": "Trusted labels for one data set, many trainings on similar ones.",
    "SAdaptation, simple": "Class-dependent noise, T unknown.",
    "SAdaptation, complex": "Noise that depends on the example; C² H more weights.",
    "Masking": "The classes that can be confused are known, their rates are not.",
    "M-DYR-H": "Heavy symmetric noise, nothing else known.",
    "MD-DYR-SH": "As M-DYR-H; its authors' choice for 80 % and more.",
    "CoTeaching": "Noise of a roughly known rate; two nets.",
    "Decoupling": "Nothing known; two nets; weak against symmetric noise.",
    "SIGUA-SL": "As CoTeaching, with one net.",
    "SIGUA-BC": "T is known and the net is able to fit wrong labels.",
    "ProSelfLC": "Noise of unknown rate; trusts the net as it becomes confident.",
    "ELR": "Noise of any kind; stores N x C numbers.",
    "ANL": "ANL_CE with its L1 penalty instead of weight decay.",
    "Joint Optimisation": "Corrected labels are needed; classes are balanced or their prior is known.",
    "Forward, anchor T": "Class-dependent noise, T unknown, few classes.",
    "Backward, anchor T": "As above; inverting T multiplies its errors.",
    "Forgetting": "Nothing but dropout is available.",
    "Curriculum": "Clean data; with noise the first net has memorised the labels that it ranks.",
    "Curriculum to 60 %": "Noise of a known rate: the hardest 40 % of every class are never used.",
    "Label correction, CCE": "The effect of correction alone.",
    "Label correction, GCE(0.7)": "Time for a second training, or corrected labels are needed.",
    "Label correction, DM(0.5, 8)": "As above; the paper's own method.",
}


def main() -> None:
    """Rewrite the table."""
    page = DOCS.read_text()
    head, rest = page.split(BEGIN)
    tail = rest.split(END)[1]
    DOCS.write_text(head + BEGIN + table() + END + tail)


def table() -> str:
    """Return the table: one line per method, within each family by mean gain over CCE."""
    with RESULTS.open(newline="") as file:
        lines = list(csv.DictReader(file))
    by_rival: dict[str, dict[str, dict[str, str]]] = {}
    for line in lines:
        by_rival.setdefault(line["rival"], {})[line["data"]] = line
    complete = {name: results for name, results in by_rival.items() if len(results) == 2}
    families = list(dict.fromkeys(line["family"] for line in lines))

    def order(name: str) -> tuple[int, float]:
        results = complete[name].values()
        return families.index(next(iter(results))["family"]), -sum(float(line["minus_cce"]) for line in results)

    rows = ["| method | needs | cost | toy | digits | when to use it |", "|---|---|---:|---:|---:|---|"]
    family = ""
    for name in sorted(complete, key=order):
        results = complete[name]
        first = results["toy"]
        if first["family"] != family:
            family = first["family"]
            rows.append(f"| ***{family}*** | | | | | |")
        accuracies = " | ".join(
            f"{float(line['accuracy']):.1f} ± {float(line['deviation']):.1f}" for line in (first, results["digits"])
        )
        rows.append(f"| {name} | {first['needs'] or '-'} | {float(first['cost']):.1f} | {accuracies} | {WHEN[name]} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
