"""Emphasis densities to look at: in a terminal, as SVG, as PNG."""
