"""Check a release: build sdist and wheel, install the wheel into an empty environment, use it as a new user does.

`python -m deploy.check_wheel` prints a line per check, then `N passed, N failed`; it exits with 1 where a check failed.
The build downloads nothing (hatchling is in requirements.lock). Dependencies come from deploy/requirements.lock and are
checked by hash. Everything happens in a temporary folder whose path has spaces. Nothing is uploaded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from packaging.metadata import Metadata

from planner.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy" / "requirements.lock"
PACKAGES = ("planner", "solvers", "api")
SECONDS = 900

# What the wheel contains besides modules: example, typing marks, schema, profile, report page, service page.
DATA = [
    "api/examples/gpt2.json.gz",
    *(f"{package}/py.typed" for package in PACKAGES),
    "planner/schemas/plan.json",
    "planner/choose/hardware/h100-sxm.json",
    "planner/export/report/page/report.js",
    "api/web/index.html",
]
MESH = "dp=2,tp=2"
SMALL = ("import", "zoo", "gpt2", "--layers", "1", "--train", "adam", "--batch", "4", "--seq", "16")


class CheckFailed(Exception):
    """A check of the release failed."""


class Stage(NamedTuple):
    """The folder in which a release is built, installed and used."""

    folder: Path

    @property
    def wheel(self) -> Path:
        return only(self.folder / "dist", "*.whl")

    @property
    def rebuilt(self) -> Path:
        return only(self.folder / "from sdist", "*.whl")

    @property
    def programs(self) -> Path:
        return self.folder / "environment" / "bin"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def environment(self) -> dict[str, str]:
        """Return a new user's environment: no path to the checkout, and a home of its own."""
        return {"PATH": f"{self.programs}:{os.defpath}", "HOME": str(self.folder / "home"), "LANG": "C.UTF-8"}

    def shardplan(self, *words: str) -> str:
        """Run a command and return what it prints."""
        return run(self.programs / "shardplan", *words, folder=self.work, environment=self.environment())


def build_sdist_and_wheel(stage: Stage) -> None:
    """sdist and wheel are built"""
    build(ROOT, stage.folder / "dist", "--target", "sdist", "--target", "wheel")


def rebuild_from_sdist(stage: Stage) -> None:
    """a wheel built from the sdist is the same"""
    with tarfile.open(only(stage.folder / "dist", "*.tar.gz")) as archive:
        archive.extractall(stage.folder / "unpacked", filter="data")
    build(only(stage.folder / "unpacked", "*"), stage.folder / "from sdist", "--target", "wheel")
    direct, again = contents(stage.wheel), contents(stage.rebuilt)
    differ = sorted(name for name in direct.keys() | again.keys() if direct.get(name) != again.get(name))
    expect(not differ, f"differ: {', '.join(differ[:5])}")


def check_contents(stage: Stage) -> None:
    """the wheel holds every module and the data they read, and nothing else"""
    held = {name for name in contents(stage.wheel) if ".dist-info/" not in name}
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    expect(not (missing := sorted({*modules, *DATA} - held)), f"missing: {', '.join(missing[:5])}")
    strange = sorted(name for name in held if not name.startswith(PACKAGES) or "__pycache__" in name)
    expect(not strange, f"not ours: {', '.join(strange[:5])}")


