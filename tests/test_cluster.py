"""The files of cluster/: Ray, clouds, Kubernetes and KubeRay accept them; one set of versions; token on; no secrets."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_schemas import action_exists, ask_ray, ec2_problems, gce_problems, kuberay_problems, kubernetes_problem
from packaging.requirements import Requirement
from ray_head import REPOSITORY

from raystitch.config.yamlfile import parse_yaml

CLUSTER = REPOSITORY / "cluster"
CLOUDS = {"aws": ec2_problems, "gcp": gce_problems}
HADOLINT = Path(sys.executable).with_name("hadolint")
Edit = Callable[[Any], object]


def load(name: str) -> Any:
    return yaml.safe_load((CLUSTER / name).read_text())


def edited(name: str, edit: Edit) -> Any:
    config = copy.deepcopy(load(name))
    edit(config)
    return config


def ray_cluster(name: str) -> Any:
    spec = load(f"kuberay/{name}.yaml")["spec"]
    return spec["rayClusterSpec"] if name == "rayjob" else spec


def pods(name: str) -> list[Any]:
    spec = ray_cluster(name)
    return [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


@pytest.fixture(scope="module")
def prepared() -> dict[str, Any]:
    """The cluster files with Ray's defaults, as `ray up` uses them."""
    return dict(zip(CLOUDS, ask_ray([load(f"{cloud}.yaml") for cloud in CLOUDS]), strict=True))


@pytest.mark.parametrize("name", sorted(str(p.relative_to(CLUSTER)) for p in CLUSTER.rglob("*.yaml")))
def test_no_key_is_there_twice(name: str) -> None:
    parse_yaml((CLUSTER / name).read_text(), name)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_ray_and_the_cloud_accept_the_cluster(cloud: str, prepared: dict[str, Any]) -> None:
    config = prepared[cloud]
    assert isinstance(config, dict), config
    for node in config["available_node_types"].values():
        assert not CLOUDS[cloud](node["node_config"])


def test_ray_refuses_a_spoiled_cluster() -> None:
    edits: list[Edit] = [
        lambda c: c.update(idle_timeout_minuets=5),
        lambda c: c.update(head_node_type="heads"),
        lambda c: c["available_node_types"]["gpu"].update(min_workers=9),
        lambda c: c["available_node_types"]["gpu"]["resources"].update(GPU="1"),
        lambda c: c["provider"].pop("type"),
    ]
    answers = ask_ray([edited("aws.yaml", edit) for edit in edits])
    assert all(isinstance(answer, str) for answer in answers), answers


