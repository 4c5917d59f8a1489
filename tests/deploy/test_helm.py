"""The Helm chart is linted and rendered by Helm, and what it renders fits Kubernetes' own schemas."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from api.settings import GIB, Limits
from tests.testing.command_line import shardplan

helm = pytest.importorskip("helm_python", reason="Helm is not installed: pip install helm-python-sdk")
kubernetes = pytest.importorskip("kubernetes_validate", reason="no schemas: pip install kubernetes-validate")
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm"
VERSIONS = ["1.25", "1.30", "1.37"]
VALUES: dict[str, dict[str, Any]] = {
    "as they are": {},
    "one server": {"server": {"replicas": 1, "webhooks": True}},
    "scaled by load": {"worker": {"autoscaling": {"enabled": True}}},
    "an image of one's own": {
        "image": {
            "repository": "registry.example/shardplan",
            "digest": "sha256:" + "0" * 64,
            "pullSecrets": [{"name": "s"}],
        }
    },
    "placed": {
        "nodeSelector": {"pool": "planning"},
        "tolerations": [{"key": "planning", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"note": "1"},
    },
}
WRONG: list[dict[str, Any]] = [
    {"server": {"replicas": "two"}},
    {"server": {"replica": 2}},
    {"worker": {"plans": 0}},
    {"image": {"digest": "latest"}},
    {"service": {"type": "ExternalName"}},
    {"colour": "red"},
]
KINDS = ["Deployment", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"]


def rendered(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Every manifest that the chart makes under these values."""
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values or {}, name="test", namespace="here")
    texts = [text for path, text in sorted(files.items()) if path.endswith(".yaml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests if each["kind"] == kind]


def pods(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["spec"]["template"]["spec"] for each in of_kind(manifests, "Deployment")]


def test_helm_finds_no_fault() -> None:
    report = helm.lint(CHART, {}, strict=True)
    assert report["total_charts_linted"] == 1
    assert [told for told in report["messages"] if told["severity"] > 1] == []
    assert not report["errors"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", VALUES)
def test_manifests_fit_their_schemas(name: str, version: str) -> None:
    for manifest in rendered(VALUES[name]):
        kubernetes.validate(deepcopy(manifest), version, strict=True)


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_invalid_values_are_refused(number: int) -> None:
    with pytest.raises(helm.HelmError):
        rendered(WRONG[number])


def test_every_value_is_described() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    described = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert set(values) == set(described) - {"global"}
    used = set(re.findall(r"\.Values\.(\w+)", "".join(path.read_text() for path in (CHART / "templates").iterdir())))
    assert used == set(values)


def test_values_render_the_resources_that_they_name() -> None:
    assert sorted(each["kind"] for each in rendered()) == KINDS
    assert not of_kind(rendered(VALUES["one server"]), "PodDisruptionBudget")
    scaled = rendered(VALUES["scaled by load"])
    [worker] = [each for each in of_kind(scaled, "Deployment") if each["metadata"]["name"].endswith("worker")]
    assert "replicas" not in worker["spec"], "the autoscaler's"
    [scaler] = of_kind(scaled, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    image = pods(rendered(VALUES["an image of one's own"]))[0]["containers"][0]["image"]
    assert image == "registry.example/shardplan@sha256:" + "0" * 64


def test_selectors_find_their_pods_and_no_others() -> None:
    manifests = rendered()
    found = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(manifests, "Deployment")
    }
    [service] = of_kind(manifests, "Service")
    [budget] = of_kind(manifests, "PodDisruptionBudget")
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"]):
        chosen = [name for name, labels in found.items() if selector.items() <= labels.items()]
        assert chosen == ["test-shardplan-server"]


def test_pods_have_few_privileges() -> None:
    for pod in pods(rendered()):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"] is True
            assert allowed["allowPrivilegeEscalation"] is False
            assert allowed["capabilities"] == {"drop": ["ALL"]}
            assert container["volumeMounts"] == [{"name": "temporary", "mountPath": "/tmp"}]
            assert {"requests", "limits"} <= set(container["resources"])
        assert [list(volume) for volume in pod["volumes"]] == [["name", "emptyDir"]]


def test_the_memory_of_a_worker_covers_the_limit_of_a_plan() -> None:
    [worker] = [pod["containers"][0] for pod in pods(rendered()) if pod["containers"][0]["name"] == "worker"]
    assert int(worker["resources"]["limits"]["memory"].removesuffix("Gi")) * GIB > Limits().child_memory_bytes


@pytest.mark.parametrize("name", ["server", "worker"])
def test_commands_of_containers_exist_in_the_program(name: str) -> None:
    [container] = [
        pod["containers"][0] for pod in pods(rendered(VALUES["one server"])) if pod["containers"][0]["name"] == name
    ]
    command, *options = container["args"]
    told = shardplan(command, "--help").out
    assert all(option.partition("=")[0] in told for option in options)
    assert container["env"][0]["name"] == "SHARDPLAN_DATABASE"
    assert "secretKeyRef" in container["env"][0]["valueFrom"]


@pytest.mark.parametrize("name", ["server", "worker"])
def test_probes_request_paths_that_the_service_has(name: str) -> None:
    [container] = [pod["containers"][0] for pod in pods(rendered()) if pod["containers"][0]["name"] == name]
    paths = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
