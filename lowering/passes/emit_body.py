"""The pass ``emit-body``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dialects.codec import encode
from dialects.errors import Error, UnsupportedError

from .. import attributes
from ..candidate import CandidateInfo
from ..ir import functions, location, mlir, parse_module, symbol, to_attribute
from ..pipeline import Report
from ..target import Target, module_attributes, parse_target
from ..tiles import body_named


@dataclass(frozen=True, kw_only=True)
class EmitBody:
    """Replace each instantiated function by a module of its own with the kernel that a body emits.

    ``func.func @f__64x64x16_t4x4__software(...)`` becomes
    ``module @f__64x64x16_t4x4__software attributes {hal.device.targets = [...], xpu.candidate =
    {...}} { hal.executable.source ... util.func public @f(...) ... }``.
    """

    name: ClassVar[str] = "emit-body"
    target: str = "cpu"
    resolved: Target | None = field(default=None, repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        target = self.resolved or parse_target(self.target)
        for function in functions(module):
            if "xpu.body" not in function.attributes:
                continue
            try:
                self._emit(function, target, report)
            except Error as error:
                report.fail(error)

    def _emit(self, function: mlir.Operation, target: Target, report: Report) -> None:
        where = location(function, report.source)
        declared = attributes.declarations(function, where=where)
        contraction = attributes.contraction_of(function, where=where)
        tile = attributes.tile_of(function, where=where)
        kernel = attributes.text_of(function, "family", where=where)
        body = body_named(attributes.text_of(function, "body", where=where), where=where)
        refusal = body.refusal(contraction, tile, target)
        if target.backend not in body.backends or refusal is not None:
            why = refusal or f"body {body.name} does not serve {target.backend}"
            raise UnsupportedError(f"kernel '{kernel}': member {tile.name}: {why}", where=where)
        emitted = body.emit(kernel, contraction, tile, target)
        text = f"module attributes {{{module_attributes(target)}}} {{\n{emitted.text}\n}}"
        parsed = parse_module(text, f"{where}: body {body.name}", function.context)
        copy = parsed.operation.clone(mlir.InsertionPoint(function))
        copy.attributes["sym_name"] = to_attribute(symbol(function))
        info = CandidateInfo(
            kernel=kernel,
            dims=declared.dims,
            contraction=contraction,
            tile=tile,
            body=body.name,
            launch=emitted.launch,
            workspace=emitted.workspace,
            prepared=emitted.prepared,
            needs=emitted.needs,
            footprint=emitted.footprint,
            groups=emitted.groups,
            compilation_info=emitted.compilation_info,
        )
        copy.attributes["xpu.candidate"] = to_attribute(encode(info))
        function.erase()
