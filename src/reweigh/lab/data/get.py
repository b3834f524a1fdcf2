"""Downloads from the official addresses: the only place in the library that uses the network, and only when asked.

Sizes are what the servers announce, digests what the authors or torchvision publish; where there are none, the
loader's own checks (CIFAR-N's clean labels against CIFAR's) stand in.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reweigh.errors import DataError
from reweigh.lab.data.source.archive import extract
from reweigh.lab.data.source.download import Progress, Remote, fetch


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Args:
        files: the downloads, by the name each gets in the data folder; archives are unpacked there.
        gives: what lies in the data folder afterwards; where all of it is there already nothing is fetched.
        licence: the terms, in a sentence.
        by_hand: for a data set without an address: what its user has to do.
        also: what its loader reads instead, where that lies there.
        holds: what lies in the folder it gives where its parts come one by one: of each tuple, one.
    """

    files: Mapping[str, Remote]
    gives: tuple[str, ...]
    licence: str
    by_hand: str = ""
    also: tuple[str, ...] = ()
    holds: tuple[tuple[str, ...], ...] = ()

    def is_in(self, root: Path) -> bool:
        """Whether the loader finds the data set in the data folder, or the folder is the data set itself."""
        whole = all(self.is_at(root / name) for name in self.gives)
        itself = root.name in (*self.gives, *self.also) and self.is_at(root)
        return whole or any(self.is_at(root / name) for name in self.also) or itself

    def is_at(self, path: Path) -> bool:
        """Whether it lies there, with all its parts."""
        return path.exists() and all(any((path / name).exists() for name in part) for part in self.holds)


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_CIFAR_N = "https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data"

_CIFAR10 = Remote(f"{_TORONTO}/cifar-10-python.tar.gz", 170498071, "c58f30108f718f92721af3b95e74349a")
_CIFAR100 = Remote(f"{_TORONTO}/cifar-100-python.tar.gz", 169001437, "eb9058c3a382ffc7106e4002c42a8d85")
_IMDB = Remote(
    "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    84125825,
    "7c2ac02c03563afcf9b574c7e56c153a",
)
_KRIZHEVSKY = "No licence is stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009."
_CIFAR100_SOURCE = Source(
    {"cifar-100-python.tar.gz": _CIFAR100}, ("cifar-100-python",), _KRIZHEVSKY, also=("cifar-100-binary",)
)

SOURCES: Mapping[str, Source] = {
    "cifar10": Source(
        {"cifar-10-python.tar.gz": _CIFAR10}, ("cifar-10-batches-py",), _KRIZHEVSKY, also=("cifar-10-batches-bin",)
    ),
    "cifar100": _CIFAR100_SOURCE,
    "vehicles10": _CIFAR100_SOURCE,
    "cifar-n": Source(
        {name: Remote(f"{_CIFAR_N}/{name}") for name in ("CIFAR-10_human.pt", "CIFAR-100_human.pt")},
        ("CIFAR-10_human.pt", "CIFAR-100_human.pt"),
        "See LICENSE in github.com/UCSC-REAL/cifar-10-100n; cite Wei et al., ICLR 2022.",
    ),
    "imdb": Source(
        {"aclImdb_v1.tar.gz": _IMDB},
        ("aclImdb",),
        "No licence is stated; cite Maas et al., Learning Word Vectors for Sentiment Analysis, ACL 2011.",
    ),
    "clothing1m": Source(
        {},
        ("clothing1M",),
        "By agreement with the authors; cite Xiao et al., CVPR 2015.",
        "Ask the authors of Clothing1M (Xiao et al., CVPR 2015; github.com/Cysu/noisy_label) for access, then "
        "unpack the images and the text files",
        holds=(("category_names_eng.txt", "annotations/category_names_eng.txt"), ("images", "0")),
    ),
    "mars": Source(
        {},
        ("MARS",),
        "See the authors' page; cite Zheng et al., MARS, ECCV 2016.",
        "Download bbox_train.zip and bbox_test.zip from the page of MARS (zheng-lab.cecs.anu.edu.au/Project/"
        "project_mars.html) and info/ from github.com/liangzheng06/MARS-evaluation, then unpack them",
        also=("mars", "mini_mars"),
    ),
    "tin100": Source(
        {},
        ("tin100.npz",),
        "ImageNet's terms: for research that is not commercial.",
        "Make it of Tiny-ImageNet (its first 100 classes, 500 + 50 pictures each, reduced to 32 x 32) as uint8 "
        "x_train, x_test and int64 y_train, y_test",
    ),
    "digits": Source({}, (), "Part of scikit-learn (BSD); cite Alpaydin and Kaynak, UCI, 1998."),
}


def get(
    name: str,
    root: str | os.PathLike[str],
    progress: Progress | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> tuple[Path, ...]:
    """Bring the data set `name` into the folder `root`; returns what lies there then.

    An archive is downloaded beside (as `.part` until its size and digest are right; see
    `reweigh.lab.data.source.download.fetch`), unpacked and kept. An archive that was put there by hand is used in the
    same way. A data set whose authors hand it out on request only is refused with what to do and where to put it.

    Args:
        name: a key of `sources`.
        root: the data folder (the command line: REWEIGH_DATA).
        progress: called with (bytes so far, bytes in all or None).
        sources: the table of addresses.
    """
    if name not in sources:
        close = difflib.get_close_matches(name, sources, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"name must be one of {', '.join(sorted(sources))}, not {name!r}{hint}")
    source = sources[name]
    folder = Path(root)
    results = tuple(folder / given for given in source.gives)
    if all(source.is_at(path) for path in results):
        return results
    if not source.files:
        wanted = ", ".join(map(str, results))
        raise DataError(f"{name} cannot be downloaded from here. {source.by_hand}, as {wanted}")
    for file, remote in source.files.items():
        arrived = fetch(remote, folder / file, progress)
        if file.endswith((".tar.gz", ".tar", ".zip")):
            extract(arrived, folder)
    missing = [str(path) for path in results if not path.exists()]
    if missing:
        raise DataError(f"{name}: the download did not bring {', '.join(missing)}")
    return results
