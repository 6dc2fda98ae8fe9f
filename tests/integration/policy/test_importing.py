"""`mortal import-gguf`: a file of llama.cpp becomes a folder with its weights and tokenizer."""

import numpy
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ModelError
from mortal_steps.models.local_folder import check_folder
from mortal_steps.policy.model_files import importing

gguf = pytest.importorskip("gguf", reason="the package gguf, which reads such files, is missing")

WIDTH, HEADS, MLP = 32, 2, 64
TOKENS = ["<eos>", *"abcdefgh=", "ab"]
ROOM = 1024


def quantized(draw, rows, columns):
    """Return a matrix as Q8_0 holds it, and the numbers that it then is."""
    kind = gguf.GGMLQuantizationType.Q8_0
    packed = gguf.quantize(draw.standard_normal((rows, columns)).astype("float32"), kind)
    return packed, gguf.dequantize(packed, kind), kind


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a file of a llama of one layer, and its tensors by llama.cpp's names."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer, draw = gguf.GGUFWriter(path, "llama"), numpy.random.default_rng(0)
    writer.add_name("tiny")
    writer.add_context_length(ROOM)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (len(TOKENS) - 1))
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    tensors = {}
    shapes = {
        "token_embd": (len(TOKENS), WIDTH),
        **{f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": (MLP, WIDTH),
        "blk.0.ffn_up": (MLP, WIDTH),
        "blk.0.ffn_down": (WIDTH, MLP),
    }
    for name, shape in shapes.items():
        packed, tensors[name], kind = quantized(draw, *shape)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        tensors[name] = draw.standard_normal(WIDTH).astype("float32")
        writer.add_tensor(f"{name}.weight", tensors[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, tensors


def imported(path, folder, *options):
    done = CliRunner().invoke(app, ["import-gguf", str(path), str(folder), *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_a_file_becomes_a_folder_with_its_numbers_and_its_tokenizer(written, tmp_path):
    path, tensors = written
    said = imported(path, tmp_path / "model")
    check_folder(tmp_path / "model")
    assert f"parameters in float32 are in {tmp_path / 'model'}" in said
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    state = model.state_dict()
    same = {
        "model.embed_tokens.weight": "token_embd",
        "model.layers.0.mlp.down_proj.weight": "blk.0.ffn_down",
        "model.layers.0.self_attn.v_proj.weight": "blk.0.attn_v",
        "model.norm.weight": "output_norm",
    }
    for name, of_llama_cpp in same.items():
        assert torch.equal(state[name], torch.from_numpy(tensors[of_llama_cpp])), name
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert not hasattr(model.config, "quantization_config"), "its weights are plain"
    assert model.config.max_position_embeddings == ROOM and model.config.tie_word_embeddings
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("abc=").input_ids == [TOKENS.index("ab"), *map(TOKENS.index, "c=")]
    chat = [{"role": "user", "content": "abc="}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "abc="


def test_weights_may_have_another_type(written, tmp_path):
    imported(written[0], tmp_path / "model", "--dtype", "bfloat16")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}


def test_mistakes_are_named_and_leave_nothing(written, tmp_path, monkeypatch):
    other, folder = tmp_path / "other.gguf", tmp_path / "model"
    other.write_text("no such thing")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(written[0].read_bytes()[:2000])
    for path, expected in {
        tmp_path / "none.gguf": "no such file",
        tmp_path: r"is a folder; name a \.gguf file \(cut\.gguf, other\.gguf\)",
        other: "is no GGUF file",
        cut: "transformers cannot read",
    }.items():
        with pytest.raises(ModelError, match=expected):
            imported(path, folder)
    with monkeypatch.context() as patch:
        patch.setattr(importing.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ModelError, match=r"pip install 'gguf>=0\.19'"):
            imported(written[0], folder)
    folder.mkdir()
    with pytest.raises(ModelError, match="already exists"):
        imported(written[0], folder)
    assert {path.name for path in tmp_path.iterdir()} == {"cut.gguf", "other.gguf", "model"}
