"""`reweigh nets`: list the nets."""

from __future__ import annotations

from reweigh.lab.cli.options import Json
from reweigh.lab.cli.terminal import console, echo, print_json, table

_FEATURES, _CLASSES = 64, 10  # of the parameters shown


def nets(as_json: Json = False) -> None:
    """List the nets for --net: the inputs they are for, and their number of parameters."""
    import torch

    from reweigh.lab.nets.registry import IMAGE_NETS, build, names

    images = {"any": "images of any size", "small": "small images, 32 x 32", "large": "large images, 224 x 224"}
    rows = []
    for name in names():
        takes = not (name in IMAGE_NETS or name.startswith(("cae-", "drsa-")))
        net = build(name, _CLASSES, _FEATURES if takes else None, generator=torch.Generator())
        inner = name.removeprefix("cae-").removeprefix("drsa-")
        inputs = "features, texts or small images" if takes else images[IMAGE_NETS[inner].images]
        rows.append((name, inputs, sum(parameter.numel() for parameter in net.parameters())))
    if as_json:
        print_json({"nets": [{"name": name, "inputs": inputs, "parameters": count} for name, inputs, count in rows]})
        return
    console().print(table(("net", "for", "parameters"), rows, left=2))
    echo(
        f"\nparameters for {_CLASSES} classes and, without images, {_FEATURES} features. mlp-256-256 stands for any "
        "hidden widths;\ncae- goes before any net, drsa- before a resnet or bn-inception."
    )
