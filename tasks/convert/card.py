"""The model card: README.md of the exported directory."""

from __future__ import annotations

from typing import Any


def model_card(config: dict[str, Any], num_parameters: int, num_steps: int | None, dtype: str) -> str:
    """A short README in Markdown, the same bytes for the same model. `config` is the content of config.json."""
    steps = f", trained for {num_steps:,} steps" if num_steps is not None else ""
    return f"""---
library_name: transformers
pipeline_tag: text-generation
---

# A GPT-2 model made with url2lm

{num_parameters:,} parameters{steps}; weights in {dtype}.

| | |
|---|---|
| layers | {config["n_layer"]} |
| hidden size | {config["n_embd"]} |
| attention heads | {config["n_head"]} |
| feed-forward size | {config["n_inner"]} |
| context | {config["n_positions"]} tokens |
| vocabulary | {config["vocab_size"]:,} tokens |

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
```

A text begins after the end-of-document token (id {config["eos_token_id"]}) and ends with it. `parity.json` says what
was checked before this directory was published. The model repeats what its training text says, right or wrong.
"""
