"""What clouds, Kubernetes and KubeRay accept, as far as it can be known without them. A check returns what is wrong."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import kubernetes_validate
from botocore.session import get_session
from botocore.validate import ParamValidator
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray_head import environment

_ASK_RAY = """
import json, sys
from ray.autoscaler._private.util import prepare_config, validate_config

answers = []
for config in json.load(sys.stdin):
    try:
        prepared = prepare_config(config)
        validate_config(prepared)
    except Exception as error:
        answers.append(str(error).splitlines()[0] or type(error).__name__)
    else:
        answers.append(prepared)
print(json.dumps(answers))
"""


def ask_ray(configs: Sequence[Any]) -> list[Any]:
    """What `ray up` makes of cluster files: the file with Ray's defaults, or the text of its complaint."""
    command = [sys.executable, "-c", _ASK_RAY]
    done = subprocess.run(
        command, input=json.dumps(configs), env=environment(), capture_output=True, text=True, check=True, timeout=120
    )
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@lru_cache(1)
def _ec2() -> Any:
    return get_session().get_service_model("ec2")


def ec2_problems(node_config: dict[str, Any]) -> list[str]:
    """A node of AWS against EC2's own description of RunInstances, as botocore ships it."""
    shape = _ec2().operation_model("RunInstances").input_shape
    request = {"MinCount": 1, "MaxCount": 1, **node_config}
    report = ParamValidator().validate(request, shape).generate_report()
    return [*filter(None, report.splitlines()), *_unknown_values(request, shape)]


def _unknown_values(value: Any, shape: Any) -> Iterator[str]:
    """Values that an enumeration does not have; botocore leaves those to the server."""
    if isinstance(value, dict) and shape.type_name == "structure":
        for key in value.keys() & shape.members.keys():
            yield from _unknown_values(value[key], shape.members[key])
    elif isinstance(value, list) and shape.type_name == "list":
        for item in value:
            yield from _unknown_values(item, shape.member)
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{value} is no {shape.name}"


def action_exists(action: str) -> bool:
    """Whether an action of a policy is one of its service. S3 documents its own; others have the names of operations."""
    service, _, name = action.partition(":")
    if service == "s3":
        return name in {
            *("ListBucket", "GetBucketLocation", "GetObject", "PutObject", "DeleteObject"),
            *("AbortMultipartUpload", "ListMultipartUploadParts"),
        }
    if action == "iam:PassRole":  # a right of its own, without an operation
        return True
    names = get_session().get_service_model(service).operation_names
    return any(n.startswith(name[:-1]) if name.endswith("*") else n == name for n in names)


def aws_option_exists(service: str, operation: str, option: str) -> bool:
    """Whether the AWS command line has an option: they are the members of the operation's input."""
    model = get_session().get_service_model(service)
    squeezed = operation.replace("-", "")
    found = [name for name in model.operation_names if name.lower() == squeezed]
    general = option in {"query", "output", "region", "profile"}
    return bool(found) and (
        general
        or any(m.lower() == option.replace("-", "") for m in model.operation_model(found[0]).input_shape.members)
    )


@lru_cache(1)
def _compute_engine() -> dict[str, Any]:
    documents = importlib.resources.files("googleapiclient.discovery_cache") / "documents" / "compute.v1.json"
    schemas: dict[str, Any] = json.loads(documents.read_text())["schemas"]
    return schemas


_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}


def gce_problems(value: Any, schema: dict[str, Any] | None = None, where: str = "node_config") -> list[str]:
    """A node of Google Cloud against Compute Engine's own description of an instance, as its Python client ships it."""
    schema = schema or {"$ref": "Instance"}
    if "$ref" in schema:
        schema = _compute_engine()[schema["$ref"]]
    if not isinstance(value, _TYPES[schema["type"]]):
        return [f"{where} is no {schema['type']}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value} is none of {schema['enum']}"]
    if isinstance(value, list):
        return [p for item in value for p in gce_problems(item, schema["items"], f"{where}[]")]
    if not isinstance(value, dict):
        return []
    known = schema.get("properties", {})
    problems = [f"{where} has no {key}" for key in value if key not in known]
    return problems + [
        p for key in value if key in known for p in gce_problems(value[key], known[key], f"{where}.{key}")
    ]


def kubernetes_problem(resource: dict[str, Any]) -> str:
    """A resource against the newest schemas of Kubernetes; unknown fields are refused."""
    try:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error).splitlines()[0]
    return ""


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}


class Strict(BaseModel):
    """Fields as in KubeRay's reference of ray.io/v1 (release 1.7); one that is not there is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AuthOptions(Strict):
    mode: Literal["disabled", "token"] = "token"
    secretName: str | None = None
    enableK8sTokenAuth: bool | None = None


class AutoscalerOptions(Strict):
    version: Literal["v1", "v2"] | None = None
    idleTimeoutSeconds: int | None = None
    upscalingMode: Literal["Default", "Aggressive", "Conservative"] | None = None
    resources: dict[str, Any] | None = None
    securityContext: dict[str, Any] | None = None
    image: str | None = None
    imagePullPolicy: str | None = None
    env: list[dict[str, Any]] | None = None
    envFrom: list[dict[str, Any]] | None = None


class Template(Strict):
    metadata: dict[str, Any] | None = None
    spec: dict[str, Any]


class HeadGroup(Strict):
    template: Template
    rayStartParams: dict[str, str] = {}
    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    enableIngress: bool | None = None


class WorkerGroup(Strict):
    groupName: str
    template: Template
    rayStartParams: dict[str, str] = {}
    replicas: int = Field(0, ge=0)
    minReplicas: int = Field(0, ge=0)
    maxReplicas: int = Field(2**31 - 1, ge=0)
    idleTimeoutSeconds: int | None = None
    numOfHosts: int = 1


class RayClusterSpec(Strict):
    rayVersion: str
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]
    authOptions: AuthOptions | None = None
    enableInTreeAutoscaling: bool | None = None
    autoscalerOptions: AutoscalerOptions | None = None


class RayJobSpec(Strict):
    entrypoint: str
    rayClusterSpec: RayClusterSpec
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = "K8sJobMode"
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: int = Field(0, ge=0)
    activeDeadlineSeconds: int | None = Field(None, ge=1)
    backoffLimit: int = Field(0, ge=0)
    runtimeEnvYAML: str | None = None
    suspend: bool = False


class Manifest(Strict):
    apiVersion: Literal["ray.io/v1"]
    kind: Literal["RayCluster", "RayJob"]
    metadata: dict[str, Any]
    spec: dict[str, Any]


def kuberay_problems(manifest: dict[str, Any]) -> list[str]:
    """A RayCluster or RayJob against KubeRay's fields, and all pods in it against Kubernetes' own."""
    try:
        kind = Manifest.model_validate(manifest).kind
        model: type[Strict] = {"RayCluster": RayClusterSpec, "RayJob": RayJobSpec}[kind]
        model.model_validate(manifest["spec"])
    except ValidationError as error:
        return [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
    cluster = manifest["spec"] if kind == "RayCluster" else manifest["spec"]["rayClusterSpec"]
    options = cluster.get("autoscalerOptions", {})
    sidecar = {"name": "autoscaler", **{k: options[k] for k in ("resources", "securityContext") if k in options}}
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    specs = [{"containers": [sidecar]}, *(group["template"]["spec"] for group in groups)]
    return list(filter(None, map(kubernetes_problem, map(pod, specs))))
