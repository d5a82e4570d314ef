"""Names of arrays, and functions that turn names of Marian's ``s2s`` and ``amun`` into Nematus's."""

import itertools
import re
from collections.abc import Collection, Iterable

from ..text.files import UserError

ENCODER = re.compile(r"encoder_bi(_r)?(?:_l(\d{1,3}))?(?:_cell(\d{1,3}))?_([A-Za-z0-9]+?)(_ln[sb])?")
UPWARDS = re.compile(r"(encoder|decoder)_l(\d{1,3})_cell(\d{1,3})_([A-Za-z0-9]+?)(_ln[sb])?")
BASE = re.compile(r"decoder_cell(\d{1,3})_([A-Za-z0-9]+?)(_ln[sb])?")
READOUT = re.compile(r"(?:decoder_)?ff_logit_l1_(W|b|gamma|ln_s|ln_b)([012])")
OUTPUT = re.compile(r"decoder_ff_(?:logit_l2|(state))_(\w+)")
PLAIN = {"encoder_Wemb": "Wemb", "decoder_Wemb": "Wemb_dec"}
READ = ("prev", "lstm", "ctx")  # inputs of the readout: the word, the state, the context
AFTER = {"W": "Wc", "Wx": "Wcx"}  # names in the cell that reads the context; its other arrays end in _nl


def cell_array(prefix: str, number: int, after: bool, root: str, norm: str = "") -> str:
    """Return the name of an array of a cell.

    Args:
        prefix: the prefix of the layer, such as ``encoder_r``.
        number: the number of the cell in a step, from 0.
        after: whether the cell follows attention.
        root: the array in the equations, such as ``U`` or ``bx``.
        norm: ``_lns`` or ``_lnb`` for the gain or bias of its layer normalisation.
    """
    if after:
        root = AFTER.get(root, f"{root}_nl")
    return f"{prefix}_{root}{f'_drt_{number}' if number else ''}{norm}"


def layer(side: str, number: int, reverse: bool = False) -> str:
    """Return the prefix of the arrays of a layer. Layers are numbered from 1."""
    return f"{side}{'_r' * reverse}{f'_{number}' if number > 1 else ''}"


def nematus_name(name: str, alternating: bool) -> str:
    """Return Nematus's name of an array of Marian.

    In Marian's alternating encoder every second layer of the forward stack runs backwards. Nematus calls it a backward
    layer.
    """
    if found := ENCODER.fullmatch(name):
        reverse, level, cell, root, norm = found.groups(default="")
        number = int(level or 1)
        backwards = bool(reverse) != (alternating and number % 2 == 0)
        return cell_array(layer("encoder", number, backwards), int(cell or 1) - 1, False, root, norm)
    if found := UPWARDS.fullmatch(name):
        side, level, cell, root, norm = found.groups(default="")
        return cell_array(layer(side, int(level)), int(cell) - 1, False, root, norm)
    if found := BASE.fullmatch(name):
        cell, root, norm = found.groups(default="")
        number = int(cell)
        return cell_array("decoder", max(0, number - 2), number > 1, root, norm)
    if found := READOUT.fullmatch(name):
        return f"ff_logit_{READ[int(found[2])]}_{found[1]}"
    if found := OUTPUT.fullmatch(name):
        return f"ff_{found[1] or 'logit'}_{found[2]}"
    return PLAIN.get(name, name)


def nematus_names(path: str, names: Iterable[str], alternating: bool) -> dict[str, str]:
    """Map Nematus's names to the names in a file.

    Raises:
        UserError: two arrays have the same name in Nematus.
    """
    found: dict[str, str] = {}
    for name in names:
        new = nematus_name(name, alternating)
        if new in found:
            raise UserError(f"{path}: the arrays {found[new]} and {name} mean the same: it is damaged")
        found[new] = name
    return found


def how_many(names: Collection[str], pattern: str, start: int = 1) -> int:
    """Count the consecutive numbers, from ``start`` on, with which ``pattern`` is a name."""
    return next(count for count in itertools.count() if pattern.format(start + count) not in names)


def parts(names: Collection[str]) -> tuple[int, int, int, int]:
    """Count encoder layers, the cells of each, the cells of the lowest decoder layer, and decoder layers."""
    return (
        1 + how_many(names, "encoder_{}_U", start=2),
        1 + how_many(names, "encoder_U_drt_{}"),
        2 + how_many(names, "decoder_U_nl_drt_{}"),
        1 + how_many(names, "decoder_{}_U", start=2),
    )
