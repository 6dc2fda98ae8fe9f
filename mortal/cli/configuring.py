"""`options`, `new-model`, `import-gguf`: commands that help to write a configuration."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mortal.cli.arguments import FLOAT_TYPES, FloatType
from mortal.terminal.output import checking, say
from mortal_steps.errors import ModelError


def options(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Print only this section, such as training or model.new, this key, or the keys "
            "that contain this in their names.",
        ),
    ] = None,
) -> None:
    """Print every configuration key with its default and meaning, as TOML."""
    from mortal_steps.plan.reference import reference_toml

    typer.echo(reference_toml(name), nl=False)


def new_model(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder for the new model; it must not exist yet."),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
    hidden_size: Annotated[int, typer.Option(help="Width of the model.")] = 64,
    num_layers: Annotated[int, typer.Option(help="Number of transformer layers.")] = 2,
    head_dim: Annotated[int, typer.Option(help="Attention head size; vLLM needs 32 or more.")] = 32,
    intermediate_size: Annotated[int, typer.Option(help="Width of the MLP.")] = 128,
    context: Annotated[int, typer.Option(help="Context length in tokens.")] = 512,
    alphabet: Annotated[str | None, typer.Option(help="Characters the tokenizer knows.")] = None,
) -> None:
    """Build a tiny Qwen3-shaped model with a character tokenizer."""
    if folder.exists():
        raise ModelError(f"{folder} already exists; name a folder that does not")
    from mortal_steps.plan.loader import parse_config

    shape: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "head_dim": head_dim,
        "intermediate_size": intermediate_size,
        "max_position_embeddings": context,
    }
    if alphabet is not None:
        shape["alphabet"] = alphabet
    settings = parse_config({"seed": seed, "model": {"new": shape}}, origin="mortal new-model")
    assert settings.model.new is not None
    # Slow to import.
    from transformers.utils.logging import disable_progress_bar

    from mortal_steps.policy.starting_model.new_model import build_model

    disable_progress_bar()
    try:
        build_model(folder, settings.model.new, seed)
    except OSError as error:
        raise ModelError(
            f"cannot write the model to {folder}: {error.strerror}; name another folder"
        ) from error
    say(f"built a model in {folder}; name it in a configuration as model.name_or_path")


def import_gguf(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The .gguf file.")],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for the model; it must not exist yet.")
    ],
    dtype: Annotated[
        FloatType, typer.Option(metavar="TYPE", help=f"Type of the weights: {FLOAT_TYPES}.")
    ] = "float32",
) -> None:
    """Make a model folder, which can be trained, of a GGUF file of llama.cpp.

    The quantized weights are written as plain numbers of this type, without what the quantization
    has lost. Needs the package gguf.
    """
    if folder.exists():
        raise ModelError(f"{folder} already exists; name a folder that does not")
    from mortal_steps.policy.model_files import importing

    importing.check_gguf(file)
    checking(f"reading {file}, whose vocabulary alone takes some 20 s")
    num_parameters = importing.import_gguf(file, folder, dtype)
    say(
        f"{num_parameters:,} parameters in {dtype} are in {folder}; name it in a configuration as "
        "model.name_or_path"
    )
