"""More from the same rows: masked names, rows that must not be answered by a call, and tools nobody needs.

Each function is pure: the randomness comes from a generator that is seeded by the seed and the row's id, so a row is
changed in the same way wherever and whenever it is prepared. A function that does not apply returns None.
"""

import random
import re
import string
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from seatrial.data.conversation import Conversation, Message, Rejection, Tool, encode, read_records
from seatrial.data.wellformed import well_formed
from seatrial.records import JsonObject

Json = Any

POOL_TOOLS = 20_000
REFUSALS = (
    "None of the functions I have can do that.",
    "I'm sorry, but I have no function for this request.",
    "That is beyond what my functions can do.",
    "I can't help with that: no available function fits the request.",
    "There is no function among mine that answers this.",
)
QUESTIONS = (
    "Which {name} should I use?",
    "Could you tell me the {name}?",
    "I need to know the {name} first. What is it?",
    "Please give me the {name}, and I will go on.",
)
# Keywords that refer to properties by name; with them a renamed property would break the schema.
REFERRING = ('"$ref"', '"dependent', '"if"', '"anyOf"', '"allOf"', '"oneOf"', '"patternProperties"')


@dataclass(frozen=True)
class Augmentation:
    """``mask_names``: share of rows whose names are masked. ``negatives``: negatives added per row that calls.
    ``distractors``: tools added to each row that calls."""

    mask_names: float = 0.0
    negatives: float = 0.0
    distractors: int = 0


