"""Tasks: translation by characters. The stock translation task serves every other architecture."""

from .char_translation import CharTranslationTask

__all__ = ["CharTranslationTask"]
