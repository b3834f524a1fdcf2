"""Person retrieval from videos: features, rankings and their scores."""

from __future__ import annotations

from reweigh.lab.retrieval.cache import StoredFeatures, extract_features
from reweigh.lab.retrieval.corrupt import NoisyFrames, corrupt_frames
from reweigh.lab.retrieval.features import frame_features, video_features
from reweigh.lab.retrieval.ranking import Ranking, Scores, gallery_rows, rank, rank_distances, score, score_distances
from reweigh.lab.retrieval.similarity import Chunks

__all__ = [
    "Chunks",
    "NoisyFrames",
    "Ranking",
    "Scores",
    "StoredFeatures",
    "corrupt_frames",
    "extract_features",
    "frame_features",
    "gallery_rows",
    "rank",
    "rank_distances",
    "score",
    "score_distances",
    "video_features",
]
