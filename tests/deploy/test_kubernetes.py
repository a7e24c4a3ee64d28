"""The Kubernetes manifests: valid for their kinds, complete, and closed by default."""

from __future__ import annotations

import copy
import shutil
import subprocess
from importlib.metadata import files
from pathlib import Path

import jsonschema
import pytest
import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OPERATOR_GROUP = "kubernetes.dask.org/v1"


def documents(path):
    return [document for document in yaml.load_all(path.read_text(), LOADER) if document]


@pytest.fixture(scope="module")
def manifests(deploy):
    return [
        path
        for path in sorted((deploy / "k8s").rglob("*.yaml"))
        if path.name != "kustomization.yaml"
    ]


@pytest.fixture(scope="module")
def resources(manifests):
    return [document for path in manifests for document in documents(path)]


def strict(schema):
    """Refuse unknown fields, as the API server does not and a typo needs."""
    schema = copy.deepcopy(schema)

    def close(node):
        if isinstance(node, list):
            for item in node:
                close(item)
        if isinstance(node, dict):
            described = node.get("type") == "object" and "properties" in node
            if described and not node.get("x-kubernetes-preserve-unknown-fields"):
                node.setdefault("additionalProperties", False)
            for item in node.values():
                close(item)

    close(schema)
    envelope = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    schema["properties"] |= envelope | {"metadata": {"type": "object"}}
    return schema


@pytest.fixture(scope="module")
def operator_schemas():
    """Kind → schema of the resources that the Dask operator registers."""
    definitions = [Path(str(file.locate())) for file in files("dask-kubernetes") or ()]
    schemas = {}
    for path in definitions:
        if path.parent.name == "crds":
            [definition] = documents(path)
            [version] = [v for v in definition["spec"]["versions"] if v["served"]]
            kind = definition["spec"]["names"]["kind"]
            schemas[kind] = strict(version["schema"]["openAPIV3Schema"])
    return schemas


def operator_errors(schemas, resource):
    validator = jsonschema.Draft202012Validator(schemas[resource["kind"]])
    return [error.message for error in validator.iter_errors(resource)]


def is_operators(path):
    return all(document["apiVersion"] == OPERATOR_GROUP for document in documents(path))


def test_core_kinds_are_valid(validate, manifests):
    core = [path for path in manifests if not is_operators(path)]
    result = validate("kubernetes-validate", "--strict", "--quiet", *core)
    assert core
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("prefect/prefect-worker.yaml", "replicas: 1", "replicaz: 1"),
        ("cron/cronjob.yaml", "concurrencyPolicy:", "concurencyPolicy:"),
        ("common/network.yaml", "podSelector: {}", "podSelektor: {}"),
    ],
)
def test_core_validator_sees_a_mistake(validate, seeded, deploy, name, right, wrong):
    path = seeded(deploy / "k8s" / name, right, wrong)
    result = validate("kubernetes-validate", "--strict", path)
    assert result.returncode == 1
    assert wrong.split(":")[0] in result.stdout + result.stderr


def test_dask_resources_follow_the_operators_definitions(operator_schemas, resources):
    ours = [resource for resource in resources if resource["apiVersion"] == OPERATOR_GROUP]
    assert {resource["kind"] for resource in ours} == {"DaskCluster", "DaskAutoscaler"}
    for resource in ours:
        assert operator_errors(operator_schemas, resource) == []


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("DaskCluster", "replicas: 1", "replicaz: 1"),
        ("DaskCluster", "containerPort: 8786", "containerPort: none"),
        ("DaskAutoscaler", "maximum: 16", "maximun: 16"),
    ],
)
def test_operator_schema_sees_a_mistake(operator_schemas, seeded, deploy, kind, right, wrong):
    path = seeded(deploy / "k8s" / "prefect" / "dask-cluster.yaml", right, wrong)
    [resource] = [document for document in documents(path) if document["kind"] == kind]
    errors = operator_errors(operator_schemas, resource)
    assert any(wrong.split(": ")[bool("Port" in wrong)] in error for error in errors), errors


def test_kustomizations_list_every_file_beside_them(deploy):
    for kustomization in sorted((deploy / "k8s").rglob("kustomization.yaml")):
        [listed] = documents(kustomization)
        beside = {path.name for path in kustomization.parent.glob("*.yaml")} - {kustomization.name}
        assert {name for name in listed["resources"] if name.endswith(".yaml")} == beside
        for name in listed["resources"]:
            assert (kustomization.parent / name).exists()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
@pytest.mark.parametrize("way", ["prefect", "cron"])
def test_kustomize_builds(deploy, way):
    command = ["kubectl", "kustomize", str(deploy / "k8s" / way)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    resources = [document for document in yaml.load_all(built, LOADER) if document]
    # An image name without a registry would be a kind that the image transformer misses.
    for pod in pods(resources):
        assert {c["image"].split("/")[0] for c in pod["containers"]} == {"registry.example.com"}
    assert {r["metadata"].get("namespace") for r in resources} == {None, "actlas"}


def pods(resources):
    """Every pod that a resource describes, wherever its kind keeps it."""
    found = []

    def search(node):
        if isinstance(node, list):
            for item in node:
                search(item)
        if isinstance(node, dict):
            if "containers" in node:
                found.append(node)
            for item in node.values():
                search(item)

    search(resources)
    return found


def test_every_pod_is_confined_and_limited(resources):
    found = pods(resources)
    # The Prefect worker, the Dask scheduler and worker, the scheduled job.
    assert len(found) == 4
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_what_pods_refer_to_is_declared(resources):
    named = {(r["kind"], r["metadata"]["name"]) for r in resources}
    by_hand = {("Secret", "actlas-credentials"), ("Secret", "actlas-dask-tls")}
    for pod in pods(resources):
        referred = {("ServiceAccount", pod["serviceAccountName"])}
        for volume in pod["volumes"]:
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                referred.add(("PersistentVolumeClaim", claim))
            if "secret" in volume:
                referred.add(("Secret", volume["secret"]["secretName"]))
        for container in pod["containers"]:
            for source in container["envFrom"]:
                [(kind, reference)] = source.items()
                kinds = {"configMapRef": "ConfigMap", "secretRef": "Secret"}
                referred.add((kinds[kind], reference["name"]))
        assert referred <= named | by_hand


def test_the_cluster_denies_what_no_policy_allows(resources):
    policies = {r["metadata"]["name"]: r["spec"] for r in resources if r["kind"] == "NetworkPolicy"}
    assert policies["deny-all"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    [to_scheduler, to_pages] = policies["dask-scheduler"]["ingress"]
    # A scheduler's port runs code: only pods of this namespace, never another namespace or address.
    assert to_scheduler["ports"] == [{"protocol": "TCP", "port": 8786}]
    assert [set(peer) for peer in to_scheduler["from"]] == [{"podSelector"}, {"podSelector"}]
    assert to_pages["ports"] == [{"protocol": "TCP", "port": 8787}]


def test_dask_worker_gives_the_kernel_no_reason_to_kill_it(resources):
    [cluster] = [r for r in resources if r["kind"] == "DaskCluster"]
    [container] = cluster["spec"]["worker"]["spec"]["containers"]
    limit = container["args"][container["args"].index("--memory-limit") + 1]
    assert limit == "4GB"
    # 5 GiB leave a quarter over what Dask allows itself, for buffers that it does not count.
    assert container["resources"]["limits"]["memory"] == "5Gi"
