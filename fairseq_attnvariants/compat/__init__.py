"""Stock fairseq on a current machine: what is checked and what is allowed when the plugin is imported."""

from .environment import allow_stock_checkpoints, can_load_safely, check_environment

__all__ = ["allow_stock_checkpoints", "can_load_safely", "check_environment"]