@pytest.mark.parametrize(
    ("cloud", "edit", "problem"),
    [
        ("aws", lambda n: n.update(InstanceTyp="m5.large"), "InstanceTyp"),
        ("aws", lambda n: n.update(InstanceType="g6.3xlarge"), "g6.3xlarge"),
        ("aws", lambda n: n["InstanceMarketOptions"].update(MarketType="spott"), "spott"),
        ("aws", lambda n: n.update(IamInstanceProfile="raystitch-worker"), "IamInstanceProfile"),
        ("gcp", lambda n: n.update(machinetype="g2-standard-8"), "machinetype"),
        ("gcp", lambda n: n["scheduling"].update(provisioningModel="spot"), "spot"),
        ("gcp", lambda n: n["disks"][0]["initializeParams"].update(diskSizeGb=50), "diskSizeGb"),
    ],
)
def test_the_cloud_refuses_a_spoiled_node(cloud: str, edit: Edit, problem: str) -> None:
    node = load(f"{cloud}.yaml")["available_node_types"]["gpu"]["node_config"]
    edit(node)
    problems = CLOUDS[cloud](node)
    assert len(problems) == 1
    assert problem in problems[0]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_workers_come_and_go_up_to_a_limit_and_the_head_does_no_work(cloud: str, prepared: dict[str, Any]) -> None:
    config = prepared[cloud]
    head, gpu = config["available_node_types"]["head"], config["available_node_types"]["gpu"]
    assert head["resources"] == {"CPU": 0}
    assert head["max_workers"] == 0
    assert (gpu["min_workers"], gpu["max_workers"]) == (0, config["max_workers"])
    assert gpu["resources"]["GPU"] == 1
    assert config["idle_timeout_minutes"] == 5
    spot = {"aws": ("InstanceMarketOptions", "MarketType", "spot"), "gcp": ("scheduling", "provisioningModel", "SPOT")}
    section, field, value = spot[cloud]
    assert gpu["node_config"][section][field] == value
    assert section not in head["node_config"], "the head must not be taken away"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_is_copied_to_the_machines_exists_and_is_all_that_they_install(
    cloud: str, prepared: dict[str, Any]
) -> None:
    config = prepared[cloud]
    mounts = config["file_mounts"]
    assert all(Path(remote).is_absolute() for remote in mounts), "autoscaler v2 does not expand ~ on the head"
    local = {there: here for there, here in mounts.items() if here != "~/.ray/auth_token"}
    assert local == {f"/home/ubuntu/raystitch/{path}": path for path in local.values()}
    assert all((REPOSITORY / path).exists() for path in local.values())
    installs = [command for command in config["worker_setup_commands"] if "pip install" in command]
    assert len(installs) == 1
    assert "cd /home/ubuntu/raystitch && " in installs[0]
    assert config["head_setup_commands"] == config["worker_setup_commands"] == config["setup_commands"]
    wanted = {"raystitch", "pyproject.toml", "cluster/constraints.txt"}
    assert set(local.values()) == wanted


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_ray_of_a_cluster_asks_for_the_token(cloud: str, prepared: dict[str, Any]) -> None:
    config = prepared[cloud]
    assert config["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"
    assert "chmod 600 /home/ubuntu/.ray/auth_token" in config["setup_commands"]
    for kind in ("head", "worker"):
        starts = [c for c in config[f"{kind}_start_ray_commands"] if "ray start" in c]
        assert len(starts) == 1
        assert "RAY_AUTH_MODE=token ray start " in starts[0]
    assert any("RAY_AUTH_MODE=token' >> ~/.bashrc" in command for command in config["setup_commands"])
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][1]


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_pods_ask_for_the_token_and_have_no_privileges(name: str) -> None:
    spec = ray_cluster(name)
    assert spec["authOptions"] == {"mode": "token"}
    contexts = [c["securityContext"] for p in pods(name) for c in p["containers"]]
    for context in (spec["autoscalerOptions"]["securityContext"], *contexts):
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert {p["serviceAccountName"] for p in pods(name)} == {load("kuberay/serviceaccount.yaml")["metadata"]["name"]}
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_kubernetes_accepts_the_manifest(name: str) -> None:
    assert not kuberay_problems(load(f"kuberay/{name}.yaml"))


