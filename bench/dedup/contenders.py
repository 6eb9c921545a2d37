"""What runs in a process of its own: our stage, and the peers' ways as their documentation shows them."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from bench.dedup.corpora import WORD, grams_of

THRESHOLD = 0.8


def stage(root: str, documents: str, workers: str, memory: str) -> None:
    """Our own stage; prints where the result is, and the largest resident memory of a process in MB."""
    from tasks.clean.config import DedupConfig, DedupResources
    from tasks.clean.stage import DEDUP
    from tasks.store import ArtifactStore

    store = ArtifactStore(Path(root))
    resources = DedupResources(workers=int(workers), memory_bytes=int(memory))
    config = DedupConfig(threshold=THRESHOLD, resources=resources)
    made = store.produce(DEDUP, config, [store.load(Path(documents))], refresh=True)[0]
    peaks = [resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{store.path_of(made)} {max(peaks)}")


def datasketch(source: str, target: str) -> None:
    """128 permutations, and an index that is asked before each insertion."""
    from datasketch import MinHash, MinHashLSH  # type: ignore[import-not-found,unused-ignore]

    index = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    with Path(source).open(encoding="utf-8") as lines, Path(target).open("w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            signature = MinHash(num_perm=128)
            signature.update_batch([" ".join(gram).encode() for gram in grams_of(json.loads(line)["text"])])
            if not index.query(signature):
                index.insert(number, signature)
                out.write(line)


def datasketch_signatures(source: str, target: str) -> None:
    """Signatures alone, of the n-grams of every document in order."""
    from datasketch import MinHash

    with Path(source).open(encoding="utf-8") as lines:
        for line in lines:
            words = WORD.findall(json.loads(line)["text"].lower())
            grams = [" ".join(words[at : at + 5]).encode() for at in range(max(1, len(words) - 4))]
            MinHash(num_perm=128).update_batch(grams)
    Path(target).write_bytes(Path(source).read_bytes())


def gaoya(source: str, target: str) -> None:
    """An index of word 5-grams, 14 bands of 8, that is asked before each insertion."""
    from gaoya.minhash import MinHashStringIndex  # type: ignore[import-not-found,unused-ignore]

    index = MinHashStringIndex(32, THRESHOLD, 14, 8, None, "word", True, (5, 5))
    with Path(source).open(encoding="utf-8") as lines, Path(target).open("w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            text = json.loads(line)["text"]
            if not index.query(text):
                index.insert_document(number, text)
                out.write(line)


def gaoya_insertions(source: str, target: str) -> None:
    """The same index filled and never asked."""
    from gaoya.minhash import MinHashStringIndex

    index = MinHashStringIndex(32, THRESHOLD, 14, 8, None, "word", True, (5, 5))
    with Path(source).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            index.insert_document(number, json.loads(line)["text"])
    Path(target).write_bytes(Path(source).read_bytes())


CONTENDERS = {one.__name__: one for one in (stage, datasketch, datasketch_signatures, gaoya, gaoya_insertions)}

if __name__ == "__main__":
    CONTENDERS[sys.argv[1]](*sys.argv[2:])
