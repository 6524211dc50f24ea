"""Reading table files: what is read is exact, and what cannot be read is one line that names file and line."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxqte.errors import SpaceError
from boxqte.space.space import Space
from boxqte.space.tables import read_table


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(path: Path, **options: str) -> str:
    with pytest.raises(SpaceError) as caught:
        read_table(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text.removeprefix(str(path))


def test_a_csv_file_is_read_with_the_types_of_its_columns(write) -> None:
    frame = read_table(write("i,f,s,b\n1,0.5,x,True\n2,1e-3,y,False\n"))
    assert frame["i"].tolist() == [1, 2]
    assert frame["f"].tolist() == [0.5, 0.001]
    assert frame["s"].tolist() == ["x", "y"]
    assert frame["b"].tolist() == [True, False]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60))
def test_numbers_are_read_without_a_wrong_bit(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("x\n" + "\n".join(map(repr, values)) + "\n")
    assert read_table(path)["x"].tolist() == values


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_the_one_in_the_header(write, separator: str) -> None:
    frame = read_table(write(f"a{separator}b\n1{separator}2\n"))
    assert frame.columns.tolist() == ["a", "b"]


def test_a_separator_may_be_given(write) -> None:
    path = write("a|b\n1|2\n")
    assert read_table(path, separator="|").shape == (1, 2)
    with pytest.raises(SpaceError, match="separator: expected one character"):
        read_table(path, separator="||")


def test_a_byte_order_mark_quotes_blank_lines_and_windows_line_ends_are_read(write) -> None:
    path = write(b'\xef\xbb\xbfa,b\r\n"x, y",1\r\n\r\n"two\r\nlines",2\r\n')
    frame = read_table(path)
    assert frame.columns.tolist() == ["a", "b"]
    assert frame["a"].tolist() == ["x, y", "two\r\nlines"]


def test_empty_fields_and_the_usual_texts_are_missing_but_none_is_a_category(write) -> None:
    frame = read_table(write("a,b\nNone,\nNA,1\nx,null\n"))
    assert frame["a"].isna().tolist() == [False, True, False]
    assert frame["b"].isna().tolist() == [True, False, True]


def test_a_column_of_two_types_is_text_throughout(write) -> None:
    path = write("a\n" + "1\n" * 50_000 + "x\n")
    assert Space.infer(read_table(path)).space["a"].values == ("1", "x")


def test_another_encoding_may_be_given(write) -> None:
    path = write("a\nKöln\n".encode("latin-1"))
    assert refusal(path).startswith(", line 2: byte 0xf6 is not utf-8; save the file as UTF-8")
    assert read_table(path, encoding="latin-1")["a"].tolist() == ["Köln"]
    assert refusal(path, encoding="klingon") == ": unknown encoding 'klingon'"


def test_files_that_are_not_there_or_hold_nothing_are_refused(write, tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.csv") == ": no such file"
    assert refusal(tmp_path) == ": not a file"
    assert refusal(write("")) == ": the file is empty"
    assert refusal(write("\n \n")) == ": the file is empty"
    assert refusal(write("a,b\n")) == ": a header and no rows"


@pytest.mark.parametrize(("row", "n"), [("1", 1), ("1,2,3", 3)])
def test_a_row_with_too_few_or_too_many_fields_is_refused_with_its_line(write, row: str, n: int) -> None:
    message = refusal(write(f'a,b\n"x\ny",2\n{row}\n5,6\n'))
    assert message == f", line 4: {n} fields, the header has 2 (separated by ',')"


def test_a_first_row_that_is_too_long_is_refused_and_not_taken_as_an_index(write) -> None:
    assert refusal(write("a,b\n1,2,3\n4,5,6\n")).startswith(", line 2: 3 fields")


def test_broken_quotes_and_nul_characters_are_refused_with_their_line(write) -> None:
    assert refusal(write('a,b\n1,"x\n2,y\n')).startswith(", line 3: not valid CSV: ")
    assert refusal(write("a\n1\n\0\n")).startswith(", line 3: a NUL character")
    assert refusal(write("a,b\n1,2\n".encode("utf-16"))).startswith(", line 1: byte 0xff is not utf-8")


def test_names_that_are_empty_or_occur_twice_are_refused(write) -> None:
    assert refusal(write(",a\n0,1\n")).startswith(": column 1 has no name in the header")
    assert refusal(write("a,b,a\n0,1,2\n")).startswith(": column 'a' occurs twice in the header")


def test_a_parquet_file_is_recognised_by_its_content(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.data"
    frame = pd.DataFrame({"i": [1, 2], "g": pd.Categorical(["a", "b"], categories=["b", "a", "c"]), "x": [0.1, 0.2]})
    frame.to_parquet(path)
    space = Space.infer(read_table(path)).space
    assert space["g"].values == ("b", "a", "c")
    assert space == Space.infer(frame).space


def test_a_broken_parquet_file_is_refused(write) -> None:
    pytest.importorskip("pyarrow")
    assert refusal(write(b"PAR1 and then nothing")).startswith(": not a readable Parquet file: ")


def test_parquet_without_pyarrow_is_refused_with_the_way_out(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refusal(write(b"PAR1....")) == ": a Parquet file needs pyarrow; install it, or give a CSV file"


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text('a1,;"\n\r\t ', max_size=40).map(str.encode)))
def test_no_file_gives_anything_but_a_table_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_bytes(content)
    outcome: pd.DataFrame | SpaceError
    try:
        outcome = read_table(path)
    except SpaceError as error:
        outcome = error
    assert len(outcome) if isinstance(outcome, pd.DataFrame) else "\n" not in str(outcome)
