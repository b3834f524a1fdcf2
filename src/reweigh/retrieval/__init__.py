"""Retrieval of people from videos: features, rankings and their scores."""

from __future__ import annotations

from reweigh.retrieval.cache import Stored, extract
from reweigh.retrieval.corrupt import Corrupted, corrupt_frames
from reweigh.retrieval.features import frame_features, video_features
from reweigh.retrieval.nearness import Chunks
from reweigh.retrieval.ranking import Ranking, rank, rank_distances
from reweigh.retrieval.scoring import Scores, gallery_rows, score, score_distances

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
