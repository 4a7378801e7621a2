"""The table of gates, and what each of them asks of a candidate or a kernel (design section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dialects.declarations import Hold
from dialects.errors import DeadlineError, Error
from dialects.expressions import ceildiv

from .gates import Finding, Gate, GateError, Group, Subject, each
from .instructions import SIMDS, waves_by_registers
from .target import Target


def _spill(subject: Subject) -> str | None:
    spilled = subject.record.footprint.spill_bytes
    return f"spills {spilled} B" if spilled else None


def _tier(subject: Subject) -> str | None:
    """Matrix instructions must be there for a native group and absent for a software one."""
    for group in subject.record.groups:
        if group.count is None:
            continue
        types = f"{group.a}*{group.b}->{group.acc}"
        if group.tier == "native" and group.count == 0:
            return f"{types} is native, the artifact has no {group.instruction}"
        if group.tier == "software" and group.count:
            return f"{types} is software, the artifact has {group.count} matrix instructions"
    return None


def _aligned(subject: Subject) -> str | None:
    """Every ``.aligned`` instruction that was emitted, once: no copy of it and no loss.

    Inline assembly is not convergent: behind a lane's own branch a copy of it hangs the kernel.
    """
    assert subject.reading is not None
    found = subject.reading.aligned
    wrong = []
    for mnemonic, emitted in sorted(subject.info.aligned.items()):
        count = found.get(mnemonic, 0)
        if count != emitted:
            what = "duplicated" if count > emitted else "lost"
            wrong.append(f"{what} {mnemonic}: {emitted} emitted, {count} in the artifact")
    return "; ".join(wrong) or None


def _isa(subject: Subject) -> str | None:
    """The version that the artifact states must have what the body uses."""
    assert subject.reading is not None
    need, found = subject.info.ptx_version, subject.reading.version
    if need is None or (found is not None and found >= need):
        return None
    said = "none" if found is None else f"{found[0]}.{found[1]}"
    return f"the body needs PTX ISA {need[0]}.{need[1]}, the artifact says {said}"


def _declaration(subject: Subject) -> str | None:
    """Every bound that was declared must stand in the back end's output, or be met by it."""
    return "; ".join(filter(None, (check(subject) for check in _BOUNDS))) or None


def _threads(subject: Subject) -> str | None:
    if subject.target.backend == "cpu":
        return None
    assert subject.reading is not None
    asked = prod(subject.info.launch.block or ())
    ceiling, bound = subject.info.max_threads, subject.reading.bound
    if bound is None:
        return f"a block of {asked} threads was asked for, the artifact has no bound"
    if bound < asked or (ceiling is not None and bound > ceiling):
        limit = "" if ceiling is None else f" of at most {ceiling}"
        return f"a block of {asked} threads{limit} was asked for, the artifact's bound is {bound}"
    return None


def _block(subject: Subject) -> str | None:
    assert subject.reading is not None
    asked, made = subject.info.launch.block, subject.reading.block
    if made is None or asked is None or tuple(made) == tuple(asked):
        return None
    return f"a block of {list(asked)} was asked for, the module launches {list(made)}"


def _shared(subject: Subject) -> str | None:
    if subject.target.backend != "cuda":
        return None
    asked = subject.info.launch.dynamic_shared_bytes
    made = subject.record.footprint.dynamic_shared_bytes
    if made == asked:
        return None
    return f"{asked} B of dynamic shared memory were asked for, the module launches with {made} B"


def _resident(subject: Subject) -> str | None:
    """CUDA states it in a directive; AMD's only trace of it is the registers that are left."""
    need, backend = subject.info.limits.min_resident, subject.target.backend
    if need is None or backend not in ("cuda", "rocm"):
        return None
    assert subject.reading is not None
    stated, found = subject.reading.min_resident, subject.record.footprint.resident_groups
    if backend == "cuda" and (stated is None or stated < need):
        return f"min_resident {need} is not in the artifact, which has {stated or 'none'}"
    if found is not None and found < need:
        limiter = subject.record.footprint.occupancy_limiter
        return f"min_resident {need}, but {found} are resident: {limiter}"
    return _waves(subject, need) if backend == "rocm" else None


def _waves(subject: Subject, need: int) -> str | None:
    used, target = subject.record.footprint, subject.target
    if not (used.registers and used.threads_per_group and used.wave_width):
        return None
    left = waves_by_registers(target.isa, used.wave_width, used.registers)
    simds = target.facts.simds_per_multiprocessor or SIMDS
    waves = ceildiv(used.threads_per_group, used.wave_width)
    wanted = ceildiv(need * waves, simds)
    if left is None or left >= wanted:
        return None
    return (
        f"min_resident {need} is {wanted} waves a SIMD, {used.registers} registers leave room "
        f"for {left}"
    )


def _registers(subject: Subject) -> str | None:
    limit, backend = subject.info.limits.max_registers, subject.target.backend
    if limit is None or backend not in ("cuda", "rocm"):
        return None
    assert subject.reading is not None
    stated, used = subject.reading.max_registers, subject.record.footprint.registers
    if backend == "cuda" and (stated is None or stated > limit):
        return f"max_registers {limit} is not in the artifact, which has {stated or 'none'}"
    if used is not None and used > limit:
        return f"max_registers {limit}, the artifact uses {used}"
    return None


