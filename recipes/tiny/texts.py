"""Write pre-training documents with all cores: ``python recipes/tiny/texts.py COUNT SEED OUT_DIR``."""

import multiprocessing
import sys
from pathlib import Path

from seatrial.data.conversation import encode
from seatrial.data.synthetic import texts

CHUNK = 10_000


def chunk(part: tuple[int, int, int]) -> bytes:
    seed, start, rows = part
    return b"".join(encode(document) for document in texts(rows, seed=seed, start=start))


def main(count: int, seed: int, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    parts = [(seed, start, min(CHUNK, count - start)) for start in range(0, count, CHUNK)]
    with multiprocessing.Pool() as pool, (out / "records.jsonl").open("wb") as file:
        for written in pool.imap(chunk, parts):
            file.write(written)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
