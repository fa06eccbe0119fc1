"""The only room that imports Ray: a pool of workers makes models and IRI sets, Ray Tune schedules the fits.

Ray reads several of its settings when it is first imported, so they are set here, before anything else in this room.
"""

import os

_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",  # raystitch has its own display
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # results go to the store, not into five files per trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C stops the sweep at once: nothing in the driver needs saving
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # the driver keeps no state, so there is no snapshot to grow
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",  # how many may wait for room is decided here
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000000",  # fits wait for their IRIs: that is no shortage
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S_AUTOSCALER": "1000000000",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)
if not os.environ.get("RAY_ADDRESS"):
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # a Ray of our own listens on loopback only

from raystitch.distributed.flow import run  # noqa: E402

__all__ = ["run"]
