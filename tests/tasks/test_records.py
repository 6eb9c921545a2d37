from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tasks import records
from tasks.errors import CorruptInputError
from tasks.records import BadRow, Document, DocumentWriter, parse_row, read_lines, read_rows, replace_surrogates

ROW = b'{"id":"1","url":"http://example.com/","text":"one"}\n'


def write(path: Path, content: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content, mtime=0))
    elif path.suffix == ".zst":
        path.write_bytes(zstandard.compress(content))
    else:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_all_compressions_read_alike(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", b"\xef\xbb\xbf" + ROW * 3 + ROW.rstrip(b"\n"))
    rows = list(read_rows(path))
    assert [row.line_number for row in rows] == [1, 2, 3, 4]
    assert all(row.document and row.document.text == "one" for row in rows)


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("cut", [1, 12, 60])
def test_a_cut_shard_is_an_error_that_names_the_file(tmp_path: Path, suffix: str, cut: int) -> None:
    path = write(tmp_path / f"cut{suffix}", b"".join(b'{"text":"%d"}\n' % number for number in range(5000)))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptInputError, match=f"cut{suffix}"):
        list(read_rows(path))


def test_several_frames_and_members_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(ROW) + zstandard.compress(ROW * 2))
    assert len(list(read_rows(path))) == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", BadRow.BLANK_LINE),
        (b"  \r", BadRow.BLANK_LINE),
        (b'{"text": "a"', BadRow.INVALID_JSON),
        (b'{"text": "\xff"}', BadRow.INVALID_JSON),
        (b"[1]", BadRow.NOT_AN_OBJECT),
        (b'{"tex": "a"}', BadRow.MISSING_TEXT),
        (b'{"text": null}', BadRow.MISSING_TEXT),
        (b'{"text": 3}', BadRow.TEXT_NOT_STRING),
        (b"[" * 100_000, BadRow.INVALID_JSON),
    ],
)
def test_a_bad_line_is_a_reason(line: bytes, reason: BadRow) -> None:
    row = parse_row(line, 7, "file")
    assert row.document is None and row.reason == reason and row.line_number == 7


def test_line_separators_of_unicode_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text":"a\u2028b\u2029c\u0085d"}\n{"text":"second"}\n', encoding="utf-8")
    assert [row.document.text for row in read_rows(path) if row.document] == ["a\u2028b\u2029c\u0085d", "second"]


def test_half_surrogate_pairs_are_replaced_and_said() -> None:
    row = parse_row(b'{"text": "bad \\ud83d end \\ud83d\\ude00", "x": ["\\udc00"]}', 1, "file")
    assert row.document is not None and row.repaired
    assert row.document.text == "bad \ufffd end \U0001f600" and row.document.extra == {"x": ["\ufffd"]}


def test_unknown_fields_travel(tmp_path: Path) -> None:
    row = parse_row(b'{"text":"a","url":"u","score":0.5,"meta":{"b":[1]}}', 4, "file")
    assert row.document is not None and row.document.id == "file:4"
    with DocumentWriter(tmp_path / "d.jsonl.zst") as writer:
        writer.write(row.document)
    (again,) = read_rows(tmp_path / "d.jsonl.zst")
    assert again.document == row.document


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="stop"), DocumentWriter(tmp_path / "d.jsonl.zst") as writer:
        writer.write(Document("1", "u", "t"))
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=50))
def test_replacing_surrogates_gives_text_that_can_be_encoded(text: str) -> None:
    clean = replace_surrogates(text)
    clean.encode()
    assert replace_surrogates(clean) == clean


@given(st.lists(st.binary(max_size=30).map(lambda value: value.replace(b"\n", b"")), max_size=8), st.booleans())
def test_lines_are_cut_at_newlines_alone(lines: list[bytes], last_newline: bool) -> None:
    import tempfile

    content = b"\n".join(lines) + (b"\n" if last_newline and lines else b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes(content)
        expected = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        if expected[-1] == b"":
            expected.pop()
        assert list(read_lines(path)) == expected


@pytest.mark.parametrize("piece_bytes", [1, 3, 1 << 20])
def test_lines_do_not_depend_on_how_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(records, "READ_BYTES", piece_bytes)
    for data in (b"", b"\n", b"a", b"a\n", b"\xef\xbb\xbfa\n\nb\r\nc", b"\xef\xbb\xbf", b"\xef\xbb\nx\n\n"):
        (tmp_path / "file").write_bytes(data)
        wanted = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        assert list(records.read_lines(tmp_path / "file")) == (wanted if wanted[-1] else wanted[:-1])


def test_a_line_without_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "READ_BYTES", 8)
    monkeypatch.setattr(records, "MAX_LINE_BYTES", 20)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "' + b"x" * 100 + b'"}\n{"text": "y"}\n')
    assert [row.reason for row in records.read_rows(tmp_path / "a.jsonl")] == ["invalid_json", ""]
    assert [len(line) for line in records.read_lines(tmp_path / "a.jsonl")] == [20, 13]


def test_a_file_that_only_says_it_is_xz_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt.xz").write_bytes(b"no xz at all")
    with pytest.raises(CorruptInputError, match=r"a\.txt\.xz"):
        list(records.read_lines(tmp_path / "a.txt.xz"))
