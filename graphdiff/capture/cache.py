"""The user's cache folder: what graphdiff makes once and uses again (synthetic checkpoints, the device guard)."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached_folder(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `kind/key` of the cache; `make(folder)` fills it if it is not there.

    It is filled under another name and renamed, so that a folder that exists is always complete, also when two
    processes make it at once.
    """
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("graphdiff")) / kind / key
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        make(draft)
        draft.chmod(0o755)
        try:
            os.rename(draft, folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
