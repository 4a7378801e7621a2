"""Catches what lit and FileCheck let pass in silence.

Misspelt directives, unused prefixes, features that do not exist, files that are no tests.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from lit_suite import FEATURES, SUFFIXES, SUITE, suite_files

KINDS = r"(?:-(?:NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+))?(?:\{LITERAL\})?"
LIT_WORDS = {"RUN", "REQUIRES", "UNSUPPORTED", "XFAIL", "COM", "DEFINE", "REDEFINE", "END."}
COMMENT = re.compile(r"^\s*(?://|#)\s*([A-Za-z][\w.{}-]*)\s*(:?)", re.M)
PREFIXES = re.compile(r"--?check-prefix(?:es)?[= ]([\w,-]+)")
CONDITION = re.compile(r"\b(?:REQUIRES|UNSUPPORTED): *(.*)")


def problems(text: str) -> list[str]:
    """All that is wrong in the text of one lit test, in words."""
    named = {prefix for group in PREFIXES.findall(text) for prefix in group.split(",")}
    found = [f"prefix {p} is never used" for p in sorted(named) if not _uses(text, p)]
    prefixes = named | {"CHECK"}
    known = re.compile("|".join(f"{re.escape(p)}{KINDS}" for p in sorted(prefixes)))
    for word, colon in COMMENT.findall(text):
        if word in LIT_WORDS or known.fullmatch(word):
            if not colon:
                found.append(f"no colon after {word}")
        elif (word.isupper() and colon) or _resembles(word, prefixes, colon):
            found.append(f"unknown directive {word}")
    for condition in CONDITION.findall(text):
        unknown = set(re.findall(r"[\w.-]+", condition)) - FEATURES
        found += [f"unknown feature {word}" for word in sorted(unknown)]
    return found


def _uses(text: str, prefix: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(prefix)}{KINDS}:", text) is not None


def _resembles(word: str, prefixes: set[str], colon: str) -> bool:
    head = word.split("-")[0]
    if head in prefixes:
        return True
    return bool(colon and difflib.get_close_matches(head.upper(), prefixes | LIT_WORDS, cutoff=0.8))


@pytest.mark.parametrize("path", suite_files(), ids=lambda path: path.relative_to(SUITE).as_posix())
def test_file_is_clean(path: Path) -> None:
    """Each file of the suite is a test that lit discovers, without silent mistakes."""
    assert path.suffix in SUFFIXES, "lit does not look at such a file: move it to a folder Inputs"
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("// CHECK-NXT: a", "unknown directive CHECK-NXT"),
        ("// CHEKC: a", "unknown directive CHEKC"),
        ("# CHECK-COUNT: a", "unknown directive CHECK-COUNT"),
        ("// Check-next: a", "unknown directive Check-next"),
        ("// CHECK_NEXT: a", "unknown directive CHECK_NEXT"),
        ("// CHECK-NEXT a", "no colon after CHECK-NEXT"),
        ("// REQUIRE: cuda", "unknown directive REQUIRE"),
        ("// REQUIRES: cudaa", "unknown feature cudaa"),
        ("// UNSUPPORTED: !vulcan || cuda", "unknown feature vulcan"),
        ("// DUMP: a", "unknown directive DUMP"),
        ("// RUN: a --check-prefix=DUMP\n// DUMP-NXT: a", "prefix DUMP is never used"),
        ("// RUN: a --check-prefixes=CHECK,DUMP\n// CHECK: a", "prefix DUMP is never used"),
    ],
)
def test_a_mistake_is_caught(text: str, problem: str) -> None:
    """Each hole that lit leaves open has a name here."""
    assert problem in problems(text)


def test_right_text_is_clean() -> None:
    """Directives, prefixes, features and prose as they should be."""
    text = """
        // REQUIRES: vulkan && !cuda
        // RUN: %lowering opt %s | %filecheck %s
        // RUN: %lowering opt %s 2>&1 | %filecheck %s --check-prefixes=DUMP,DUMP-ALL
        // A note: a demoted group keeps its reason.
        // CHECK-LABEL: func.func
        // CHECK-COUNT-2: gpu.barrier
        // CHECK-SAME{LITERAL}: [[1, 2]]
        // DUMP-NOT: gpu.subgroup_mma
        // DUMP-ALL: software
    """
    assert problems(text) == []
