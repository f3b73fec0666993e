"""The table of models."""

from __future__ import annotations

from chatsrv.model_list import describe_models
from engine import FoundModel, ModelNeeds

SMALL = ModelNeeds("llama", 270_000_000, 16 * 23_040, 4096, 8192, 8)
LARGE = ModelNeeds("qwen3", 16_400_000_000, 16 * 147_456, 812, 12_992, 1)


def test_models_that_run_come_first_in_columns() -> None:
    models = [
        FoundModel("smollm2", SMALL),
        FoundModel("owner/bad", None, "bloom takes no attention implementation"),
        FoundModel("owner/large", LARGE),
    ]
    assert describe_models(models, 16).splitlines() == [
        "model        architecture  weights  a token's KV  blocks  context  sessions",
        "smollm2      llama         270 MB   23 kB         4,096   8,192    8",
        "owner/large  qwen3         16.4 GB  147 kB        812     12,992   1",
        "owner/bad: cannot run: bloom takes no attention implementation",
    ]


def test_an_empty_machine() -> None:
    assert describe_models([], 16) == "no models found"
