"""Nothing that a user writes is run by the shell: bash itself is asked, with names and texts that try to break out."""

import os
import subprocess
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.launch.bash import command, delimiter, exports, heredoc
from seatrial.launch.environment import Variable

TEMPTING = st.sampled_from(["$HOME", "`id`", "$(id)", "'", '"', "\\", "\n", " ", "#", ";", "&&", "EOF", "*", "~", "é"])
TEXT = st.lists(st.one_of(TEMPTING, st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))).map(
    "".join
)
PRINT_ALL = 'printf "%s\\0" "$@"'


def bash(script: str) -> bytes:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, (script, done.stderr)
    return done.stdout


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_words_arrive_as_they_are(words: list[str]) -> None:
    printed = bash(command(["bash", "-c", PRINT_ALL, "all", *words]))
    assert [word.decode() for word in printed.split(b"\0")[:-1]] == words


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_values_arrive_as_they_are(values: list[str]) -> None:
    variables = [Variable(f"TRIAL_{at}", value, "a reason") for at, value in enumerate(values)]
    script = [
        *exports(variables),
        f"bash -c '{PRINT_ALL}' all " + " ".join(f'"$TRIAL_{at}"' for at in range(len(values))),
    ]
    assert [value.decode() for value in bash("\n".join(script)).split(b"\0")[:-1]] == values


@settings(max_examples=60, deadline=None)
@given(TEXT)
def test_settings_arrive_as_they_are(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "it's a $file")
        os.environ["TRIAL_FILE"] = str(file)
        bash(heredoc('"$TRIAL_FILE"', text))
        assert file.read_bytes().decode() == (text if text.endswith("\n") else f"{text}\n")


@given(TEXT, st.integers(0, 3))
def test_the_end_of_a_text_is_no_line_of_it(text: str, times: int) -> None:
    for _ in range(times):
        text = f"{text}\n{delimiter(text)}"
    assert delimiter(text) not in text.split("\n")
