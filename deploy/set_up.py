"""Create an environment from requirements.lock alone, with this checkout installed: python3 deploy/set_up.py [FOLDER].

FOLDER is .venv by default. `make` runs this for every target; it also runs alone, without make. An environment is
complete once it contains .ready, which is written last, with the digests of requirements.lock and pyproject.toml. An
incomplete environment, or one of another lock, is created anew; where only pyproject.toml has changed, only the
checkout is installed again. Two runs for one folder wait for each other. FOLDER.log has the output of the last program.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # nothing else has asked yet
    sys.exit("set-up: this is Python " + sys.version.split()[0] + "; wanted: Python 3.11 or newer")

import fcntl
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
UNREACHABLE = ("connection broken by", "Max retries exceeded", "name resolution")
"""What pip prints where no index answers."""
PIP = ("-I", "-m", "pip", "install", "--quiet", "--no-user", "--disable-pip-version-check", "--no-input")


class Step(NamedTuple):
    words: tuple[str, ...]
    failed: str
    wanted: str


class Environment(NamedTuple):
    """A folder, and the open file whose lock the set-up holds."""

    folder: Path
    lock: int

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def ready(self) -> Path:
        return self.folder / ".ready"

    def digests(self) -> list[str]:
        """Return the digests that it was completed with; empty where it is incomplete, or its Python is gone."""
        return self.ready.read_text().split() if self.ready.exists() and self.python.exists() else []


def set_up(environment: Environment) -> None:
    """Bring the environment to the state that the files describe."""
    files = (ROOT / "requirements.lock", ROOT / "pyproject.toml")
    wanted = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    held = environment.digests()
    if held == wanted:
        environment.ready.touch()
        return
    environment.ready.unlink(missing_ok=True)
    if held[:1] != wanted[:1]:
        make(environment)
        install(environment, "--require-hashes", "--requirement", "requirements.lock")
    # The build backend is locked too, so that nothing is downloaded without a hash for the checkout itself.
    install(environment, "--no-deps", "--no-build-isolation", "--editable", ".")
    print("compiling the solver (half a minute)", flush=True)
    compile_solver = (str(environment.python), "-m", "solvers.compile_kernels")
    run(environment, Step(compile_solver, "the solver was not compiled", "a checkout that can be written to"))
    environment.ready.write_text("\n".join(wanted) + "\n")


def make(environment: Environment) -> None:
    """Create an empty environment, replacing whatever was there."""
    folder, old = environment.folder, beside(environment.folder, ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    print(f"making {folder.name} with Python {platform.python_version()} (about 630 MB, a minute or two)", flush=True)
    folder.mkdir(parents=True)
    mark(folder)
    wanted = "a Python with the module venv (Debian: apt install python3-venv), and room on the disk"
    run(environment, Step((sys.executable, "-m", "venv", str(folder)), f"{sys.executable} made no environment", wanted))


def install(environment: Environment, *words: str) -> None:
    wanted = "a package index that pip reaches (pip config list), and room on the disk"
    run(environment, Step((str(environment.python), *PIP, *words), f"pip did not install {words[-1]}", wanted))


def run(environment: Environment, step: Step) -> None:
    """Run a program. It inherits the lock, so that the next set-up waits for it even if this process is killed."""
    log = beside(environment.folder, ".log")
    with log.open("w") as out:
        done = subprocess.run(
            step.words,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=[environment.lock],
            check=False,
        )
    if done.returncode != 0:
        said = reason(log.read_text(errors="replace"))
        sys.exit(f"set-up: {step.failed}: {said} ({log.name} has the rest)\nwanted: {step.wanted}; then run this again")


def reason(said: str) -> str:
    """Return one line of what a program printed before it failed."""
    if any(words in said for words in UNREACHABLE):
        return "no package index answers"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.lower().startswith("error")), (lines or ["no word"])[-1])


def beside(folder: Path, ending: str) -> Path:
    return folder.with_name(folder.name + ending)


def mark(folder: Path) -> None:
    """Mark a folder as created here; other folders are left alone."""
    (folder / ".shardplan").touch()


def is_foreign(folder: Path) -> bool:
    return any(folder.glob("*")) and not any((folder / name).exists() for name in (".shardplan", ".ready"))


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Return the locked file. The system releases the lock when all processes that hold it have ended."""
    with beside(folder, ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another set-up of {folder.name} is running: waiting for its end", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def main(name: str = ".venv") -> None:
    folder = ROOT / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder) as lock:
            if is_foreign(folder):
                sys.exit(f"set-up: {folder} was made by something else\nwanted: it moved away, or another folder named")
            if folder.exists():
                mark(folder)
            set_up(Environment(folder, lock))
    except OSError as error:
        sys.exit(f"set-up: {error}\nwanted: a checkout that can be written to")
    except KeyboardInterrupt:
        sys.exit("set-up: interrupted; the next one begins again")


if __name__ == "__main__":
    main(*sys.argv[1:2])
