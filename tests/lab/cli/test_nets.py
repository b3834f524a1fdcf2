from __future__ import annotations

from reweigh.lab.nets.registry import names


def test_all_nets_are_listed_with_their_size(reweigh) -> None:
    listed = {net["name"]: net for net in reweigh("nets", "--json").json["nets"]}
    assert tuple(listed) == names()
    assert listed["resnet18"]["parameters"] == 11_173_962
    assert listed["linear"]["inputs"].startswith("features")
    assert "resnet50  " in reweigh("nets").stdout
