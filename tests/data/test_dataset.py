"""Rows that are loaded fit, say what was left out, and are proven to be what will be served."""

from pathlib import Path

import pytest

from seatrial.data.conversation import Conversation, Message
from seatrial.data.dataset import PROVEN_ROWS, load_rows
from seatrial.data.render import Rendered, Renderer, TrainOn
from seatrial.data.template import shipped_template
from seatrial.errors import SeatrialError, UsageError
from tests.data.conftest import family_tokenizer
from tests.data.test_render import CASES, assistant, conversation, trained_runs, user
from tests.data.test_validate import Sabotaged, write_records

REFUSED = conversation(user("a"), assistant("<|im_end|>"))


def length_of(renderer: Renderer, row: Conversation) -> int:
    rendered = renderer.render(row)
    assert isinstance(rendered, Rendered)
    return len(rendered.ids)


def test_rows_come_in_order_with_a_count_of_those_left_out(tiny_renderer: Renderer, tmp_path: Path) -> None:
    folder = write_records(tmp_path, [CASES["single"], REFUSED, CASES["many turns"], CASES["no tools"]])
    longest = length_of(tiny_renderer, CASES["many turns"])
    kept = load_rows(folder, tiny_renderer, train_on=TrainOn.ALL, length=longest, over_long="raise")
    assert kept.lengths_N.tolist() == [length_of(tiny_renderer, CASES[c]) for c in ("single", "many turns", "no tools")]
    assert kept.trained_N.tolist() == [int(row.trained[1:].sum()) for row in kept.rows]
    assert kept.left_out == {"control token in text": 1}
    dropped = load_rows(folder, tiny_renderer, train_on=TrainOn.ALL, length=longest - 1, over_long="drop")
    assert len(dropped.rows) == 2
    assert dropped.left_out == {"control token in text": 1, "longer than a pack": 1}


def test_a_long_row_is_cut_between_turns_or_refused(tiny_renderer: Renderer, tmp_path: Path) -> None:
    folder = write_records(tmp_path, [CASES["many turns"]])
    whole = tiny_renderer.render(CASES["many turns"])
    assert isinstance(whole, Rendered)
    length = trained_runs(whole)[-1][1] - 1
    (cut,) = load_rows(folder, tiny_renderer, train_on=TrainOn.ALL, length=length, over_long="truncate").rows
    assert len(cut.ids) == trained_runs(whole)[-2][1]
    with pytest.raises(UsageError, match=rf"row 1 has {len(whole.ids)} tokens, a pack holds {length}"):
        load_rows(folder, tiny_renderer, train_on=TrainOn.ALL, length=length, over_long="raise")


def test_nothing_to_train_on_is_an_error(tiny_renderer: Renderer, tmp_path: Path) -> None:
    for rows, message in (
        ([REFUSED], r"no row is left to train on \(1 control token in text\)"),
        ([], r"no row is left to train on \(the file is empty\)"),
        ([conversation(user("a"), assistant("b", weight=0.0))], "none of its 1 rows has an assistant turn to train on"),
    ):
        with pytest.raises(UsageError, match=message):
            load_rows(write_records(tmp_path, rows), tiny_renderer, train_on=TrainOn.ALL, length=512, over_long="drop")


@pytest.mark.parametrize("train_on", [TrainOn.ALL, TrainOn.LAST])
def test_a_sample_is_proven_before_it_is_trained_on(train_on: TrainOn, tmp_path: Path) -> None:
    rows = [Conversation(str(i), "test", (Message("user", "a"), Message("assistant", "b"))) for i in range(PROVEN_ROWS)]
    folder = write_records(tmp_path, [*rows, CASES["parallel"]])
    spoilt = Sabotaged(family_tokenizer("tiny"), shipped_template("tiny"), "mask late")
    with pytest.raises(SeatrialError, match=r"row \d+ .* with template 'tiny': what is trained is not what will be"):
        load_rows(folder, spoilt, train_on=train_on, length=512, over_long="drop")


def test_text_is_trained_without_answers_to_prove(tiny_renderer: Renderer, tmp_path: Path) -> None:
    loaded = load_rows(
        write_records(tmp_path, [CASES["single"]]), tiny_renderer, train_on=TrainOn.TEXT, length=512, over_long="drop"
    )
    assert loaded.trained_N.tolist() == [len(loaded.rows[0].ids) - 1]
