"""The subcommands, one module each. ``Options`` is the dataclass of its options, and ``run`` runs it.

``--help`` shows the docstring of ``Options``: the description of the subcommand, and of each option.
"""
