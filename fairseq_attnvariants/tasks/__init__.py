"""Tasks: translation by characters and with shortlists, and transduction of strings.

The stock translation task serves models on words.
"""

from .char_translation import CharTranslationTask
from .character_dictionary import CharacterDictionary
from .shortlist_translation import ShortlistTranslationTask
from .string_dictionary import StringDictionary
from .string_transduction import StringTransductionTask

__all__ = [
    "CharTranslationTask",
    "CharacterDictionary",
    "ShortlistTranslationTask",
    "StringDictionary",
    "StringTransductionTask",
]
