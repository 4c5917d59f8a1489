"""The built-in models and their graph documents."""

from __future__ import annotations

import gzip
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.http.problems import HttpProblem, problem_of_task_result
from api.http.schemas import ModelAnswer, ModelsAnswer
from api.http.security import Reader, ServiceDep
from api.options import ModelOptions
from planner.frontends.zoo import MODELS, OPTIMIZERS

router = APIRouter(prefix="/v1/models", tags=["models"])


class ModelQuery(ModelOptions, strict=False):
    """The sizes of a model, as query parameters."""


@router.get("")
def list_models(_caller: Reader) -> ModelsAnswer:
    """List the built-in models, and the optimizers of their training steps."""
    models = [ModelAnswer(name=name, layers=model.layers, max_seq=model.positions) for name, model in MODELS.items()]
    return ModelsAnswer(models=models, optimizers=[*OPTIMIZERS])


@router.get("/{model}/graph", response_class=Response, responses={200: {"content": {"application/json": {}}}})
def get_model_graph(
    caller: Reader,
    service: ServiceDep,
    model: Annotated[str, Path(max_length=64, description="The name of a built-in model.")],
    *,
    sizes: Annotated[ModelQuery, Query()],
) -> Response:
    """Return the graph document of a model: a forward pass, or a training step."""
    if model not in MODELS:
        raise HttpProblem(404, "no-such-model", model, wanted=f"one of {', '.join(MODELS)}")
    result = service.run_task(caller.tenant, "model", {"name": model, **sizes.model_dump(exclude_none=True)})
    if result.kind != "result":
        raise problem_of_task_result(result)
    return Response(gzip.decompress(result.payload), media_type="application/json")
