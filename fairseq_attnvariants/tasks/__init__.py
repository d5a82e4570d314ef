"""Tasks: translation by characters, and with shortlists. The stock translation task serves models on words."""

from .char_translation import CharTranslationTask
from .character_dictionary import CharacterDictionary
from .shortlist_translation import ShortlistTranslationTask

__all__ = ["CharTranslationTask", "CharacterDictionary", "ShortlistTranslationTask"]
