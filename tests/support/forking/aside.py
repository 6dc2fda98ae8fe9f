"""Prefect, imported before anybody asks for it.

That takes a second of a core, reads settings and sets up logging. A process that has put Prefect
aside, and each that is forked off it, imports it at once, and with the settings of then.
"""

import importlib
import importlib.abc
import logging.config
import sys
from importlib.machinery import ModuleSpec
from unittest.mock import patch

PREFECT = "prefect"


def put_aside(modules):
    """Import these modules of Prefect's and hide all of it, until the next import finds it."""
    with patch.object(logging.config, "dictConfig", lambda config: None):
        for name in modules:
            importlib.import_module(name)
    found = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_prefect(name)}
    found["prefect.logging.configuration"].PROCESS_LOGGING_CONFIG.clear()
    sys.meta_path.insert(0, _Aside(found))


def _is_prefect(name):
    return name.partition(".")[0] == PREFECT


class _Aside(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, modules):
        self._modules = modules
        self._spec = modules[PREFECT].__spec__

    def find_spec(self, fullname, path, target=None):
        return ModuleSpec(fullname, self, is_package=True) if fullname == PREFECT else None

    def create_module(self, spec):
        return self._modules[PREFECT]

    def exec_module(self, module):
        module.__spec__ = self._spec
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        self._modules["prefect.context"].refresh_global_settings_context()
        self._modules["prefect.logging.configuration"].setup_logging()
