from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reweigh.lab.record import read_result


def test_listing(reweigh, finished: Path) -> None:
    ended = reweigh("runs", finished.parent)
    assert ended.code == 0
    header, row = ended.stdout.splitlines()
    assert header.split()[:3] == ["hash", "state", "evaluated"]
    assert row.split()[:3] == [finished.name[-12:], "done", "40/40"]
    assert reweigh("runs", "list", finished.parent).stdout == ended.stdout

    (run,) = reweigh("runs", finished.parent, "--json").json["runs"]
    assert run["state"] == "done"
    assert run["hash"] == finished.name[-12:]
    assert run["result"] == read_result(finished)


def test_a_noisy_hold_out_is_not_listed_as_a_test(reweigh, finished: Path, tmp_path: Path) -> None:
    rows = "".join(f"{x},{'yes' if x % 3 else 'no'}\n" for x in range(30))
    (tmp_path / "mine.csv").write_text("x,label\n" + rows)
    line = ["train", "--net", "mlp-8", "--weighting", "CCE", "--iterations", 2, "--device", "cpu"]
    assert reweigh(*line, "--data", tmp_path / "mine.csv", "--runs", tmp_path / "runs").code == 0
    for root, holdout in ((tmp_path / "runs", "noisy hold-out"), (finished.parent, "test")):
        header, row = reweigh("runs", root).stdout.splitlines()
        assert row[header.index("tested on") : header.index("seed")].strip() == holdout


def test_a_diverged_run_is_not_listed_as_any_other(reweigh, tiny: list[str], tmp_path: Path) -> None:
    assert reweigh("train", *tiny, "--weighting", "CCE", "--lr", "1e30", "--runs", tmp_path).code == 5
    _, row = reweigh("runs", tmp_path).stdout.splitlines()
    assert row.split()[1:3] == ["diverged", "40/40"]
    (run,) = reweigh("runs", tmp_path, "--json").json["runs"]
    assert (run["state"], run["result"]["diverged"]) == ("done", 10)


def test_nothing_to_list(reweigh, tmp_path: Path) -> None:
    assert reweigh("runs", tmp_path).stdout == f"no runs in {tmp_path}\n"
    assert reweigh("runs", "--json", tmp_path).json == {"root": str(tmp_path), "runs": [], "means": []}
    assert reweigh("runs", tmp_path / "nowhere").code == 3


def test_a_broken_run_is_shown_with_its_problem(reweigh, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text("{")
    ended = reweigh("runs", tmp_path)
    assert ended.code == 0
    assert "broken: " in ended.stdout
    assert "not JSON" in ended.stdout


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_pack_and_unpack(reweigh, finished: Path, tmp_path: Path, suffix: str) -> None:
    archive = tmp_path / f"all{suffix}"
    packed = reweigh("runs", "pack", archive, "--runs", finished.parent, "--json").json
    assert packed["runs"] == [finished.name]
    assert packed["bytes"] == archive.stat().st_size
    unpacked = reweigh("runs", "unpack", archive, tmp_path / "there", "--json").json
    assert (unpacked["added"], unpacked["skipped"]) == ([finished.name], [])
    copy = tmp_path / "there" / finished.name
    for path in ("run.json", "rows.jsonl", "result.json", "model/model.safetensors"):
        assert (copy / path).read_bytes() == (finished / path).read_bytes()
    assert "0 runs added, 1 already existed" in reweigh("runs", "unpack", archive, tmp_path / "there").stdout


def test_packing_some(reweigh, finished: Path, tmp_path: Path) -> None:
    line = ["runs", "pack", tmp_path / "one.zip", finished.name[-12:-5], "--runs", finished.parent]
    assert "1 runs" in reweigh(*line).stdout
    assert reweigh("runs", "pack", tmp_path / "none.zip", "--runs", tmp_path).code == 3
    assert reweigh("runs", "pack", tmp_path / "one.rar", "--runs", finished.parent).code == 2
    (tmp_path / "bad.zip").write_text("no archive")
    assert reweigh("runs", "unpack", tmp_path / "bad.zip", tmp_path / "x").code == 3


def test_packing_all_leaves_broken_runs_out(reweigh, finished: Path, tmp_path: Path) -> None:
    root, archive = tmp_path / "runs", tmp_path / "all.zip"
    (root / "bad").mkdir(parents=True)
    (root / "bad" / "run.json").write_text("{")
    line = ["runs", "pack", archive, "--runs", root]
    ended = reweigh(*line)
    assert (ended.code, archive.exists()) == (3, False)
    assert "none of the runs can be read" in ended.stderr
    shutil.copytree(finished, root / finished.name)
    ended = reweigh(*line)
    assert ended.code == 0
    assert f"left out: {root / 'bad' / 'run.json'}: not JSON" in ended.stderr
    assert "1 runs" in ended.stdout
    packed = reweigh(*line, "--json").json
    assert packed["runs"] == [finished.name]
    assert [problem.partition(": ")[0] for problem in packed["left_out"]] == [str(root / "bad" / "run.json")]
    archive.unlink()
    assert reweigh("runs", "pack", archive, root / "bad", finished).code == 3  # named explicitly
    assert not archive.exists()


def test_runs_that_differ_only_in_their_seed_have_a_mean(reweigh, tiny: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    line = ["compare", "CCE", "GCE(0.7)", "ELR", *tiny, "--seeds", 2, "--runs", tmp_path, "-o", page]
    compared = reweigh(*line, "--json")
    assert compared.code == 0, compared.stderr
    assert [(each["name"], each["seeds"]) for each in compared.json["results"]] == [
        ("CCE", [0, 1]),
        ("GCE(0.7)", [0, 1]),
        ("ELR", [0, 1]),
    ]
    assert "GCE(0.7)" in page.read_text()
    final = compared.json["results"][0]["final"]
    assert final["mean"] == pytest.approx(sum(final["accuracies"]) / 2)
    listed = reweigh("runs", tmp_path, "--json").json
    assert (len(listed["runs"]), {each["name"] for each in listed["means"]}) == (6, {"CCE", "GCE(0.7)", "ELR"})
    shown = reweigh("runs", tmp_path).stdout
    assert shown.count("2 of 2") == 3
    assert f"{100 * final['mean']:.1f} ± {100 * final['deviation']:.1f}" in shown


def test_compare_refuses_an_unknown_name(reweigh, tiny: list[str], tmp_path: Path) -> None:
    ended = reweigh("compare", "CCE", "Elr", *tiny, "--runs", tmp_path)
    assert (ended.code, list(tmp_path.iterdir())) == (2, [])
    assert "no weighting, loss or method is named 'Elr'; did you mean 'ELR'?" in ended.stderr
    assert reweigh("compare", "CCE", *tiny, "--lr", "1e30", "--runs", tmp_path, "-o", tmp_path / "a.html").code == 5
