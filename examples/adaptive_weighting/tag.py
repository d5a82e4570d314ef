"""Tag each word of tokenised text for the subcommand gates: content, function or punctuation.

    python tag.py en < test.en > test.en.tags        # or de; pip install HanTa

Content words are nouns, names, full verbs, adjectives, adverbs and numbers, in German also foreign words. All other
words are function words.
"""

import argparse
import signal
import sys

from HanTa.HanoverTagger import HanoverTagger

MODELS = {"en": "morphmodel_en.pgz", "de": "morphmodel_ger.pgz"}
CONTENT = {
    "en": ("NN", "NP", "VV", "AJ", "AV", "CRD", "ORD"),  # prefixes of the BNC's tags
    "de": ("NN", "NE", "VV", "ADJ", "ADV", "CARD", "FM"),  # prefixes of the STTS's tags
}
PUNCTUATION = ("PU", "$")


def main():
    """Tag standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=MODELS)
    language = parser.parse_args().language
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end without a traceback if the reader, such as head, has enough
    tagger = HanoverTagger(MODELS[language])
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            words = line.decode().split()
        except UnicodeDecodeError:
            sys.exit(f"tag.py: line {number} of standard input is not UTF-8: save the text as UTF-8")
        tags = [tag for _, _, tag in tagger.tag_sent(words, taglevel=1)]
        print(*("content" if tag.startswith(CONTENT[language]) else kind(tag) for tag in tags))


def kind(tag):
    """Return the kind of a word that is not a content word, from its tag."""
    return "punctuation" if tag.startswith(PUNCTUATION) else "function"


if __name__ == "__main__":
    main()
