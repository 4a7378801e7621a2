"""Author a kernel from Python: the builder writes the module that sample 05 writes by hand."""

from pathlib import Path

from dialects.declarations import Declarations
from dialects.member import Member, Tile
from dialects.operands import EpilogueStep, Operand
from lowering.build import BuildOptions, lower
from lowering.builder import KernelSource, dense, source_text
from lowering.target import parse_target

BY_HAND = Path(__file__).parent / "05_matmul_bias_relu.mlir"


def bias_relu() -> KernelSource:
    """``max(A * B + bias, 0)`` with the members of the sample."""
    gpus = ("cuda", "rocm", "vulkan")
    return KernelSource(
        name="matmul_bias_relu",
        contraction=dense(
            "f32",
            extras=(Operand(name="bias", type="f32", dims=("N",)),),
            epilogue=(
                EpilogueStep(op="add", operand="bias"),
                EpilogueStep(op="max", constant=0.0),
            ),
        ),
        declarations=Declarations(
            dims=("M", "N", "K"),
            members=(
                Member(tile=Tile(m=16, n=64, k=512, thread_m=8, thread_n=32), backends=("cpu",)),
                Member(tile=Tile(m=24, n=64, k=512, thread_m=6, thread_n=16), backends=("cpu",)),
                Member(tile=Tile(m=64, n=64, k=16, thread_m=4, thread_n=4)),
                Member(tile=Tile(m=32, n=32, k=16, thread_m=2, thread_n=2), backends=gpus),
            ),
        ),
    )


def main() -> None:
    """Both sources lower to the same candidates, text for text."""
    built = source_text([bias_relu()])
    print(built)
    for name in ("cpu:x86-64-v3", "vulkan"):
        target = parse_target(name)
        from_python, _ = lower(built, "built", target, BuildOptions())
        by_hand, _ = lower(BY_HAND.read_text(), BY_HAND.name, target, BuildOptions())
        assert [c.text for c in from_python] == [c.text for c in by_hand]
        print(f"{name}: {len(by_hand)} candidates, the same as those written by hand")


if __name__ == "__main__":
    main()
