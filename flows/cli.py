"""The command line. Exit codes: 0 done, 1 failed, 2 the user asked for something wrong, 130 stopped by Ctrl-C (128 and
the number of the signal for another one)."""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console

from tasks.errors import Url2lmError, UserError

T = TypeVar("T")

EXIT_FAILED, EXIT_USER_ERROR = 1, 2
error_console = Console(stderr=True, soft_wrap=True)

app = typer.Typer(
    name="url2lm",
    help="From a list of URLs to a trained, converted and sampled language model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Recipe = Annotated[str, typer.Argument(help="A TOML file, or the name of a shipped recipe such as smoke.")]
Set = Annotated[list[str], typer.Option("--set", metavar="A.B=C", help="Change one setting; may be given often.")]
Store = Annotated[str | None, typer.Option("--store", help="Folder of the artifact store (default: url2lm-store).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


class Stopped(KeyboardInterrupt):
    """This process was told to end."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    raise Stopped(number)


def guarded(work: Callable[[], T]) -> T:
    """Run a command's work; what the user got wrong and what failed become one clear message and an exit code."""
    try:
        return work()
    except UserError as error:
        error_console.print(f"[bold red]url2lm:[/] {_escaped(error)}")
        raise typer.Exit(EXIT_USER_ERROR) from None
    except (Url2lmError, TimeoutError) as error:
        error_console.print(f"[bold red]url2lm:[/] {_escaped(error)}")
        raise typer.Exit(EXIT_FAILED) from None
    except BrokenPipeError:
        # Whoever read the output (head, less) has seen enough. What is still buffered must not be tried again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_FAILED) from None  # as rich does
    except KeyboardInterrupt as error:
        error_console.print("[bold red]url2lm:[/] stopped. What was finished is kept; run the same command to go on.")
        raise typer.Exit(getattr(error, "exit_code", 128 + signal.SIGINT)) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - the boundary of the program: a person gets a sentence, the rest a file
        with tempfile.NamedTemporaryFile("w", prefix="url2lm-", suffix=".log", delete=False) as log:
            log.write(traceback.format_exc())
        _fail(f"a fault of url2lm itself: {type(error).__name__}: {error}. The traceback is in {log.name}")


def _fail(message: str) -> NoReturn:
    from rich.markup import escape

    error_console.print(f"[bold red]url2lm:[/] {escape(message)}")
    raise typer.Exit(EXIT_FAILED) from None


def _escaped(error: BaseException) -> str:
    from rich.markup import escape

    return escape(str(error))


@app.command()
def run(
    recipe: Recipe,
    urls: Annotated[list[str] | None, typer.Option("--urls", help="URL list: file, folder, glob or -.")] = None,
    pages: Annotated[list[str] | None, typer.Option("--pages", help="WARC files: start at extract.")] = None,
    documents: Annotated[list[str] | None, typer.Option("--documents", help="JSON lines: start at clean.")] = None,
    corpus: Annotated[str | None, typer.Option("--corpus", help="Prefix of .bin/.idx: start at train.")] = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    until: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.")] = None,
    only: Annotated[str | None, typer.Option("--only", metavar="STAGE", help="Run this stage alone.")] = None,
    refresh: Annotated[list[str] | None, typer.Option("--refresh", metavar="STAGE", help="Run it again.")] = None,
    store: Store = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Run the flow: from wherever the input starts to samples. Finished stages come from the cache."""
    from flows import run_command

    given: list[tuple[list[str], Any]] = []
    for name, files in (("urls", urls), ("pages", pages), ("documents", documents)):
        if files:
            given.append((["input", name], list(files)))
    if corpus:
        given.append((["input", "corpus"], corpus))
    for name, value in (("until", until), ("only", only), ("store", store)):
        if value:
            given.append(([name], value))
    if refresh:
        given.append((["refresh"], list(refresh)))
    guarded(lambda: run_command.run(recipe, set_, given, dry_run=dry_run, as_json=as_json))


@app.command()
def demo(
    store: Store = None,
    modules: Annotated[str, typer.Option("--modules", help="stdlib, or stdlib+numpy.")] = "stdlib",
    set_: Set = [],  # noqa: B006 - typer copies it
    as_json: Json = False,
) -> None:
    """The whole way, offline: Python's own documentation, served on this machine, becomes a small language model."""
    from flows import demo_command

    guarded(lambda: demo_command.demo(store, modules, set_, as_json=as_json))


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help="The stage, for example clean.")],
    inputs: Annotated[list[str], typer.Option("--in", metavar="PATH", help="Files, or an artifact's folder.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the result; must not exist.")],
    recipe: Annotated[str | None, typer.Option("--recipe", help="Take the stage's settings from this recipe.")] = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    store: Store = None,
) -> None:
    """Run one stage on your own files: no flow, no server. Settings without the stage's name: --set min_tokens=64."""
    from flows import stage_command

    guarded(lambda: stage_command.run_stage(name, inputs, out, recipe, set_, store))


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="Artifact, .bin/.idx, documents, checkpoint.")], as_json: Json = False
) -> None:
    """Show what lies at a path: an artifact, a corpus (.bin/.idx decoded), documents, a checkpoint, a whole store."""
    from flows import inspect_command

    guarded(lambda: inspect_command.inspect(path, as_json=as_json))


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="An artifact, a .bin/.idx pair, or a whole store.")],
    as_json: Json = False,
) -> None:
    """Read every byte and compare with what was published. Exit code 1 when something is wrong."""
    from flows import inspect_command

    if not guarded(lambda: inspect_command.verify(path, as_json=as_json)):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def sample(
    model: Annotated[Path, typer.Argument(help="A Hugging Face model folder, such as the flow's result.")],
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", help="Text to go on from; may be given often.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Prompts from a file, one a line.")] = None,
    num_samples: Annotated[int, typer.Option("--num-samples", min=1, help="Samples per prompt.")] = 1,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens to write at most.")] = 100,
    temperature: Annotated[float, typer.Option("--temperature", help="0 is greedy.")] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw from the k likeliest tokens; 0 is off.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw from the likeliest tokens of this total.")] = 0.95,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same text.")] = 1234,
    as_json: Json = False,
) -> None:
    """Let a model write."""
    from flows import sample_command

    settings = {
        "num_samples_per_prompt": num_samples,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
    }
    guarded(lambda: sample_command.sample(model, prompt or [], file, settings, as_json=as_json))


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character still shows the rest
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP, and that stays
            signal.signal(number, _stop)
    app(prog_name="url2lm")


if __name__ == "__main__":
    main()