class ToolPool:
    """Tools of many rows, one per name, to draw distractors from."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = tuple(tools)
        self._by_word: dict[str, list[Tool]] = defaultdict(list)
        for tool in self.tools:
            for word in _words(tool.name):
                self._by_word[word].append(tool)

    def alike(self, name: str) -> list[Tool]:
        """Tools whose name shares a word with ``name``, but not all of them."""
        words = _words(name)
        found = {tool.name: tool for word in sorted(words) for tool in self._by_word.get(word, ())}
        return [tool for tool in found.values() if _words(tool.name) != words]


def pool_of(conversations: Iterable[Conversation]) -> ToolPool:
    """The first ``POOL_TOOLS`` tools of different names."""
    tools: dict[str, Tool] = {}
    for conversation in conversations:
        for tool in conversation.tools:
            if len(tools) < POOL_TOOLS:
                tools.setdefault(tool.name, tool)
    return ToolPool(tools.values())


def augment_records(records: Path, plan: Augmentation, seed: int) -> JsonObject:
    """Rewrite a records file with the augmented rows; returns what was done, for the manifest."""
    pool = pool_of(read_records(records)) if plan.distractors or plan.negatives else ToolPool(())
    counts = {"negatives": 0, "masked": 0, "with_distractors": 0}
    written = records.with_suffix(".augmented")
    with written.open("wb") as out:
        for original in read_records(records):
            for row in augmented(original, pool, plan, seed):
                counts["negatives"] += row.id != original.id
                counts["masked"] += "names_masked" in row.repairs
                counts["with_distractors"] += "distractors_added" in row.repairs
                out.write(encode(row))
    written.replace(records)
    return {"augmentation": asdict(plan) | counts}


def augmented(conversation: Conversation, pool: ToolPool, plan: Augmentation, seed: int) -> Iterator[Conversation]:
    """The row, then perhaps a negative made from it, each perhaps with distractors and masked names."""
    rng = random.Random(f"{seed}:{conversation.id}")
    rows = [conversation]
    if rng.random() < plan.negatives:
        kinds: list[Callable[[], Conversation | None]] = [
            lambda: without_called_tools(conversation, pool, rng),
            lambda: without_argument(conversation, rng),
        ]
        rng.shuffle(kinds)
        negative = next((made for kind in kinds if (made := _checked(kind())) is not None), None)
        rows += [negative] if negative is not None else []
    for row in rows:
        if plan.distractors:
            row = _checked(with_distractors(row, pool, plan.distractors, rng)) or row
        if rng.random() < plan.mask_names:
            row = _checked(mask_names(row, rng)) or row
        yield row


def _checked(conversation: Conversation | None) -> Conversation | None:
    """What was made, if it is as sound as what it was made from."""
    if conversation is None:
        return None
    checked = well_formed(conversation)
    return None if isinstance(checked, Rejection) else checked


def with_distractors(conversation: Conversation, pool: ToolPool, count: int, rng: random.Random) -> Conversation | None:
    """``count`` more tools, half of them near the called ones by name, and all tools in a new order.

    Only for rows that call: among added tools might be one that answers what the row's own could not.
    """
    called = _called(conversation)
    if not called:
        return None
    taken = {_plain(tool.name) for tool in conversation.tools}
    near = [tool for name in sorted(called) for tool in pool.alike(name)]
    added: list[Tool] = []
    for candidates, wanted in ((near, count // 2), (pool.tools, count)):
        for tool in rng.sample(candidates, min(len(candidates), 4 * count)):
            if len(added) < wanted and _plain(tool.name) not in taken:
                taken.add(_plain(tool.name))
                added.append(tool)
    if not added:
        return None
    tools = [*conversation.tools, *added]
    rng.shuffle(tools)
    return msgspec.structs.replace(
        conversation,
        tools=tuple(tools),
        repairs=(*conversation.repairs, "distractors_added"),
        category=conversation.category.replace("single", "multiple"),
    )


def without_called_tools(conversation: Conversation, pool: ToolPool, rng: random.Random) -> Conversation | None:
    """The same question without any tool that could answer it, and a refusal: the tool is gone, the others stay.

    Tools whose name shares a word with a called one are taken away too, since they might do instead.
    """
    asked = _until_first_call(conversation)
    if asked is None:
        return None
    words = {word for name in _called(conversation) for word in _words(name)}
    tools = [tool for tool in conversation.tools if words.isdisjoint(_words(tool.name))]
    if not tools:
        candidates = rng.sample(pool.tools, min(len(pool.tools), 20))
        tools = [tool for tool in candidates if words.isdisjoint(_words(tool.name))][: max(1, len(conversation.tools))]
    if not tools:
        return None
    return _negative(conversation, asked, tuple(tools), rng.choice(REFUSALS), "irrelevant")


def without_argument(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """The question with one required value replaced by "some <name>", and an answer that asks for it.

    Applies when the first call stands alone and a required text or number of it occurs in the question exactly once,
    word for word, and nowhere before.
    """
    asked = _until_first_call(conversation)
    if asked is None or len(calls := conversation.messages[len(asked)].tool_calls) != 1:
        return None
    tool = next(tool for tool in conversation.tools if tool.name == calls[0].name)
    question = asked[-1].content
    before = "\n".join(message.content for message in asked[:-1])
    required = [name for name in tool.parameters.get("required", ()) if name in calls[0].arguments]
    for name in rng.sample(required, len(required)):
        value = calls[0].arguments[name]
        if isinstance(value, (bool, dict, list)) or value is None or str(value) in before:
            continue
        found = list(re.finditer(rf"(?:\b(?:the|an?) )?(?<!\w){re.escape(str(value))}(?!\w)", question))
        if len(found) == 1 and len(str(value)) > 1:
            spoken = " ".join(re.findall(r"[a-z]+|[A-Z]+[a-z]*|\d+", name)).lower()
            vague = f"{question[: found[0].start()]}some {spoken}{question[found[0].end() :]}"
            messages = (*asked[:-1], msgspec.structs.replace(asked[-1], content=vague))
            answer = rng.choice(QUESTIONS).format(name=spoken)
            return _negative(conversation, messages, conversation.tools, answer, "missing_argument")
    return None


def mask_names(conversation: Conversation, rng: random.Random) -> Conversation | None:
    """Tool and parameter names as random letters in declarations and calls alike; descriptions and values stay.

    Then only the descriptions say what a tool does (Hammer, arXiv 2410.04587). Does not apply where a tool's name, or
    a parameter's name that is no plain word, is spoken of in the text, or where a schema refers to its properties.
    """
    said = "\n".join([m.content for m in conversation.messages] + [tool.description for tool in conversation.tools])
    properties = [name for tool in conversation.tools for name in tool.parameters["properties"]]
    telling = [tool.name for tool in conversation.tools] + [name for name in properties if not name.isalpha()]
    if not conversation.tools or any(name in said for name in telling):
        return None
    if any(key in msgspec.json.encode(t.parameters).decode() for t in conversation.tools for key in REFERRING):
        return None
    names = _fresh_names([tool.name for tool in conversation.tools], rng)
    arguments = {tool.name: _fresh_names(list(tool.parameters["properties"]), rng) for tool in conversation.tools}
    return msgspec.structs.replace(
        conversation,
        messages=tuple(_masked_message(message, names, arguments) for message in conversation.messages),
        tools=tuple(_masked_tool(tool, names, arguments[tool.name]) for tool in conversation.tools),
        repairs=(*conversation.repairs, "names_masked"),
    )


def _masked_message(message: Message, names: dict[str, str], arguments: dict[str, dict[str, str]]) -> Message:
    calls = tuple(
        msgspec.structs.replace(
            call,
            name=names[call.name],
            arguments={arguments[call.name].get(key, key): value for key, value in call.arguments.items()},
        )
        for call in message.tool_calls
    )
    name = names.get(message.name, message.name) if message.role == "tool" else message.name
    return msgspec.structs.replace(message, tool_calls=calls, name=name)


def _masked_tool(tool: Tool, names: dict[str, str], arguments: dict[str, str]) -> Tool:
    parameters = dict(tool.parameters)
    parameters["properties"] = {arguments[name]: spec for name, spec in parameters["properties"].items()}
    if "required" in parameters:
        parameters["required"] = [arguments[name] for name in parameters["required"]]
    return Tool(names[tool.name], tool.description, parameters)


def _fresh_names(names: Sequence[str], rng: random.Random) -> dict[str, str]:
    fresh: dict[str, str] = {}
    for name in names:
        while (made := "".join(rng.choices(string.ascii_lowercase, k=8))) in fresh.values():
            pass
        fresh[name] = made
    return fresh


def _negative(
    conversation: Conversation, asked: Sequence[Message], tools: tuple[Tool, ...], answer: str, category: str
) -> Conversation:
    return msgspec.structs.replace(
        conversation,
        id=f"{conversation.id}-{category}",
        messages=(*asked, Message("assistant", answer)),
        tools=tools,
        category=category,
    )


def _until_first_call(conversation: Conversation) -> tuple[Message, ...] | None:
    """The messages before the first call, when a user has the last word there."""
    for number, message in enumerate(conversation.messages):
        if message.tool_calls:
            asked = conversation.messages[:number]
            return asked if asked[-1].role == "user" else None
    return None


def _called(conversation: Conversation) -> set[str]:
    return {call.name for message in conversation.messages for call in message.tool_calls}


def _words(name: str) -> frozenset[str]:
    """Words of a name in snake or camel case, without those that every other name has."""
    words = re.findall(r"[a-z]+|[A-Z]+[a-z]*|\d+", name)
    return frozenset(word.lower() for word in words) - {"get", "set", "by", "for", "of", "the", "a", "api", "v", "data"}


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
