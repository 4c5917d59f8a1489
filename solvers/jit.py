"""numba's njit with an on-disk cache that also works on read-only file systems.

numba caches machine code in NUMBA_CACHE_DIR, else beside the module, else in the user's cache folder. Where none of
them is writable (read-only installation and home, as in many containers), decorating with cache=True raises. The cache
then goes to a private folder in the temporary directory; where that fails too, every process compiles for itself.

numba takes cached code for fresh where the kernel's own file is unchanged. But it holds the code of the kernels that
it calls, and the names of types, which may be in other files. So cached files are named by all sources of the solver.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import config, njit


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `numba.njit` with these options, and with `cache=True` where a cache folder is writable."""

    def compile_lazily(kernel: Callable[..., Any]) -> Any:
        kernel.__qualname__ += f"_{SOURCES}"
        return njit(cache=CACHES, **options)(kernel)

    return compile_lazily


def _digest_sources() -> str:
    """Return a digest of the solver's sources."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    return sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def _has_cache() -> bool:
    """Return whether numba finds a writable cache folder."""
    try:
        njit(cache=True)(_has_cache)
    except RuntimeError:
        return False
    return True


def _use_temporary_folder() -> bool:
    """Point numba's cache to a private folder in the temporary directory; return whether that works.

    Cached machine code is loaded without any check, so a folder that another user owns or can write to is refused.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"shardplan-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        return False
    config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    return _has_cache()


SOURCES = _digest_sources()
CACHES = _has_cache() or _use_temporary_folder()


@cached_njit(nogil=True, error_model="numpy")
def copy_values(source, target):  # type: ignore[no-untyped-def]
    """Copy `source` to the front of `target`. A loop: numba's slice assignment takes far longer to compile."""
    for x in range(source.size):
        target[x] = source[x]
