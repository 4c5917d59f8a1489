"""The built-in models: their names, and the graph document of each at the sizes that are asked for."""

from __future__ import annotations

import gzip
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.http.problems import HttpProblem, problem_of_task_result
from api.http.schemas import ModelAnswer, ModelsAnswer
from api.http.security import Reader, ServiceDep
from planner.frontends.zoo import MODELS, OPTIMIZERS
from planner.frontends.zoo.models import MAX_LAYERS, MAX_SIZE

router = APIRouter(prefix="/v1/models", tags=["models"])

Count = Annotated[int | None, Query(ge=1, le=MAX_SIZE)]


@router.get("")
def list_models(_caller: Reader) -> ModelsAnswer:
    """The models that can be planned by name, and the optimizers of their training steps."""
    models = [ModelAnswer(name=name, layers=model.layers, max_seq=model.positions) for name, model in MODELS.items()]
    return ModelsAnswer(models=models, optimizers=[*OPTIMIZERS])


@router.get("/{model}/graph", response_class=Response, responses={200: {"content": {"application/json": {}}}})
def get_model_graph(
    _caller: Reader,
    service: ServiceDep,
    model: Annotated[str, Path(max_length=64, description="The name of a built-in model.")],
    *,
    batch: Count = None,
    seq: Count = None,
    layers: Annotated[int | None, Query(ge=1, le=MAX_LAYERS)] = None,
    train: Annotated[str | None, Query(max_length=64, description="An optimizer, for a training step.")] = None,
) -> Response:
    """The graph document of a model: one forward pass, or one training step."""
    if model not in MODELS:
        raise HttpProblem(404, "no-such-model", model, wanted=f"one of {', '.join(MODELS)}")
    given = {"batch": batch, "seq": seq, "layers": layers, "train": train}
    sizes = {key: value for key, value in given.items() if value is not None}
    ended = service.run_task("model", {"name": model, **sizes})
    if ended.kind != "result":
        raise problem_of_task_result(ended)
    return Response(gzip.decompress(ended.payload), media_type="application/json")
