"""GPT-2: the model, the table that shards it, its foreign names."""
