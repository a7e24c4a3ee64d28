"""The image and the compose stack: valid, pinned like the tests, and closed to the network."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
import yaml


@pytest.fixture(scope="module")
def dockerfile(deploy):
    return deploy / "docker" / "Dockerfile"


@pytest.fixture(scope="module")
def compose_file(deploy):
    return deploy / "docker" / "compose.yaml"


@pytest.fixture(scope="module")
def services(compose_file):
    return yaml.safe_load(compose_file.read_text())["services"]


@pytest.fixture(scope="module")
def pins(root):
    lines = (root / "constraints.txt").read_text().splitlines()
    return dict(line.split(";")[0].split("==") for line in lines if "==" in line)


def test_dockerfile_passes_hadolint(validate, dockerfile):
    result = validate("hadolint", dockerfile)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("slim-bookworm AS python", "slim-bookworm AZ python", "unexpected 'A'"),
        ("tini=0.19.*", "tini", "DL3008"),
        ("FROM runtime AS worker", "FROM runtime AS worker\nUSER root", "DL3002"),
    ],
)
def test_hadolint_sees_a_mistake(validate, seeded, dockerfile, right, wrong, rule):
    result = validate("hadolint", "--no-color", seeded(dockerfile, right, wrong))
    assert result.returncode == 1
    assert rule in result.stdout + result.stderr


def test_every_copied_path_exists_and_is_sent_to_the_builder(root, dockerfile):
    copied = set()
    for line in dockerfile.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied.update(line.split()[1:-1])
    ignore = (root / ".dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in ignore if line.startswith("!")}
    assert [name for name in sorted(copied) if not (root / name).exists()] == []


def test_image_has_a_python_that_the_project_supports(root, dockerfile):
    version = re.search(r"^ARG PYTHON_VERSION=3\.(\d+)$", dockerfile.read_text(), re.M)
    requires = tomllib.loads((root / "pyproject.toml").read_text())["project"]["requires-python"]
    lowest, below = (int(minor) for minor in re.findall(r"3\.(\d+)", requires))
    assert version is not None
    assert lowest <= int(version[1]) < below


def test_every_stage_that_runs_has_a_user_of_its_own(dockerfile):
    runtime = dockerfile.read_text().split("AS runtime")[1]
    assert re.findall(r"^USER (.*)$", runtime, re.M) == ["${USER_ID}"]


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cuda.yaml"])
def test_compose_files_follow_the_specification(validate, deploy, name):
    path = deploy / "docker" / name
    result = validate("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("retries:", "retriez:"), ("condition: service_healthy", "condition: healthy")],
)
def test_compose_validator_sees_a_mistake(validate, seeded, compose_file, right, wrong):
    path = seeded(compose_file, right, wrong)
    result = validate("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)
    assert result.returncode == 1
    assert wrong.split(":")[0] in result.stdout


def test_ports_are_published_on_loopback_only(services):
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_secrets_come_from_the_environment_and_the_example_names_each(compose_file):
    text = compose_file.read_text()
    required = set(re.findall(r"\$\{(\w+):\?", text))
    optional = set(re.findall(r"\$\{(\w+):-", text))
    example = (compose_file.parent / ".env.example").read_text()
    named = dict(re.findall(r"^(\w+)=(.*)$", example, re.M))
    assert set(named) == required | optional
    assert {name: named[name] for name in required} == dict.fromkeys(required, "")


def test_what_services_name_is_there(services, compose_file):
    stack = yaml.safe_load(compose_file.read_text())
    for name, service in services.items():
        assert set(service.get("networks", ())) <= set(stack["networks"]), name
        assert set(service.get("depends_on", ())) <= set(services), name
        assert set(service.get("secrets", ())) <= set(stack["secrets"]), name
        volumes = {volume.split(":")[0] for volume in service.get("volumes", ())}
        assert {v for v in volumes if v[0] not in "./$"} <= set(stack["volumes"]), name


def test_a_service_that_others_wait_for_can_be_healthy(services):
    waited = {
        target
        for service in services.values()
        for target, wait in service.get("depends_on", {}).items()
        if wait["condition"] == "service_healthy"
    }
    # The worker's check is in its image.
    assert {name for name in waited if "healthcheck" not in services[name]} == {"prefect-worker"}


def test_prefect_server_is_the_version_that_is_tested(services, pins):
    assert services["prefect-server"]["image"].startswith(f"prefecthq/prefect:{pins['prefect']}-")


def test_images_are_pinned_to_a_version(services):
    images = [service["image"] for service in services.values()]
    assert [image for image in images if not re.search(r":\d+\.\d+", image)] == []


def test_certificates_are_signed_private_and_never_overwritten(deploy, tmp_path):
    script = deploy / "docker" / "certificates.sh"
    folder = tmp_path / "certificates"
    subprocess.run([script, folder], check=True, capture_output=True)
    verify = ["openssl", "verify", "-CAfile", folder / "authority.pem", folder / "certificate.pem"]
    assert subprocess.run(verify, capture_output=True).returncode == 0
    assert {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir()} == {
        "authority.pem": 0,
        "certificate.pem": 0,
        "key.pem": 0,
    }
    again = subprocess.run([script, folder], capture_output=True, text=True)
    assert again.returncode == 1
    assert "exists; delete it" in again.stderr
