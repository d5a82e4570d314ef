"""The subcommands, one module each. ``Options`` is the dataclass of its options, and ``run`` runs it.
``translate`` has ``add_options`` instead, because the runtime defines its options.

``--help`` shows the docstring of ``Options``: the description of the subcommand, and of each option.
"""
