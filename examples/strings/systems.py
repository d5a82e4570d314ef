"""The languages in groups, the systems, and the order of the runs."""

import shlex
from pathlib import Path

SEEDS = (1, 2, 3)
LANGUAGES: dict[str, list[str]] = {}
for line in (Path(__file__).parent / "languages.txt").read_text().splitlines():
    LANGUAGES.setdefault(line.split()[0], []).append(line.split()[1])
ALL = [language for languages in LANGUAGES.values() for language in languages]

SYSTEMS = {  # options of `fairseq-attnvariants strings`
    "dl4mt": ["--arch", "dl4mt"],
    "hard_monotone": ["--arch", "hard_monotone"],
    "pointer_generator": ["--arch", "pointer_generator"],
    # its two levels are two layers of the encoder, since a string has no words
    "ava": shlex.split(
        "--arch ava --encoder-type bidirectional --encoder-layers 2 --attention-dim 128 --attention-via-dim 128 "
        "--decoder-out-embed-dim 128"
    ),
}
YOYODYNE = {  # models of another program, whose path is --yoyodyne
    "yoyodyne_hard_attention": ["HardAttentionLSTMModel", "--model.init_args.enforce_monotonic", "true"]
    + ["--model.init_args.attention_context", "5"],
    "yoyodyne_pointer_generator": ["PointerGeneratorLSTMModel"],
}
YOYODYNE_INFLECTION = shlex.split(  # three columns instead of two; as wide as both directions of the source encoder
    "--data.features_col 2 --data.target_col 3 --data.target_sep= "
    "--model.init_args.features_encoder yoyodyne.models.modules.LinearEncoder "
    "--model.init_args.features_encoder.embedding_size 64 --model.init_args.features_encoder.output_size 256"
)
ENSEMBLES = {**{name: [name] for name in SYSTEMS}, "dl4mt + hard_monotone": ["dl4mt", "hard_monotone"]}
"""the systems of each ensemble, which has all their seeds"""
ORDER = [  # group by group; in a group, each seed of all systems comes before the next seed
    (LANGUAGES["low"], ["dl4mt", "hard_monotone"]),
    (LANGUAGES["low"], ["pointer_generator", "ava"]),
    (LANGUAGES["medium"], ["dl4mt", "hard_monotone"]),
    (LANGUAGES["inflection"], ["dl4mt", "hard_monotone", "pointer_generator"]),
    (LANGUAGES["medium"], ["pointer_generator", "ava"]),
    (LANGUAGES["inflection"], ["ava"]),
    (ALL, [*YOYODYNE]),
]
