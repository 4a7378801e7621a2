"""The pass table: every pass of ours, in the order of the default pipeline."""

from .emit_body import EmitBody
from .group_operands import GroupOperands
from .instantiate import Instantiate
from .select_tier import SelectTier
from .verify_declarations import VerifyDeclarations

PASSES = (VerifyDeclarations, GroupOperands, SelectTier, Instantiate, EmitBody)

__all__ = ["PASSES", "EmitBody", "GroupOperands", "Instantiate", "SelectTier", "VerifyDeclarations"]
