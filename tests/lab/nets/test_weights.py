from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.nets import Net, build, load_weights
from reweigh.lab.nets.bn_inception import BLOCKS


def make(name: str, num_classes: int = 10, seed: int = 1, in_features: int | None = None) -> Net:
    return build(name, num_classes, in_features, generator=torch.Generator().manual_seed(seed))


def torchvision_resnet50() -> dict[str, Tensor]:
    """Names and shapes of torchvision's ResNet-50, written out from its definition, without the counters."""
    state = {"conv1.weight": torch.zeros(64, 3, 7, 7)}

    def norm(name: str, width: int) -> None:
        for key in ("weight", "bias", "running_mean", "running_var"):
            state[f"{name}.{key}"] = torch.full((width,), 0.5)

    norm("bn1", 64)
    channels = 64
    for stage, (depth, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True), start=1):
        for i in range(depth):
            block = f"layer{stage}.{i}"
            state[f"{block}.conv1.weight"] = torch.zeros(width, channels, 1, 1)
            state[f"{block}.conv2.weight"] = torch.zeros(width, width, 3, 3)
            state[f"{block}.conv3.weight"] = torch.zeros(4 * width, width, 1, 1)
            for n, size in ((1, width), (2, width), (3, 4 * width)):
                norm(f"{block}.bn{n}", size)
            if i == 0:
                state[f"{block}.downsample.0.weight"] = torch.zeros(4 * width, channels, 1, 1)
                norm(f"{block}.downsample.1", 4 * width)
            channels = 4 * width
    state["fc.weight"], state["fc.bias"] = torch.ones(1000, 2048), torch.ones(1000)
    return state


def test_torchvisions_names_load_strictly(tmp_path: Path) -> None:
    path = tmp_path / "resnet50.safetensors"
    save_file(torchvision_resnet50(), path)
    net = make("resnet50", 1000)
    load_weights(net, path)
    assert net.get_submodule("layer4.2.bn3").weight.unique().tolist() == [0.5]
    assert net.classifier.weight.unique().tolist() == [1.0]

    own = make("resnet50", 14)
    before = own.classifier.weight.clone()
    with pytest.raises(DataError, match=r"the file has 1000 classes, the net 14: replace_classifier=True"):
        load_weights(own, path)
    load_weights(own, path, replace_classifier=True)
    assert own.get_submodule("conv1").weight.abs().sum() == 0
    assert torch.equal(own.classifier.weight, before)


def caffe_lineage_bn_inception() -> set[str]:
    units = {"conv1_7x7_s2", "conv2_3x3_reduce", "conv2_3x3"}
    for block in BLOCKS:
        kinds = ["3x3_reduce", "3x3", "double_3x3_reduce", "double_3x3_1", "double_3x3_2"]
        if block not in ("3c", "4e"):
            kinds += ["1x1", "pool_proj"]
        units |= {f"inception_{block}_{kind}" for kind in kinds}
    names = {f"{unit}.{key}" for unit in units for key in ("weight", "bias")}
    names |= {f"{u}_bn.{key}" for u in units for key in ("weight", "bias", "running_mean", "running_var")}
    return names | {"last_linear.weight", "last_linear.bias"}


