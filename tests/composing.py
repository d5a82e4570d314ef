"""Cache how hydra parses command lines and composes configurations, which it does again for every command.

The results are the same. Two command lines with the same choice in every group, such as optimizer and criterion,
differ only in the options that they override afterwards.
"""

import copy
from functools import cache

from hydra._internal import config_loader_impl as loader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser


@cache
def remember():
    """Use the caches from here on, in this process and in its forks."""
    ConfigStore.__deepcopy__ = lambda self, _: self  # hydra copies a configuration that it takes out of this table
    remember_parses()
    remember_defaults()


def remember_parses():
    parse, parser = cache(OverridesParser.parse_rule), OverridesParser.create()
    OverridesParser.parse_rule = lambda self, text, rule: copy.copy(parse(parser, text, rule))


def remember_defaults():
    choose, compose = loader.create_defaults_list, loader.ConfigLoaderImpl._compose_config_from_defaults_list
    chosen, composed = {}, {}

    def create_defaults_list(repo, config_name, overrides_list, **options):
        given = [override for override in overrides_list if not override.is_sweep_override()]
        groups = [override for override in given if "." not in override.key_or_group]
        places = [(source.provider, source.path) for source in repo.get_sources()]
        key = repr((config_name, places, [override.input_line for override in groups], options))
        if key not in chosen:
            chosen[key] = choose(repo, config_name, groups, **options)
        made = copy.copy(chosen[key])
        others = {override.input_line for override in made.config_overrides}
        made.config_overrides = [
            override for override in given if "." in override.key_or_group or override.input_line in others
        ]
        return made

    def compose_config(self, defaults, repo):
        key = id(defaults)  # chosen keeps the object, so its id stays unique
        if key not in composed:
            composed[key] = compose(self, defaults, repo)
        return copy.deepcopy(composed[key])

    loader.create_defaults_list = create_defaults_list
    loader.ConfigLoaderImpl._compose_config_from_defaults_list = compose_config
