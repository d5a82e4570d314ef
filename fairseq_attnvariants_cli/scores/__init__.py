"""Scores: metrics of translations, and statistics over seeds."""
