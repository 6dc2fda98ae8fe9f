"""Works out how much memory training takes on a card, from the shape of the model.

docs/gpu.md has the formula in words; tests/integration/policy/test_memory.py holds it to what train
steps allocate. Sizes are in bytes of tensors: what CUDA itself takes comes on top (`CONTEXT`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mortal_steps.config import ModelConfig, TrainingConfig
from mortal_steps.config.training import FULL
from mortal_steps.models.shape import ModelShape

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CONTEXT = 600_000_000
"""What CUDA, cuBLAS and the kernels take in each process."""
TILE_ROWS, TILE_COLUMNS = 4096, 32768
"""TRL computes logits in tiles of so many tokens and entries of the vocabulary."""
TILES_WITHOUT_TRITON = 8
"""Copies of a tile, in float32, that the same takes on a CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMemory:
    """What the actor holds at the fullest moment of a train step."""

    weights: int
    gradients: int
    optimizer: int
    """The two moments of Adam's, or what another optimizer keeps."""
    activations: int
    """What the backward pass needs of the forward pass, and computes with."""
    logits: int
    """The output layer: a tile of logits, and the gradients of its inputs."""
    teacher: int = 0
    """Weights of the teacher that is learned from."""

    @property
    def static(self) -> int:
        """What does not depend on the batch."""
        return self.weights + self.gradients + self.optimizer + self.teacher

    @property
    def total(self) -> int:
        return self.static + self.activations + self.logits


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbers:
    """In which types a train step computes."""

    weight: int
    """Bytes of a weight, and of the residual stream."""
    compute: int
    """Bytes of a factor of a matrix product."""

    @property
    def casts(self) -> bool:
        """Whether autocast makes copies of weights and inputs."""
        return self.compute < self.weight


def training_memory(
    model: ModelConfig,
    training: TrainingConfig,
    shape: ModelShape,
    *,
    prompt: int,
    autocast: bool,
    on_gpu: bool = True,
    teacher: tuple[ModelConfig, ModelShape] | None = None,
) -> TrainingMemory:
    """Return the memory of a train step whose prompts have `prompt` tokens, and whose completions
    are of full length. Without `on_gpu`, as TRL computes it without Triton. A `teacher` is computed
    between the student's forward and backward pass."""
    parts = training.ranks if training.sharding == FULL else 1
    weight, numbers = _types(model, training, shape, parts, autocast)
    rows = training.rows // training.steps_per_generation // training.ranks
    length = prompt + training.max_completion_length
    tokens = rows * length
    trained, size = trained_parameters(training, shape), 4 if training.use_lora else weight
    if model.quantization:
        size = 2  # TRL trains the adapter of a quantized model in bfloat16
    adapter = size * trained if training.use_lora else 0
    weights = _weights(model, training, shape, weight) + adapter
    saved, in_layer, copies = _layers(training, shape, numbers, rows, length, on_gpu)
    scored = rows * (training.max_completion_length if on_gpu else length - 1)
    ends = 3 * numbers.weight * tokens * shape.hidden  # into the last norm, and out of it
    logits, into_weights = _head(training, shape, numbers, scored, on_gpu)
    if teacher is not None:
        scored = rows * training.max_completion_length
        logits = _heads(shape, scored, on_gpu) + 4 * scored * shape.hidden

    buckets = size * trained if training.ranks > 1 and parts == 1 else 0  # of DDP, which adds up
    gradients = size * trained // parts
    accumulates = training.accumulation_steps > 1
    # The fullest moment: the end of the forward pass, the output layer on the way back, the last
    # layer after it, or the first layer, when there are all gradients.
    early = gradients if accumulates else 0
    at_head = early + saved + ends + max(copies, into_weights) + logits
    at_layer = max(early, into_weights) + saved + ends + in_layer
    at_end = gradients + (0 if training.use_lora else 4 * shape.embedding)
    most = max(at_head, at_layer, at_end)
    in_head = logits + into_weights if most == at_head else 0
    if parts > 1:
        weights = _dealt_out(weights, training, shape, numbers.compute)
        weights += numbers.compute * _layer(shape)
    passing = tokens * _working(teacher[1], numbers) if teacher else 0
    return TrainingMemory(
        weights=weights,
        gradients=gradients + buckets,
        optimizer=trained * _of_optimizer(training, size) // parts,
        activations=max(0, most - gradients - in_head) + passing,
        logits=in_head,
        teacher=_of_teacher(*teacher) if teacher else 0,
    )


def _types(
    model: ModelConfig, training: TrainingConfig, shape: ModelShape, parts: int, autocast: bool
) -> tuple[int, _Numbers]:
    """Return the bytes of a weight at rest, of which each rank has one of so many `parts`, and the
    types that a train step computes in."""
    dtype = shape.dtype if model.dtype == "auto" else model.dtype
    weight = BYTES.get(dtype or "float32", 4)
    sharded_casts = parts > 1 and autocast  # FSDP2 casts a layer's weights while it is whole
    if sharded_casts and not training.use_lora:
        weight = 4  # accelerate trains them in float32
    compute = 2 if autocast else weight
    return weight, _Numbers(weight=compute if sharded_casts else weight, compute=compute)


