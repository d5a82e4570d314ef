"""Tasks: translation by characters. The stock translation task serves models on words."""

from .char_translation import CharTranslationTask
from .character_dictionary import CharacterDictionary

__all__ = ["CharTranslationTask", "CharacterDictionary"]
