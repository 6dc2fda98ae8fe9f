"""A configuration file as nested values, which nobody has checked."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """The nested values of a TOML file; raises `ConfigError` for what is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors of Windows mark it
    except FileNotFoundError:
        hint = f"; an override is written --set {path}" if "=" in path.name else ""
        raise ConfigError(f"no such configuration file: {path}{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a TOML file in it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: byte {error.start} is not UTF-8; save it in that encoding"
        ) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
