"""Training: schedules, optimisers, checkpoints and saved models."""