def _layers(
    training: TrainingConfig,
    shape: ModelShape,
    numbers: _Numbers,
    rows: int,
    length: int,
    on_gpu: bool,
) -> tuple[int, int, int]:
    """Bytes that all layers keep for the backward pass, those that it then takes in the last one,
    and those of the copies of weights that are there at the same time."""
    tokens = rows * length
    layer = tokens * _saved(training, shape, numbers, length, on_gpu)
    working = tokens * _working(shape, numbers)
    body = numbers.compute * (shape.parameters - (2 - shape.tied) * shape.embedding)
    if not training.gradient_checkpointing:
        return shape.layers * layer + (body if numbers.casts else 0), working, 0
    copies = body if numbers.casts and not training.use_lora else 0
    saved = shape.layers * tokens * numbers.weight * shape.hidden
    return saved, layer + working + copies // shape.layers, copies


def _heads(shape: ModelShape, scored: int, on_gpu: bool) -> int:
    """Bytes of the two tiles of a divergence, student's and teacher's: in float32, and as wide as
    tiles are, whatever the vocabulary."""
    tokens = min(scored, TILE_ROWS)
    copies = 0 if on_gpu else TILES_WITHOUT_TRITON * min(TILE_COLUMNS, shape.vocabulary)
    return 4 * tokens * (2 * TILE_COLUMNS + copies)


def _of_teacher(model: ModelConfig, shape: ModelShape) -> int:
    dtype = shape.dtype if model.dtype == "auto" else model.dtype
    return BYTES.get(dtype or "float32", 4) * shape.parameters


def _dealt_out(weights: int, training: TrainingConfig, shape: ModelShape, weight: int) -> int:
    """Return what one of several ranks holds of so many bytes of weights: its part; and for a time,
    whole, both ends of the model, the layer that is computed and the one after it, or all of a
    reference model, which is gathered as one."""
    reference = weight * shape.parameters if training.beta > 0 and not training.use_lora else 0
    ends = (2 - shape.tied) * shape.embedding
    whole = weight * (ends + 2 * _layer(shape))
    return weights // training.ranks + max(reference, whole)


def _layer(shape: ModelShape) -> int:
    """Return the parameters of a layer."""
    return (shape.parameters - (2 - shape.tied) * shape.embedding) // shape.layers


def _weights(model: ModelConfig, training: TrainingConfig, shape: ModelShape, weight: int) -> int:
    if model.quantization:  # of all matrices but the embeddings, with their scales
        embeddings = (2 - shape.tied) * shape.embedding
        part = 1.05 if model.quantization.get("load_in_8bit") else 0.55
        return weight * embeddings + round(part * (shape.parameters - embeddings))
    reference = training.beta > 0 and not training.use_lora
    return (1 + reference) * weight * shape.parameters


def _of_optimizer(training: TrainingConfig, size: int) -> int:
    """Bytes that the optimizer keeps for a parameter; 0 for one of which too little is known."""
    name = str(training.trl.get("optim", "adamw"))
    moments = {"adam": 2, "lion": 1, "rmsprop": 1, "adagrad": 1}
    kept = next((count for start, count in moments.items() if name.startswith(start)), 0)
    if "8bit" in name:
        return kept
    return kept // 2 if "4bit" in name else kept * size


def trained_parameters(training: TrainingConfig, shape: ModelShape) -> int:
    if not training.use_lora:
        return shape.parameters
    ends = shape.adapted(training.lora).values()
    return shape.layers * training.lora.r * sum(wide_in + wide_out for wide_in, wide_out in ends)


def _saved(
    training: TrainingConfig, shape: ModelShape, numbers: _Numbers, length: int, on_gpu: bool
) -> int:
    """Bytes per token that one decoder layer keeps for the backward pass."""
    hidden, mlp, compute = shape.hidden, shape.mlp, numbers.compute
    attention = compute * (4 * shape.attention + length)  # the mask has a row for each token
    if training.use_lora:
        noise = 1 if on_gpu else 4
        adapted = shape.adapted(training.lora).values()
        per_input = compute + (noise if training.lora.dropout else 0)
        inputs = per_input * sum(wide_in for wide_in, _ in adapted)
        return 2 * 4 * hidden + attention + 3 * compute * mlp + inputs
    norms = 2 * (4 + numbers.weight) * hidden
    inputs = (5 if numbers.casts else 2) * compute * hidden
    return norms + inputs + attention + 4 * compute * mlp


def _working(shape: ModelShape, numbers: _Numbers) -> int:
    """Bytes per token of the gradients that one layer's backward pass computes with."""
    return 2 * numbers.compute * shape.mlp + 2 * numbers.weight * shape.hidden


def _head(
    training: TrainingConfig, shape: ModelShape, numbers: _Numbers, scored: int, on_gpu: bool
) -> tuple[int, int]:
    """Bytes of the tile of logits with the gradients of its input and of the output embeddings."""
    into_weights = 0 if training.use_lora else 4 * shape.embedding
    into_inputs = 4 * scored * shape.hidden
    columns = min(TILE_COLUMNS, -(-shape.vocabulary // 32) * 32) if not on_gpu else TILE_COLUMNS
    tile = min(scored, TILE_ROWS) * columns
    part = numbers.compute * min(TILE_COLUMNS, shape.vocabulary) * shape.hidden
    copies = 0 if on_gpu else TILES_WITHOUT_TRITON * 4 * tile
    return numbers.compute * tile + copies + into_inputs + part * numbers.casts, into_weights