def _wave(subject: Subject) -> str | None:
    declared, made = subject.info.wave_width, subject.record.footprint.wave_width
    if declared is None or made is None or subject.target.backend == "cpu" or declared == made:
        return None
    return f"waves of {declared} were declared, the artifact has waves of {made}"


_BOUNDS = (_threads, _block, _shared, _resident, _registers, _wave)


def _access(subject: Subject) -> str | None:
    """What the device code does with an operand must be what the kernel says of it."""
    contraction = subject.info.contraction
    modes = {a.param: a.mode for a in subject.record.access if "?" not in a.origin}
    for operand in contraction.operands[:-1]:
        if modes.get(operand.name, "read") not in ("read", "none"):
            return f"the kernel only reads {operand.name}, the code has it {modes[operand.name]}"
    result = modes.get(contraction.c.name, "readwrite")
    if result in ("none", "read"):
        return f"the kernel writes {contraction.c.name}, the code has it {result}"
    if contraction.accumulate and result == "write":
        return f"the kernel adds to {contraction.c.name}, the code only writes it"
    return None


def _deadline(group: Group, needed: Sequence[Hold]) -> list[Finding]:
    """A child that was ended because it ran too long."""
    return [
        _failed(s, GateError(f"gate deadline: {s.failure.message}", where=s.where))
        for s in group.subjects
        if isinstance(s.failure, DeadlineError)
    ]


def _code(group: Group, needed: Sequence[Hold]) -> list[Finding]:
    """Every candidate that failed, and every target on which preflight refused all there are."""
    found: list[Finding] = []
    for target in _targets(group):
        mine = [s for s in group.subjects if s.target.name == target.name]
        failed = [s for s in mine if s.failure is not None]
        found += [
            _failed(s, s.failure)
            for s in failed
            if s.failure is not None and not isinstance(s.failure, DeadlineError)
        ]
        if not failed and not any(s.reading for s in mine):
            refused = [(s.record.name, s.record.refused) for s in mine]
            reasons = "; ".join(f"{name}: {r.message}" for name, r in refused if r is not None)
            found.append(_without_code(group, target, reasons, tuple(mine)))
    for target, reason in group.absent.values():
        found.append(_without_code(group, target, reason, ()))
    return found


def _failed(subject: Subject, error: Error) -> Finding:
    return Finding(target=subject.target, subjects=(subject,), error=error)


def _without_code(
    group: Group, target: Target, reason: str, subjects: tuple[Subject, ...]
) -> Finding:
    what = f"gate code: no device code of kernel '{group.kernel}' for {target.name}: {reason}"
    return Finding(target=target, subjects=subjects, error=GateError(what))


def _targets(group: Group) -> list[Target]:
    return list({s.target.name: s.target for s in group.subjects}.values())


def _unbounded(group: Group, needed: Sequence[Hold]) -> list[Finding]:
    """A launch whose block is no constant, of members that no ceiling bounds."""
    found: list[Finding] = []
    for target in _targets(group):
        open_ = tuple(
            s
            for s in group.subjects
            if s.target.name == target.name
            and s.info.launches.unbounded
            and s.info.limits.max_threads is None
        )
        if open_:
            launches = open_[0].info.launches
            places = ", ".join(launches.unbounded)
            what = (
                f"gate unbounded: kernel '{group.kernel}' on {target.name}: the block is no "
                f"constant at {len(launches.unbounded)} of {launches.sites} launch sites "
                f"({places}), declare xpu.occupancy {{max_threads = ...}}"
            )
            found.append(Finding(target=target, subjects=open_, error=GateError(what)))
    return found


def _stale(group: Group, needed: Sequence[Hold]) -> list[Finding]:
    """A hold that covers something here, and that no gate has needed."""
    backends = {s.target.backend for s in group.subjects}
    backends |= {target.backend for target, _ in group.absent.values()}
    found: list[Finding] = []
    for hold in group.holds:
        covers = [
            s
            for s in group.subjects
            if hold.covers(s.target.backend, s.record.identity.member, s.record.name)
        ]
        concerned = covers or (not hold.members and any(hold.covers(b) for b in backends))
        if hold.tracked and concerned and hold not in needed:
            what = (
                f"gate stale: STALE xpu.{hold.cause} of kernel '{group.kernel}' "
                f"[tracked: {hold.tracked}]: nothing that it covers has that cause, remove it"
            )
            found.append(Finding(target=None, subjects=(), error=GateError(what)))
    return found


GATES: tuple[Gate, ...] = (
    Gate(name="code", cause="unlowered", check=_code),
    Gate(name="deadline", cause="unlowered", check=_deadline),
    Gate(name="unbounded", cause="unbounded", check=_unbounded),
    Gate(name="spill", cause="spills", check=each("spill", _spill)),
    Gate(name="tier", check=each("tier", _tier)),
    Gate(name="declaration", check=each("declaration", _declaration)),
    Gate(name="isa", check=each("isa", _isa)),
    Gate(name="aligned", check=each("aligned", _aligned)),
    Gate(name="access", check=each("access", _access)),
    # last, since it looks at the holds that the others have needed
    Gate(name="stale", silent=True, check=_stale),
)
