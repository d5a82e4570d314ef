"""Stock fairseq on a current machine: what is checked when the plugin is imported."""

from .environment import check_environment

__all__ = ["check_environment"]
