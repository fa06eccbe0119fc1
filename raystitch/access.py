"""How this process reaches object storage: the usual ``AWS_*`` variables of its environment, and nothing else.

The environment serves every S3 client alike (s3fs, pyarrow, boto), so each process has one endpoint and one identity. A
study's ``s3`` section or ``--endpoint`` only fill the environment in. :class:`Access` carries it from the driver to the
workers in memory: credentials are in no file, no plan, no result and no setting of Ray, which would log it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")
_OF_TRACKERS = ("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_SECRETS = (*_CREDENTIALS, "FSSPEC_S3_KEY", "FSSPEC_S3_SECRET", "FSSPEC_S3_TOKEN", *_OF_TRACKERS)
_SECRET_NAME = (
    r"(?:sig|sas|pwd|key|auth|credentials?|(?:x-amz|x-goog)-[\w-]{1,60}"
    r"|[\w.-]{0,60}(?:signature|token|passw(?:or)?d|passphrase|secret|(?:access|api|secret)[_-]?key(?:[_-]?id)?))"
)
_SIGNED = re.compile(rf"([?&#;]{_SECRET_NAME}=)([^&#;\s]+)", re.IGNORECASE)
_PASSWORD = re.compile(r"://([^\s/?#@:]{0,300}):(?!:|\d*(?:[/?#,;\s]|$))([^\s?#]{0,300})@")
"""In a URL. After a host comes a port, and in a chain such as zip://a.zip::https://b the next URL."""
_USER = re.compile(
    r"\b(?!(?:(?:git\+)?ssh|sftp|scp|mailto|abfss?|wasbs?|az|adl)://)([a-z][a-z0-9+.-]{0,30})://([^\s/?#:@,;<>]{1,300})@",
    re.IGNORECASE,
)
"""A name alone may be a token; but not with SSH and mail, and on Azure it is the container."""
CREDENTIALS = "holds credentials; leave them to the environment, where they are written nowhere"
_SHORTEST_SECRET = 6  # characters; hiding shorter ones would only garble texts


def set_endpoint(url: str) -> None:
    """Use an endpoint for S3 in this process and all that it starts."""
    os.environ["AWS_ENDPOINT_URL_S3"] = url


def fill_in(endpoint: str | None, region: str | None, profile: str | None) -> None:
    """Set what the environment leaves open, as a study's ``s3`` section has it."""
    if endpoint and not any(map(os.environ.get, _ENDPOINTS)):
        set_endpoint(endpoint)
    if region and not any(map(os.environ.get, _REGIONS)):
        os.environ["AWS_DEFAULT_REGION"] = region
    if profile:
        os.environ.setdefault("AWS_PROFILE", profile)


def complete_environment() -> None:
    """What servers other than Amazon's need: several refuse the checksums that newer clients add to uploads."""
    if any(map(os.environ.get, _ENDPOINTS)):
        os.environ.setdefault(_CHECKSUMS[0], "when_required")


class _State:
    expected = False


_state = _State()


def is_expected() -> bool:
    """Whether another process has reached the storage, so that it is there even if it does not answer now."""
    return _state.expected


@dataclass(frozen=True)
class Access:
    """Endpoint, region and static credentials of a process, to be given to others; shown nowhere.

    Credentials that renew themselves (roles of machines and pods, single sign-on) stay where they are: they would
    expire on the way, and workers have their own.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of_this_process(cls) -> Access:
        """What the environment and, where it names none, the profile in ``~/.aws`` say."""
        found = {name: os.environ[name] for name in (*_ENDPOINTS, *_REGIONS, *_CHECKSUMS) if os.environ.get(name)}
        return cls({**_of_profile(), **found})

    def apply(self) -> None:
        """Reach storage as the other process did, and trust that it is there."""
        _state.expected = True
        if _CREDENTIALS[0] in self.variables:
            for name in _CREDENTIALS:
                os.environ.pop(name, None)  # half of another identity would spoil this one
        os.environ.update(self.variables)
        complete_environment()


def _of_profile() -> dict[str, str]:
    """Static credentials, endpoint and region as botocore finds them in environment and profile; asks no other machine."""
    from botocore.configprovider import ConfiguredEndpointProvider
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    try:
        scoped = session.get_scoped_config()
        provider = ConfiguredEndpointProvider(session.full_config, scoped, "s3")
        values = {_ENDPOINTS[0]: provider.provide(), _REGIONS[1]: scoped.get("region"), **_static(session, scoped)}
    except BotoCoreError:  # such as a profile that does not exist: the first use of the storage says so
        return {}
    return {name: str(value) for name, value in values.items() if value}


def _static(session: Any, scoped: Mapping[str, Any]) -> dict[str, Any]:
    resolver = session.get_component("credential_provider")
    renewing = any(key in scoped for key in ("role_arn", "sso_session", "sso_start_url", "credential_process"))
    kinds = ("env",) if renewing else ("env", "shared-credentials-file", "config-file")
    for kind in kinds:
        found = resolver.get_provider(kind).load()
        if found is not None:
            return dict(zip(_CREDENTIALS, found.get_frozen_credentials()[:3], strict=True))
    return {}


def without_credentials(url: str) -> str:
    """A path or URL as it is.

    Raises:
        ValueError: it carries a user's name or password, or a signature, which would be written into plans and results.
    """
    if holds_credentials(url):
        raise ValueError(CREDENTIALS)
    return url


def holds_credentials(text: str) -> bool:
    """Whether a URL in a text, or what it consists of, carries a user's name or password, or a signature."""
    return "://" in text and any(pattern.search(text) for pattern in (_PASSWORD, _USER, _SIGNED))


def is_secret_name(name: str) -> bool:
    """Whether what has such a name is likely a secret: token, api_key, …"""
    return re.fullmatch(_SECRET_NAME, name, re.IGNORECASE) is not None


def redact(text: str) -> str:
    """A text without the credentials of this process, should a client have put one into its error, nor those of any URL."""
    for secret in _secrets():
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    if "://" not in text:
        return text
    return _SIGNED.sub(r"\1***", _USER.sub(r"\1://***@", _PASSWORD.sub("://***@", text)))


def _secrets() -> Iterator[str]:
    """The secrets of the environment: its keys, and what its URLs hold, such as those of a proxy or of MLflow."""
    for name in _SECRETS:
        yield os.environ.get(name, "")
    for url in filter(holds_credentials, os.environ.values()):
        for pattern in (_PASSWORD, _USER, _SIGNED):
            for _, secret in pattern.findall(url):
                yield from (secret, unquote(secret))
