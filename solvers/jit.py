"""numba's decorator with its cache, which works on read-only file systems too.

numba keeps machine code where NUMBA_CACHE_DIR says, else beside the module, else in the user's cache folder. Where it
can write in none of them (a read-only installation and home, as many containers have), it refuses to decorate. Then the
code is kept in a folder of this user among the temporary files; where there is none either, every process compiles.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with `cache=True` wherever there is a folder for it."""
    decorator: Callable[[Callable[..., Any]], Any] = njit(cache=CACHES, **options)
    return decorator


def _has_cache() -> bool:
    """Does numba find a folder to write in?"""
    try:
        njit(cache=True)(_has_cache)
    except RuntimeError:
        return False
    return True


def _use_temporary_folder() -> bool:
    """Point numba to a private folder among the temporary files; whether that is possible.

    Cached code is loaded as it stands, so a folder that others own or may write in is refused.
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


CACHES = _has_cache() or _use_temporary_folder()
