"""At run time: packs and a device give results. Nothing here loads the compiler."""

from .arrays import DeviceArray
from .calls import PreparedOperand
from .family import Choice
from .session import Session

__all__ = ["Choice", "DeviceArray", "PreparedOperand", "Session"]
