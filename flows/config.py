"""PipelineConfig: the only parameter of the flow, one field a stage; recipes are TOML files that say what differs."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError, field_validator, model_validator

from tasks.clean.config import CleanConfig, DecontaminateConfig, DedupConfig, ShuffleConfig
from tasks.configuration import Config
from tasks.convert.config import ConvertConfig
from tasks.errors import UserError, nearest
from tasks.infer.config import EvaluateConfig, SampleConfig
from tasks.scrape.config import ExtractConfig, FetchConfig, FilterConfig
from tasks.tokenize.config import TokenizeConfig, VocabularyConfig
from tasks.train.config import TrainConfig

StageName = Literal[
    "filter", "fetch", "extract", "clean", "dedup", "decontaminate", "shuffle",
    "vocabulary", "tokenize", "train", "convert", "evaluate", "sample",
]  # fmt: skip
STAGE_NAMES: tuple[StageName, ...] = (
    "filter", "fetch", "extract", "clean", "dedup", "shuffle",
    "vocabulary", "tokenize", "train", "convert", "evaluate", "sample",
)  # fmt: skip
"""The stages that every flow has."""
STAGE_ORDER: tuple[StageName, ...] = (*STAGE_NAMES[:5], "decontaminate", *STAGE_NAMES[5:])
"""All stages; decontaminate takes part when there are benchmark files."""
RECIPES = Path(__file__).parent / "recipes"
DEFAULT_STORE = "url2lm-store"


class InputConfig(Config):
    """Where the flow starts: give exactly one of the four."""

    urls: tuple[str, ...] = ()
    """URL lists: files, folders or globs (.txt or .jsonl with a field url; also .gz, .xz, .zst). Starts at filter."""
    pages: tuple[str, ...] = ()
    """WARC files, folders or globs. Starts at extract."""
    documents: tuple[str, ...] = ()
    """JSON lines with a text field (.jsonl, also .gz, .zst). Starts at clean."""
    corpus: str = ""
    """Prefix of a Megatron .bin/.idx pair. Starts at train; `vocabulary` must name the tokenizer that made it."""
    text_field: str = "text"
    """The field that holds the text of `documents`."""

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        given = [name for name in ("urls", "pages", "documents", "corpus") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"the flow starts at one place, but {' and '.join(given)} are given; keep one of them")
        return self

    @property
    def first_stage(self) -> StageName:
        """The first stage that runs. Raises UserError when nothing is given."""
        starts: dict[str, StageName] = {"urls": "filter", "pages": "extract", "documents": "clean", "corpus": "train"}
        for name, stage in starts.items():
            if getattr(self, name):
                return stage
        raise UserError(
            "input", None, "the flow has nothing to start from", "Give --urls FILE (or --documents, --pages, --corpus)."
        )


class PipelineConfig(Config):
    """The whole way from URLs to samples."""

    input: InputConfig = InputConfig()
    """Where the flow starts."""
    store: str = DEFAULT_STORE
    """Folder of the artifact store. A relative path counts from the current folder."""
    until: StageName = "sample"
    """The last stage that runs."""
    only: StageName | None = None
    """Run this stage alone; everything before it must already be in the store."""
    refresh: tuple[StageName, ...] = ()
    """Stages that run again although their result is in the store; what follows runs only if the result changes."""

    filter: FilterConfig = FilterConfig()
    """Which URLs are kept."""
    fetch: FetchConfig = FetchConfig()
    """How pages are fetched."""
    extract: ExtractConfig = ExtractConfig()
    """How pages become text."""
    clean: CleanConfig = CleanConfig()
    """How text is repaired and which documents are kept."""
    dedup: DedupConfig = DedupConfig()
    """Which documents count as the same."""
    decontaminate: DecontaminateConfig = DecontaminateConfig()
    """What is taken out because a benchmark holds it; without benchmark files the stage is left out."""
    shuffle: ShuffleConfig = ShuffleConfig()
    """The global order of documents."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Where the tokenizer comes from."""
    tokenize: TokenizeConfig = TokenizeConfig()
    """How text becomes .bin/.idx."""
    train: TrainConfig = TrainConfig()
    """The model and its training."""
    convert: ConvertConfig = ConvertConfig()
    """The Hugging Face directory."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Perplexity on the held-out split."""
    sample: SampleConfig = SampleConfig()
    """What the model is asked to write."""

    @field_validator("store")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise ValueError("it names no folder")
        try:
            Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _wanted_stages_take_part(self) -> Self:
        for field, name in (("only", self.only), ("until", self.until)):
            if name is not None and name not in self.stages:
                raise ValueError(f"{field} = {name}, but {name}.benchmarks is empty; give the benchmark files")
        return self

    @property
    def stages(self) -> tuple[StageName, ...]:
        """The stages of this flow in order, from the first to the last there is."""
        return STAGE_ORDER if self.decontaminate.benchmarks else STAGE_NAMES

    @property
    def fetching(self) -> FetchConfig:
        """`fetch` with the private hosts that `filter` allows, unless it names its own."""
        if "allow_private_hosts" in self.fetch.model_fields_set:
            return self.fetch
        return self.fetch.model_copy(update={"allow_private_hosts": self.filter.allow_private_hosts})

    @property
    def evaluation(self) -> EvaluateConfig:
        """`evaluate` on what training held out: split, seq_length and seed are those of `train` unless they are set."""
        taken = {name: getattr(self.train, name) for name in ("split", "seq_length", "seed")}
        unset = {name: value for name, value in taken.items() if name not in self.evaluate.model_fields_set}
        return self.evaluate.model_copy(update=unset)

    @property
    def store_path(self) -> Path:
        """The store's folder as an absolute path."""
        return Path(self.store).expanduser().resolve()


