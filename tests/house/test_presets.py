"""Every preset parses, says only what differs from the defaults, and the demo's is the demo's."""

from pathlib import Path

import pytest

from seatrial.demo.plan import train_settings
from seatrial.settings import TrainSettings, load_settings

CONFIGS = Path(__file__).parents[2] / "configs"
PRESETS = sorted(CONFIGS.iterdir())

every_preset = pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.name)


def test_there_are_a_few() -> None:
    assert 1 <= len(PRESETS) <= 12


@every_preset
def test_preset_parses(preset: Path) -> None:
    load_settings(preset, [], TrainSettings)


@every_preset
def test_preset_says_only_what_differs(preset: Path) -> None:
    settings = load_settings(preset, [], TrainSettings)
    sections = {name: getattr(settings, name) for name in settings.model_fields_set}
    repeated = [
        f"{name}.{key}"
        for name, section in sections.items()
        if section is not None
        for key in section.model_fields_set
        if getattr(section, key) == type(section).model_fields[key].get_default(call_default_factory=True)
    ]
    assert not repeated, f"{preset.name} repeats the defaults of {', '.join(repeated)}"


@pytest.mark.parametrize("section", ["model", "lora", "optimizer", "checkpoint"])
def test_the_demo_trains_by_its_preset(section: str, tmp_path: Path) -> None:
    demo = train_settings(tmp_path)
    preset = load_settings(CONFIGS / "tiny-lora.yaml", [], TrainSettings)
    assert getattr(preset, section) == getattr(demo, section)
    assert (preset.data.length, preset.run.seed) == (demo.data.length, demo.run.seed)
