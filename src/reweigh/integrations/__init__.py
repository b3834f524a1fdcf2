"""One module per trainer, imported on request only: `from reweigh.integrations.transformers import loss_for`."""