def load_recipe(name: str) -> dict[str, Any]:
    """The settings of a recipe: a TOML file, or the name of one that ships with url2lm. Raises UserError."""
    path = Path(name).expanduser()
    if not path.is_file():
        shipped = {file.stem: file for file in RECIPES.glob("*.toml")}
        stem = name.removesuffix(".toml")
        if stem not in shipped:
            raise UserError("recipe", name, "there is no such file and no such recipe", nearest(stem, shipped))
        path = shipped[stem]
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UserError("recipe", str(path), f"it is not valid TOML ({error})", "Mend the file.") from error
    except OSError as error:
        raise UserError("recipe", str(path), f"it cannot be read ({error.strerror})", "Name another.") from error


def parse_assignment(text: str) -> tuple[list[str], Any]:
    """`a.b=value` as a dotted path and a value. The value is read as TOML, and as plain text where that fails."""
    path, separator, value = text.partition("=")
    if not separator or not path.strip():
        raise UserError(
            "--set", text, "it is not of the form a.b=value", "Write for example --set train.num_steps=100."
        )
    parsed: Any = value
    with suppress(ValueError, RecursionError):
        table = tomllib.loads(f"value = {value}")
        if len(table) > 1:
            raise UserError("--set", text, "it sets more than one thing", "Give --set once for each.")
        parsed = table["value"]
    return path.strip().split("."), parsed


def build_config(recipe: Mapping[str, Any], assignments: Sequence[tuple[Sequence[str], Any]] = ()) -> PipelineConfig:
    """Recipe and assignments as a checked PipelineConfig. Raises UserError that names the dotted path and the rule."""
    values = copied(recipe)
    for path, value in assignments:
        place = values
        for name in path[:-1]:
            child = place.setdefault(name, {})
            if not isinstance(child, dict):
                raise UserError(
                    ".".join(path), value, f"{name} is a plain value, not a group", "Give the group instead."
                )
            place = child
        place[path[-1]] = value
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        raise as_user_error(error, PipelineConfig) from error


def copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested groups of settings that may be changed."""
    return {name: copied(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def as_user_error(error: ValidationError, model: type[BaseModel]) -> UserError:
    """The first complaint of pydantic in this project's form: dotted path, value, rule, remedy."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    dotted = ".".join(location) or "recipe"
    rule = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        owner = _model_at(model, location[:-1])
        known = list(owner.model_fields) if owner else []
        return UserError(dotted, first["input"], "there is no such setting", nearest(location[-1], known))
    more = len(error.errors()) - 1
    if first["type"] in ("literal_error", "enum") and isinstance(first["input"], str):
        named = re.findall(r"'([^']*)'", first["ctx"]["expected"])
        return UserError(dotted, first["input"], "there is no such choice", nearest(first["input"], named))
    if first["type"] == "tuple_type":
        example = json.dumps([first["input"] if isinstance(first["input"], str) else "..."])
        return UserError(dotted, _short(first["input"]), "it takes a list", f"Write --set '{dotted}={example}'.")
    if model is not PipelineConfig:
        remedy = "Give another value."
    elif not location or location == ["input"]:
        remedy = "Change it in the recipe or on the command line."
    else:
        remedy = f"Change it in the recipe or with --set {dotted}=VALUE."
    if more:
        remedy += f" ({more} more complaint{'s' if more > 1 else ''} after this one.)"
    return UserError(dotted, _short(first["input"]), rule, remedy)


def _short(value: Any) -> Any:
    if isinstance(value, Mapping | BaseModel):
        return "..."  # a rule about several fields names their values itself
    return value if len(repr(value)) <= 200 else f"{repr(value)[:200]}..."


def _model_at(model: type[BaseModel], location: Sequence[str]) -> type[BaseModel] | None:
    """The settings model that a dotted path leads to; tags of unions in the path are passed over."""
    current: type[BaseModel] | None = model
    for part in location:
        if current is None:
            return None
        field = current.model_fields.get(part)
        if field is None:
            continue
        current = _models_of(field.annotation, part)
    return current


def _models_of(annotation: Any, tag: str) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _models_of(argument, tag)) is not None:
            return found
    return None
