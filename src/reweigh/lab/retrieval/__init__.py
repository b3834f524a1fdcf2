"""Retrieval of people from videos: features, rankings and their scores."""

from __future__ import annotations

from reweigh.lab.retrieval.cache import Stored, extract
from reweigh.lab.retrieval.corrupt import Corrupted, corrupt_frames
from reweigh.lab.retrieval.features import frame_features, video_features
from reweigh.lab.retrieval.nearness import Chunks
from reweigh.lab.retrieval.ranking import Ranking, rank, rank_distances
from reweigh.lab.retrieval.scoring import Scores, gallery_rows, score, score_distances

__all__ = [
    "Chunks",
    "Corrupted",
    "Ranking",
    "Scores",
    "Stored",
    "corrupt_frames",
    "extract",
    "frame_features",
    "gallery_rows",
    "rank",
    "rank_distances",
    "score",
    "score_distances",
    "video_features",
]
