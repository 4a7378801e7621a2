"""The pass table: every pass of ours, in the order of the default pipeline."""

from .apply_declarations import ApplyDeclarations
from .emit_body import EmitBody
from .group_operands import GroupOperands
from .instantiate import Instantiate
from .scan_launches import ScanLaunches
from .select_tier import SelectTier
from .verify_declarations import VerifyDeclarations

PASSES = (
    VerifyDeclarations,
    ScanLaunches,
    GroupOperands,
    SelectTier,
    Instantiate,
    EmitBody,
    ApplyDeclarations,
)

__all__ = [
    "PASSES",
    "ApplyDeclarations",
    "EmitBody",
    "GroupOperands",
    "Instantiate",
    "ScanLaunches",
    "SelectTier",
    "VerifyDeclarations",
]
