"""What each of several ranks takes of its GPU."""

from mortal_steps.compute.memory import training_memory
from mortal_steps.config import ModelConfig, TrainingConfig
from mortal_steps.config.gpus import GIB
from tests.support.shapes import SEVEN_BILLION


def memory(**training):
    config = TrainingConfig(batch_size=32, num_generations=8, **training)
    return training_memory(ModelConfig(), config, SEVEN_BILLION, prompt=512, autocast=True)


def test_ranks_have_their_own_rows_and_a_copy_of_the_gradients():
    alone = memory(gradient_accumulation_steps=8)
    one = memory(gradient_accumulation_steps=8, ranks=4)
    assert (one.weights, one.optimizer) == (alone.weights, alone.optimizer)
    assert one.gradients == 2 * alone.gradients
    assert one.activations < alone.activations


def test_a_model_dealt_out_to_eight_fits_where_it_does_not_fit_alone():
    alone = memory(gradient_accumulation_steps=32)
    one = memory(gradient_accumulation_steps=32, ranks=8, sharding="full")
    assert alone.total > 80 * GIB > 40 * GIB > one.total
    assert one.optimizer == alone.optimizer // 8 and one.gradients == alone.gradients // 8
    assert one.weights > alone.weights // 8  # some layers are whole


def test_a_reference_model_is_gathered_whole():
    without = memory(gradient_accumulation_steps=32, ranks=8, sharding="full")
    beside = memory(gradient_accumulation_steps=32, ranks=8, sharding="full", beta=0.1)
    assert beside.weights - without.weights > 2 * SEVEN_BILLION.parameters
