"""The pass ``emit-body``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from dialects.codec import encode
from dialects.declarations import member_limits
from dialects.errors import Error, UnsupportedError
from dialects.manifest import Needs

from .. import attributes
from ..access import derive_access
from ..candidate import CandidateInfo
from ..coop_source import read_coop_source
from ..ir import functions, location, mlir, parse_module, symbol, to_attribute
from ..pipeline import Report
from ..target import Target, module_attributes, parse_target, with_wave
from ..tiles import FragmentsBody, body_named, refusal_of


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
        target = with_wave(target, declared.wave_width, where=where)
        contraction = attributes.contraction_of(function, where=where)
        tile = attributes.tile_of(function, where=where)
        kernel = attributes.text_of(function, "family", where=where)
        body = body_named(attributes.text_of(function, "body", where=where), where=where)
        if isinstance(body, FragmentsBody):
            source = read_coop_source(function, contraction, declared.wave_width)
            groups = attributes.groups_of(function, where=where)
            refusal = body.refusal(source, groups, tile, target)
            emit = partial(body.emit, kernel, source, groups)
        else:
            refusal = refusal_of(body, contraction, tile, target)
            emit = partial(body.emit, kernel, contraction)
        if target.backend not in body.backends or refusal is not None:
            why = refusal or f"body {body.name} does not serve {target.backend}"
            raise UnsupportedError(f"kernel '{kernel}': member {tile.name}: {why}", where=where)
        emitted = emit(tile, target)
        head = module_attributes(target, ptx_version=emitted.ptx_version)
        text = f"module attributes {{{head}}} {{\n{emitted.text}\n}}"
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
            split=emitted.split,
            needs=_needs(emitted.needs, declared.wave_width, target),
            footprint=emitted.footprint,
            groups=emitted.groups,
            limits=member_limits(declared.occupancy, tile, target.wave, where=where),
            wave_width=declared.wave_width,
            fast_math=declared.fast_math,
            holds=declared.holds,
            launches=attributes.launch_of(function, where=where),
            access=derive_access(copy),
            aligned=emitted.aligned,
            ptx_version=emitted.ptx_version,
            compilation_info=emitted.compilation_info,
        )
        copy.attributes["xpu.candidate"] = to_attribute(encode(info))
        function.erase()


def _needs(needs: Needs, width: int | None, target: Target) -> Needs:
    """A declared wave width is one that the device must offer, whatever the body makes of it."""
    if width is None or target.backend == "cpu":
        return needs
    return replace(needs, wave_width=width)