def test_kubernetes_accepts_the_service_account() -> None:
    assert not kubernetes_problem(load("kuberay/serviceaccount.yaml"))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda m: m["spec"].update(shutdownAfterJobFinish=True), "shutdownAfterJobFinish"),
        (lambda m: m["spec"]["rayClusterSpec"].update(enableAutoscaling=True), "enableAutoscaling"),
        (lambda m: m["spec"]["rayClusterSpec"]["authOptions"].update(mode="tokens"), "authOptions.mode"),
        (lambda m: m["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].update(maxReplicas="8"), "maxReplicas"),
        (lambda m: m["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}), "num-cpus"),
        (
            lambda m: m["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"].update(toleration=[]),
            "toleration",
        ),
        (lambda m: m["spec"]["rayClusterSpec"]["autoscalerOptions"]["securityContext"].update(root=False), "root"),
        (lambda m: m.update(apiVersion="ray.io/v1alpha1"), "apiVersion"),
    ],
)
def test_kubernetes_refuses_a_spoiled_manifest(edit: Edit, problem: str) -> None:
    problems = kuberay_problems(edited("kuberay/rayjob.yaml", edit))
    assert problems
    assert problem in problems[0]


def test_a_job_has_the_cluster_of_the_cluster_and_removes_it() -> None:
    job = load("kuberay/rayjob.yaml")["spec"]
    assert job["rayClusterSpec"] == load("kuberay/raycluster.yaml")["spec"]
    assert job["shutdownAfterJobFinishes"] is True
    assert job["activeDeadlineSeconds"] > 0
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, 8)
    assert job["rayClusterSpec"]["enableInTreeAutoscaling"] is True


def test_one_file_says_the_versions() -> None:
    lines = (CLUSTER / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = (REPOSITORY / "pyproject.toml").read_text()
    wanted = [Requirement(text) for text in re.findall(r'^ {4}"([^"]+)",$', project, re.MULTILINE)]
    allowed = {r.name: r.specifier for r in wanted}
    assert pinned.keys() == {"ray", "timm", "torch", "torchvision"}
    assert all(version in allowed[name] for name, version in pinned.items())
    assert {ray_cluster(name)["rayVersion"] for name in ("raycluster", "rayjob")} == {pinned["ray"]}
    images = {c["image"] for name in ("raycluster", "rayjob") for p in pods(name) for c in p["containers"]}
    (version,) = re.findall(r'^version = "(.+)"', project, re.MULTILINE)
    assert images == {f"REGISTRY/raystitch:{version}"}
    for name in ("aws.yaml", "gcp.yaml", "Dockerfile", "README.md"):
        installs = re.findall("pip install.*", (CLUSTER / name).read_text())
        assert len(installs) == 1
        assert "-c cluster/constraints.txt" in installs[0]
        assert name == "README.md" or "tracking" in installs[0], "any node may be told to run a study that is tracked"


def lint(text: str) -> str:
    done = subprocess.run([HADOLINT, "-"], input=text, capture_output=True, text=True, timeout=60)
    return done.stdout


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not packaged for this platform")
def test_the_image_is_well_made() -> None:
    text = (CLUSTER / "Dockerfile").read_text()
    assert lint(text) == ""
    assert "DL3007" in lint(text.replace("3.12-slim-bookworm", "latest"))


def test_the_image_has_what_it_copies_and_no_root() -> None:
    text = (CLUSTER / "Dockerfile").read_text()
    copied = dict(re.findall(r"^COPY (\S+) (\S+)$", text, re.MULTILINE))
    let_in = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert "*" in let_in, "nothing else reaches the builder"
    assert {f"!{path}" for path in copied} == {line for line in let_in if line.startswith("!")}
    assert all((REPOSITORY / path).exists() for path in copied)
    assert {path: target for path, target in copied.items() if target not in (path, "./")} == {}
    (user,) = re.findall(r"^USER (.+)$", text, re.MULTILINE)
    assert int(user) > 0, "runAsNonRoot wants a number"
    assert f"useradd --uid {user} " in text
    assert "RAY_AUTH_MODE=token" in text


@pytest.mark.parametrize("name", ["trust", "bucket", "launch"])
def test_policies_name_actions_that_exist_and_give_no_more_than_needed(name: str) -> None:
    for statement in json.loads((CLUSTER / "iam" / f"{name}.json").read_text())["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert all(action_exists(action) for action in actions)
        harmless = {"ec2:Describe*", "ec2:RunInstances"}
        if statement.get("Resource") == "*" and "Condition" not in statement:
            assert set(actions) <= harmless
    assert not action_exists("ec2:RunInstance")
    assert not action_exists("s3:ListBuckets")


SECRETS = re.compile(
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{35}|ya29\.|gh[pousr]_\w{36}|-----BEGIN|\beyJ[\w-]{20}"
    r"|(?<![\w/+.-])(?=\S*\d)(?=\S*[A-Z])[A-Za-z0-9+/]{32,}={0,2}(?![\w/+.-])"
    r"|(?i:password|secret_access_key|auth_token|access_key_id)\b['\"]?\s*[:=]\s*['\"]?(?![~/$`|,;.]|\$\()\w{6,}"
)


@pytest.mark.parametrize("path", sorted(p for p in CLUSTER.rglob("*") if p.is_file()), ids=lambda p: p.name)
def test_no_file_holds_a_secret(path: Path) -> None:
    assert not SECRETS.search(path.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "AKIA" + "IOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "RAY_AUTH_TOKEN: " + "0123456789abcdef",
        "  value: " + "c2VjcmV0U2VjcmV0U2VjcmV0U2VjcmV0U2VjcmV0MTIz",
        "-----BEGIN" + " PRIVATE KEY-----",
        "password: " + "hunter22",
    ],
)
def test_a_secret_would_be_found(text: str) -> None:
    assert SECRETS.search(text)


def test_keys_of_a_storage_come_by_reference_to_the_head_alone() -> None:
    for name in ("raycluster", "rayjob"):
        head, *workers = pods(name)
        (container,) = head["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "raystitch-storage", "optional": True}}]
        assert not any({"env", "envFrom"} & c.keys() for worker in workers for c in worker["containers"])
