"""From a trained model to a package that translates without fairseq and torch; its format is FORMAT.md's."""