def check_metadata(stage: Stage) -> None:
    """its metadata are valid and complete"""
    (raw,) = (data for name, data in contents(stage.wheel).items() if name.endswith(".dist-info/METADATA"))
    metadata = Metadata.from_email(raw, validate=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    expect(str(metadata.version) == VERSION, f"version {metadata.version}")
    expect(metadata.license_expression == project["license"], f"license {metadata.license_expression}")
    expect(metadata.license_files == project["license-files"], f"license files {metadata.license_files}")
    expect(metadata.description_content_type == "text/markdown", f"readme {metadata.description_content_type}")
    expect(metadata.description == (ROOT / "README.md").read_text(encoding="utf-8"), "readme differs from README.md")


def install(stage: Stage) -> None:
    """it installs with its service into an empty environment, from the lock alone"""
    for name in ("work", "home"):
        (stage.folder / name).mkdir()
    run(sys.executable, "-m", "venv", stage.folder / "environment")
    pip = (stage.programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--require-hashes", "--requirement", LOCK)
    run(*pip, "install", "--no-index", f"{stage.wheel}[service]")
    run(*pip, "check")


def check_demo(stage: Stage) -> None:
    """shardplan demo, with the first compilation of the solver"""
    printed = stage.shardplan("demo")
    found = re.search(r"bytes received per device: counted (\d+), predicted (\d+)", printed)
    expect(found is not None and int(found[1]) == int(found[2]) > 0, f"counted bytes: {found and found[0]}")
    expect("verdict: equal" in printed, "no verdict `equal`")
    expect((stage.work / "shardplan-demo.html").is_file(), "no report")


def check_plan(stage: Stage) -> None:
    """shardplan plan --validate, of a training step"""
    stage.shardplan(*SMALL, "-o", "step.json.gz")
    words = ("plan", "step.json.gz", "--mesh", MESH, "--gap", "0.01", "--validate", "--json", "-o", "plan.json.gz")
    told = json.loads(stage.shardplan(*words))
    expect((told["status"], told["verdict"]) == ("optimal", "equal"), f"got {told['status']}, {told['verdict']}")


def check_show(stage: Stage) -> None:
    """shardplan show"""
    expect("Standard layouts" in stage.shardplan("show", "plan.json.gz"), "no standard layouts")


def check_serve(stage: Stage) -> None:
    """shardplan serve answers /healthz and plans a graph"""
    stage.shardplan(*SMALL, "-o", "step.json")
    question = {"graph": json.loads((stage.work / "step.json").read_text()), "mesh": MESH, "request": {"gap": 0.01}}
    with serving(stage) as url:
        ask(f"{url}/healthz")
        known = ask(f"{url}/v1/plans", json.dumps(question).encode())
        while known["status"] in ("queued", "running"):
            time.sleep(0.2)
            known = ask(f"{url}/v1/plans/{known['id']}")
    expect(known["status"] == "optimal", f"the plan is {known['status']}")


CHECKS: list[Callable[[Stage], None]] = [
    build_sdist_and_wheel,
    rebuild_from_sdist,
    check_contents,
    check_metadata,
    install,
    check_demo,
    check_plan,
    check_show,
    check_serve,
]


def expect(holds: bool, otherwise: str) -> None:
    """Raise CheckFailed where a condition does not hold."""
    if not holds:
        raise CheckFailed(otherwise)


def only(folder: Path, pattern: str) -> Path:
    """Return the one file or folder that matches a pattern. Raises CheckFailed where there is none, or several."""
    found = list(folder.glob(pattern))
    expect(len(found) == 1, f"{folder.name}/{pattern}: got {len(found)}, wanted one")
    return found[0]


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def build(project: Path, output: Path, *targets: str) -> None:
    """Build with the locked backend, in the current environment."""
    run(sys.executable, "-m", "hatchling", "build", "--directory", output, *targets, folder=project)


def run(*words: object, folder: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Return what a program prints. Raises CheckFailed with the end of its output where it fails."""
    command = list(map(str, words))
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    last = " ".join((done.stderr or done.stdout).split()[-60:])
    expect(done.returncode == 0, f"`{' '.join(command[:4])}` exited with {done.returncode}: {last}")
    return done.stdout


@contextmanager
def serving(stage: Stage) -> Iterator[str]:
    """Yield the address of a service on loopback; it is stopped at the end of the block."""
    words = [str(stage.programs / "shardplan"), "serve", "--port", "0"]
    log = stage.work / "serve.log"
    with log.open("w") as told:
        process = subprocess.Popen(words, cwd=stage.work, env=stage.environment(), stdout=told, stderr=told)
    try:
        yield address(process, log)
    finally:
        process.terminate()
        process.wait(timeout=60)


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return where a service listens, from its log. Raises CheckFailed where it ends or takes too long."""
    for _ in range(600):
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise CheckFailed(f"shardplan serve does not listen: {log.read_text()[-300:]}")


def ask(url: str, body: bytes | None = None) -> Any:
    """Return the JSON that the service answers."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def passes(check: Callable[[Stage], None], stage: Stage) -> bool:
    """Run one check, print its result, and return whether it passed."""
    begin = time.monotonic()
    try:
        check(stage)
    except (CheckFailed, OSError, ValueError, ExceptionGroup, subprocess.TimeoutExpired) as error:
        sys.stdout.write(f"failed  {check.__doc__}: {error}\n")
        return False
    sys.stdout.write(f"passed  {check.__doc__} ({time.monotonic() - begin:.1f} s)\n")
    return True


def main() -> int:
    """Run every check, also those after a failed one, although they may need what it did not produce."""
    with tempfile.TemporaryDirectory(prefix="shardplan release ") as folder:
        outcomes = [passes(check, Stage(Path(folder))) for check in CHECKS]
    sys.stdout.write(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed\n")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
