"""The table of reward functions, from the logs of a run."""

from dataclasses import replace

from pydantic import TypeAdapter

from mortal_steps.report.reward_functions import function_cells, function_rows
from mortal_steps.report.timings import (
    generation_timings,
    stage_rows,
    table_cells,
    timing_row,
)
from mortal_steps.types import FileRef, GenerationRef, PolicyVersion, StageTiming


def test_scores_are_of_the_last_steps_and_failures_of_all():
    metrics = [{"rewards/a/mean": 9.0, "rewards/a/std": 9.0, "rewards/a/failed_calls": 2}]
    metrics += [{"rewards/a/mean": 0.25, "rewards/a/std": 0.5, "rewards/b/masked": 1}] * 20
    timing = {"stage": "reward", "busy_s": 1.0, "wait_s": 0.0, "functions": {"a": 0.5}}
    timings = [timing, {**timing, "functions": {"a": 1.0}}]
    first, second = function_rows(metrics, stage_rows(timings))
    assert (first.name, first.mean, first.std, first.latency_s) == ("a", 0.25, 0.5, 0.75)
    assert (first.failed_calls, first.masked) == (2, 0)
    assert (second.name, second.mean, second.masked, second.latency_s) == ("b", None, 20, None)
    assert list(function_cells([second])[0].values()) == ["b", "-", "-", "0", "20", "-"]


def test_a_step_in_which_a_function_scored_nothing_does_not_count():
    (row,) = function_rows([{"rewards/a/mean": float("nan")}, {"rewards/a/mean": 1.0}], [])
    assert row.mean == 1.0


def test_a_line_of_the_log_names_functions_where_there_are_any():
    plain = StageTiming(stage="generate", step=1)
    assert "functions" not in timing_row(plain)
    scored = StageTiming(stage="reward", step=1, functions={"a": 0.5})
    assert timing_row(scored)["functions"] == {"a": 0.5}


def test_sizes_stand_where_they_are_known_and_nowhere_else():
    plain = StageTiming(stage="generate", step=1)
    sized = StageTiming(stage="sync_weights", step=1, busy_s=1.0, num_bytes=1_500_000_000)
    assert "num_bytes" not in timing_row(plain)
    assert timing_row(sized)["num_bytes"] == sized.num_bytes
    assert (
        TypeAdapter(StageTiming).validate_json(TypeAdapter(StageTiming).dump_json(sized)) == sized
    )
    rows = stage_rows([timing_row(plain), timing_row(sized)])
    assert [cell["size"] for cell in table_cells(rows)] == ["", "1.5 GB"]
    assert "size" not in table_cells(rows[:1])[0]


def test_what_ran_in_the_background_is_marked_and_has_no_share():
    saved = StageTiming(stage="checkpoint", step=1, busy_s=1.0, background={"write": 3.0})
    trained = StageTiming(stage="train_step", step=0, busy_s=3.0, background={"journal": 0.5})
    again = StageTiming(stage="train_step", step=1, busy_s=0.0)
    assert "background" not in timing_row(again)
    rows = stage_rows(map(timing_row, [trained, again, saved]))
    assert [(row.stage, row.total_s, row.share, row.in_background) for row in rows] == [
        ("train_step", 3.0, 0.75, False),
        ("train_step: journal", 0.5, 0.0, True),
        ("checkpoint", 1.0, 0.25, False),
        ("checkpoint: write", 3.0, 0.0, True),
    ]
    assert [cell["share"] for cell in table_cells(rows)] == [
        "75.0 %",
        "background",
        "25.0 %",
        "background",
    ]


def test_the_sync_that_a_shard_began_with_is_a_stage_of_its_own():
    took = StageTiming(
        stage="generate", step=5, index=1, busy_s=3.0, wait_s=0.5, num_bytes=7, sync_s=1.0
    )
    generation = GenerationRef(
        step=5,
        shard=1,
        file=FileRef(path="steps/000005/generations-1.parquet", sha256="1"),
        num_completions=1,
        num_tokens=1,
        policy_version=PolicyVersion(4),
        timing=took,
    )
    sync, sampling = generation_timings(generation)
    assert sync == StageTiming(stage="sync_weights", step=4, index=1, busy_s=1.0, num_bytes=7)
    assert sampling == StageTiming(stage="generate", step=5, index=1, busy_s=2.0, wait_s=0.5)
    assert "sync_s" not in timing_row(sampling)
    assert list(generation_timings(replace(generation, timing=sampling))) == [sampling]


def test_seconds_of_tools_are_a_part_of_sampling_and_not_of_the_sync_before_it():
    took = StageTiming(
        stage="generate",
        step=5,
        busy_s=3.0,
        sync_s=1.0,
        functions={"search": 0.5, "Shop": 0.25},
    )
    generation = GenerationRef(
        step=5,
        shard=0,
        file=FileRef(path="steps/000005/generations-0.parquet", sha256="1"),
        num_completions=1,
        num_tokens=1,
        policy_version=PolicyVersion(4),
        timing=took,
    )
    rows = stage_rows(map(timing_row, generation_timings(generation)))
    assert [(row.stage, row.total_s) for row in rows] == [
        ("generate", 2.0),
        ("generate: search", 0.5),
        ("generate: Shop", 0.25),
        ("sync_weights", 1.0),
    ]
    (shop,) = function_rows([{"rewards/Shop/mean": 1.0}], rows)
    assert shop.latency_s == 0.25


def test_the_parts_of_a_stage_are_no_stages_of_their_own():
    rows = stage_rows(
        [{"stage": "reward", "busy_s": 2.0, "wait_s": 1.0, "functions": {"a": 1.5, "b": 0.5}}]
    )
    assert [(row.stage, row.share, row.is_part) for row in rows] == [
        ("reward", 1.0, False),
        ("reward: a", 0.75, True),
        ("reward: b", 0.25, True),
    ]