def test_a_thousand_class_bn_inception_file_loads_strictly(tmp_path: Path) -> None:
    other = make("bn-inception", 1000, seed=2).state_dict()
    file = {name: other[name.replace("last_linear", "fc")] for name in caffe_lineage_bn_inception()}
    torch.save(file, tmp_path / "bn_inception.pth")
    net = make("bn-inception", 1000)
    load_weights(net, tmp_path / "bn_inception.pth")
    assert all(torch.equal(tensor, other[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_round_trip(tmp_path: Path, suffix: str, wrapped: bool) -> None:
    source, path = make("resnet20", seed=2), tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(source.state_dict(), path)
    else:
        torch.save({"state_dict": source.state_dict()} if wrapped else source.state_dict(), path)
    net = make("resnet20")
    load_weights(net, str(path))
    assert all(torch.equal(tensor, source.state_dict()[name]) for name, tensor in net.state_dict().items())


def test_a_file_without_a_classifier(tmp_path: Path) -> None:
    body = {name: t for name, t in make("imdb", 2, seed=2).state_dict().items() if not name.startswith("fc")}
    torch.save(body, tmp_path / "body.pt")
    net = make("imdb", 2)
    with pytest.raises(DataError, match=r"missing: fc\.weight, fc\.bias"):
        load_weights(net, tmp_path / "body.pt")
    load_weights(net, tmp_path / "body.pt", replace_classifier=True)
    assert torch.equal(net.get_submodule("hidden.0").weight, body["hidden.0.weight"])


def test_differences_are_all_named_and_nothing_is_changed(tmp_path: Path) -> None:
    state = dict(make("mlp-8-8", 3, seed=2, in_features=4).state_dict())
    state["hidden.1.weight"] = torch.zeros(8, 9)
    state["hidden.2.weight"] = torch.zeros(1)
    del state["hidden.0.bias"]
    torch.save(state, tmp_path / "other.pt")
    net = make("mlp-8-8", 3, in_features=4)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(DataError) as refused:
        load_weights(net, tmp_path / "other.pt")
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'other.pt'} does not fit MLP: ")
    assert "missing: hidden.0.bias; unexpected: hidden.2.weight; " in message
    assert message.endswith("of another shape: hidden.1.weight (8, 9) for (8, 8)")
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_another_architecture_lists_eight_names_and_counts_the_rest(tmp_path: Path) -> None:
    torch.save(make("resnet32").state_dict(), tmp_path / "deep.pt")
    with pytest.raises(DataError, match=r"unexpected: layer1\.3\.conv1\.weight, .* and \d+ more$"):
        load_weights(make("resnet20"), tmp_path / "deep.pt")


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_calls_something_is_refused_unexecuted(tmp_path: Path) -> None:
    torch.save({"fc.weight": Bomb(tmp_path / "trace")}, tmp_path / "bomb.pt")
    with pytest.raises(DataError, match="is not a safetensors file or a torch state dict") as refused:
        load_weights(make("imdb"), tmp_path / "bomb.pt")
    assert "it refers to posix.mkdir; only tensors, numbers, strings and containers are read" in str(refused.value)
    assert "weights_only" not in str(refused.value), "torch's advice is to execute it"
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("start", [b"", b"hello", b"\x80\x02"])
@pytest.mark.parametrize("name", ["garbage.pt", "garbage.safetensors", "empty.pt", "empty.safetensors"])
def test_unreadable_files(tmp_path: Path, name: str, start: bytes) -> None:
    (tmp_path / name).write_bytes(b"" if name.startswith("empty") else start + b"not weights at all" * 9)
    with pytest.raises(DataError, match=f"{name} is not a safetensors file or a torch state dict"):
        load_weights(make("imdb"), tmp_path / name)


def test_truncated_files(tmp_path: Path) -> None:
    torch.save(make("imdb").state_dict(), tmp_path / "w.pt")
    save_file(make("imdb").state_dict(), tmp_path / "w.safetensors")
    for name in ("w.pt", "w.safetensors"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=name):
            load_weights(make("imdb"), tmp_path / name)


def test_what_is_not_a_state_dict(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.pt: no such file; weights must be in a local file"):
        load_weights(make("imdb"), tmp_path / "none.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(DataError, match="holds a list, not a state dict"):
        load_weights(make("imdb"), tmp_path / "list.pt")
    torch.save({"epoch": 3}, tmp_path / "epoch.pt")
    with pytest.raises(DataError, match="entry 'epoch' is a int, not a tensor with a name"):
        load_weights(make("imdb"), tmp_path / "epoch.pt")
