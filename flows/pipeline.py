"""Every flow on one screen: the corpus (URLs to .bin/.idx), the model (tokens to samples), and the whole way.

urls --filter--> urls --fetch--> pages --extract--> documents --clean--dedup--(decontaminate)--shuffle--> documents
documents --vocabulary--> tokenizer          documents + tokenizer --tokenize--> corpus
corpus --train--> checkpoint --convert--> model --evaluate--> perplexity, --sample--> texts
"""

from __future__ import annotations

from contextlib import suppress

from prefect import flow

from flows.config import PipelineConfig
from flows.steps import Reached, Steps
from tasks import adopt
from tasks.artifacts import Artifact, DocumentShards, PageShards, TokenizedCorpus, Tokenizer
from tasks.clean.task import clean, decontaminate, dedup, shuffle
from tasks.convert.task import convert
from tasks.infer.task import evaluate, sample
from tasks.scrape.task import extract, fetch, filter_urls
from tasks.store import ArtifactStore
from tasks.tokenize.task import load_vocabulary, tokenize, train_vocabulary
from tasks.train.task import train

Produced = dict[str, Artifact]


@flow(name="corpus", description="URLs, pages or documents to a tokenized corpus", validate_parameters=False)
def corpus(config: PipelineConfig) -> Produced:
    """From where the input starts to `TokenizedCorpus`. Returns what each stage made, by stage name."""
    steps = Steps(config)
    with suppress(Reached):
        corpus_steps(config, steps)
    return steps.produced


def corpus_steps(config: PipelineConfig, steps: Steps) -> tuple[TokenizedCorpus, Tokenizer]:
    """What follows what up to the corpus. Raises Reached after the last wanted stage."""
    documents = _cleaned(config, steps, _extracted(config, steps))
    tokenizer = steps.run("vocabulary", train_vocabulary, config.vocabulary, documents)
    return steps.run("tokenize", tokenize, config.tokenize, documents, tokenizer), tokenizer


def _extracted(config: PipelineConfig, steps: Steps) -> DocumentShards:
    given = config.input
    if given.documents:
        return adopt.adopt_documents(steps.store, given.documents, text_field=given.text_field)
    if given.pages:
        pages: PageShards = adopt.adopt_pages(steps.store, given.pages)
    else:
        urls = steps.run("filter", filter_urls, config.filter, adopt.adopt_urls(steps.store, given.urls))
        pages = steps.run("fetch", fetch, config.fetching, urls)
    return steps.run("extract", extract, config.extract, pages)


def _cleaned(config: PipelineConfig, steps: Steps, documents: DocumentShards) -> DocumentShards:
    documents = steps.run("clean", clean, config.clean, documents)
    documents = steps.run("dedup", dedup, config.dedup, documents)
    if config.decontaminate.benchmarks:
        documents = steps.run("decontaminate", decontaminate, config.decontaminate, documents)
    return steps.run("shuffle", shuffle, config.shuffle, documents)


@flow(name="model", description="A tokenized corpus to a sampled Hugging Face model", validate_parameters=False)
def model(config: PipelineConfig, tokens: TokenizedCorpus, tokenizer: Tokenizer) -> Produced:
    """From `TokenizedCorpus` to samples. Returns what each stage made, by stage name."""
    steps = Steps(config)
    with suppress(Reached):
        model_steps(config, steps, tokens, tokenizer)
    return steps.produced


def model_steps(config: PipelineConfig, steps: Steps, tokens: TokenizedCorpus, tokenizer: Tokenizer) -> None:
    """What follows what from the corpus on. Raises Reached after the last wanted stage."""
    checkpoint = steps.run("train", train, config.train, tokens)
    exported = steps.run("convert", convert, config.convert, checkpoint, tokenizer)
    steps.run("evaluate", evaluate, config.evaluation, exported, tokens)
    steps.run("sample", sample, config.sample, exported)


@flow(name="url2lm", description="From a list of URLs to a language model", validate_parameters=False)
def pipeline(config: PipelineConfig) -> Produced:
    """The whole way, from wherever the input starts to `config.until`. Returns what each stage made."""
    if config.input.corpus:
        store = Steps(config).store
        tokenizer, _ = load_vocabulary(store, config.vocabulary, [])
        return model(config, given_corpus(config, store, tokenizer), tokenizer)
    produced = corpus(config)
    made = produced.get("tokenize"), produced.get("vocabulary")
    if config.until != "tokenize" and isinstance(made[0], TokenizedCorpus) and isinstance(made[1], Tokenizer):
        produced |= model(config, made[0], made[1])
    return produced


def given_corpus(config: PipelineConfig, store: ArtifactStore, tokenizer: Tokenizer) -> TokenizedCorpus:
    """The user's own .bin/.idx with the ids of the tokenizer that made it."""
    return adopt.adopt_corpus(store, config.input.corpus, tokenizer.vocab_size, tokenizer.eod_token_id)
