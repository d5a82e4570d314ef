"""Trainings that can be stopped, resumed and repeated without loss or change."""
