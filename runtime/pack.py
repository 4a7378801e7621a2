"""Opens packs: nothing in one is believed before its digest says so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from dialects.errors import FormatError, PackError
from dialects.manifest import FILE_NAME, KernelEntry, Manifest, Record, manifest_from_text


@dataclass(frozen=True, kw_only=True)
class Pack:
    """A pack on disk whose manifest has been checked; its files are checked when they are read."""

    path: Path
    manifest: Manifest

    def read(self, path: str, sha256: str) -> bytes:
        """The content of one file.

        Raises:
            PackError: missing, outside of the pack, or not what the manifest's digest says.
        """
        file = self.path / path
        try:
            inside = file.resolve().is_relative_to(self.path.resolve())
            content = file.read_bytes() if inside else b""
        except OSError as error:
            raise PackError(f"cannot read: {error.strerror}", where=str(file)) from None
        except (RuntimeError, ValueError) as error:  # a loop of links, a NUL in the name
            raise PackError(f"cannot read: {error}", where=str(self.path)) from None
        if not inside:
            raise PackError(f"file '{path}' lies outside of the pack", where=str(self.path))
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise PackError(
                f"sha256 is {found[:16]}, the manifest says {sha256[:16]}: the file is damaged",
                where=str(file),
            )
        return content

    def module(self, record: Record) -> bytes:
        """The loadable module of a record that has code."""
        if record.files is None:
            raise PackError(f"member {record.name} has no code", where=str(self.path))
        return self.read(record.files.vmfb, record.files.sha256.get(record.files.vmfb, ""))

    def verify(self) -> None:
        """Read every file once.

        Raises:
            PackError: the first one that is missing or damaged.
        """
        for kernel in self.manifest.kernels:
            for record in kernel.members:
                for path, digest in (record.files.sha256 if record.files else {}).items():
                    self.read(path, digest)
            for peer in kernel.peers:
                self.read(peer.vmfb, peer.sha256)

    def kernel(self, name: str) -> KernelEntry:
        """The kernel of that name.

        Raises:
            PackError: there is none, with the names there are.
        """
        for kernel in self.manifest.kernels:
            if kernel.kernel == name:
                return kernel
        names = ", ".join(k.kernel for k in self.manifest.kernels)
        raise PackError(f"no kernel '{name}', there is: {names}", where=str(self.path))


def open_pack(path: Path | str) -> Pack:
    """Read and check the manifest of a pack.

    Raises:
        PackError: no pack, cut off, flipped, of another schema or for another runtime.
    """
    folder = Path(path)
    file = folder / FILE_NAME
    try:
        text = file.read_bytes()
    except OSError as error:
        raise PackError(f"no pack here: {error.strerror}", where=str(file)) from None
    try:
        manifest = manifest_from_text(text, where=str(file))
    except FormatError as error:
        raise PackError(error.message, where=error.where) from None
    return Pack(path=folder, manifest=manifest)


def family_id(kernel: KernelEntry) -> str:
    """Eight hex digits of what a choice depends on besides code: arguments and candidates."""
    parts = [kernel.kernel, *kernel.dims, *(f"{a.name}:{a.type}:{a.dims}" for a in kernel.args)]
    parts += [f"{a.name} from {a.source}" for a in kernel.args if a.source is not None]
    parts += [r.full_name for r in kernel.members]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
