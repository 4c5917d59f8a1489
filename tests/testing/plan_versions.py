"""Plan documents as other versions would have written them."""

from __future__ import annotations

from typing import Any

from planner.documents.canonical_json import digest_document
from tests.testing.small_documents import Document, changed

OLDER: Document = {"cost_model": 4, "solver": 1}
SLOWER = 1.1


def signed_again(plan: Document, versions: Document) -> Document:
    """Return the plan with other versions, and with the id and digest that follow from them."""
    parts = {key: plan[key] for key in ("mesh", "hardware", "request")}
    identity = digest_document({"graph": plan["graph"]["digest"], **parts, "versions": versions})
    document = changed(changed(plan, "solver.versions", versions), "id", identity)
    return {**document, "digest": digest_document({key: value for key, value in document.items() if key != "digest"})}


def by_an_older_version(plan: Document) -> Document:
    """Return the plan as written by a version whose cost model gave 10 % longer times."""
    for path in ("solver.objective_s", "solver.bound_s", "cost.step_s", "cost.compute_s", "cost.communication_s"):
        plan = changed(plan, path, SLOWER * value_at(plan, path))
    return signed_again(plan, OLDER)


def value_at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document[key]
    return document
