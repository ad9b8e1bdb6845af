"""Settings: one validation for every source, and one precedence."""

import os
from pathlib import Path

import pytest

from specdec_tui.setting_kinds import format_value
from specdec_tui.setting_sources import read_config, resolve, resolve_rest
from specdec_tui.settings import (
    FIELDS,
    ModelChoice,
    SettingError,
    Settings,
    flag_of,
    name_of,
    parse_processor,
    parse_value,
)
from specdec_tui.variables import PLACES, api_key


def test_flags_win_over_environment_over_config_over_defaults(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('gamma = 2\ntop-k = 7\nseed = 5\nchat = false\nstrategies = ["lookup", "target"]\n')
    environment = {"SPECDEC_TUI_GAMMA": "3", "SPECDEC_TUI_SEED": "6", "SPECDEC_TUI_DEVICE": "cpu", "OTHER": "x"}
    settings, choice = resolve({"gamma": "9"}, environment, config)
    assert (settings.gamma, settings.seed, settings.top_k) == (9, 6, 7)
    assert settings.chat is False
    assert settings.strategies == ("target", "lookup")
    assert settings.max_new_tokens == Settings().max_new_tokens
    assert choice == ModelChoice(device="cpu")


def test_by_default_ratios_survive_a_busy_machine_and_every_token_can_be_inspected() -> None:
    assert (Settings().schedule, Settings().insight) == ("interleaved", True)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("gamma", "x"),
        ("gamma", "-1"),
        ("gamma", "33"),
        ("gamma", "2.5"),
        ("gamma", ""),
        ("max_new_tokens", "0"),
        ("temperature", "nan"),
        ("temperature", "-0.1"),
        ("temperature", "inf"),
        ("top_p", "0"),
        ("top_p", "1.01"),
        ("top_k", "-1"),
        ("seed", "9999999999999999999999"),
        ("rule", "nothing"),
        ("strategies", "target,wrong"),
        ("strategies", ""),
        ("device", "gpu"),
        ("device", "cuda:x"),
        ("chat", "maybe"),
        ("ngram_order", "1"),
    ],
)
def test_a_bad_value_is_one_line_that_says_what_is_allowed(name: str, bad: str) -> None:
    with pytest.raises(SettingError) as error:
        parse_value(name, bad)
    message = str(error.value)
    assert name.replace("_", "-") in message and f"'{bad}'" in message
    assert FIELDS[name].metadata["kind"].allowed in message
    assert "\n" not in message


def test_every_default_is_read_back_from_its_own_text() -> None:
    for name, field in FIELDS.items():
        assert parse_value(name, format_value(field.default)) == field.default, name


def test_a_bad_value_in_a_source_names_the_source(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("gamma = 99\n")
    with pytest.raises(SettingError, match=r"config\.toml"):
        resolve({}, {}, config)
    with pytest.raises(SettingError, match="environment"):
        resolve({}, {"SPECDEC_TUI_GAMMA": "many"}, tmp_path / "none.toml")


def test_a_damaged_or_unknown_config_is_a_clear_message(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_bytes(b"gamma = [\xff")
    with pytest.raises(SettingError, match=r"cannot read the config file .*config\.toml"):
        read_config(config)
    config.write_text("gama = 3\n")
    with pytest.raises(SettingError, match="unknown setting 'gama'"):
        read_config(config)


HOSTILE_CONFIGS = {
    "nested lists": (b"gamma = " + b"[" * 15_000, "nested too deeply"),
    "nested tables": (b"gamma = " + b"{a=" * 5_000, "nested too deeply"),
    "dots": (b".".join([b"a"] * 8_000) + b" = 1", "unknown setting .a.: allowed are"),
    "long number": (b"seed = " + b"9" * 5000, "cannot read the config file .*: a number in it has too many digits"),
    "long hexadecimal number": (b"seed = 0x" + b"f" * 9000, "seed: this value is not valid: give a whole number"),
    "long list": (b"strategies = [" + b"0x" + b"f" * 9000 + b"]", "strategies: this value is not valid"),
    "long text": (b'rule = "' + b"x" * 9000 + b'"', r"rule .*'x{60}…' is not valid"),
    "long word": (b"x" * 9000 + b" = 1", r"unknown setting 'x{60}…'"),
    "megabytes": (b"# " + b"x" * 17_000, "longer than 16 kB"),
    "controls": (b'rule = "\\u001b]52;c;aGk=\\u0007"', "is not valid"),
    "zeros": (b"\0" * 100, "cannot read"),
    "infinity": (b"gamma = inf", "is not valid"),
    "date": (b"gamma = 2026-11-28", "is not valid"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("content", "words"), HOSTILE_CONFIGS.values(), ids=HOSTILE_CONFIGS)
def test_a_hostile_config_is_one_short_line(content: bytes, words: str, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_bytes(content)
    with pytest.raises(SettingError, match=words) as error:
        resolve({}, {}, config)
    assert "\n" not in str(error.value) and len(str(error.value)) < 800


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["zeros", "pipe", "folder"])
def test_what_is_no_file_in_the_configs_place_is_one_line(kind: str, tmp_path: Path) -> None:
    config = {"zeros": Path("/dev/zero"), "pipe": tmp_path / "pipe", "folder": tmp_path}[kind]
    if kind == "pipe":
        os.mkfifo(config)
    with pytest.raises(SettingError, match=r"cannot read the config file .*, not a file"):
        read_config(config)


def test_a_value_of_any_kind_is_read_or_refused_by_any_setting(tmp_path: Path) -> None:
    values = ["1.5", "true", "nan", "1979-05-27", "07:32:00", '"a"', "[]", '["a"]', '[["a"]]', "[1.5, 2.5]"]
    values += ["[[11, -100.0]]", "[[1, 2, 3]]", "[1979-05-27]", "[true, [2]]", "'" + "[" * 9000 + "'", "{ a = 1 }"]
    path = tmp_path / "config.toml"
    for name in FIELDS:
        for value in values:
            path.write_text(f"{name} = {value}\n", encoding="utf-8")
            try:
                resolve({}, {}, path)
            except SettingError as error:
                assert flag_of(name) in str(error) and "\n" not in str(error), (name, value)


def test_pairs_of_a_token_and_a_number_are_a_logit_bias(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("logit_bias = [[11, -100.0], [5, 2.5]]\n", encoding="utf-8")
    assert resolve({}, {}, path)[0].logit_bias == ((11, -100.0), (5, 2.5))


def test_the_null_device_is_no_config_at_all() -> None:
    assert read_config(Path("/dev/null")) == {}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_accepted(encoding: str, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("gamma = 3\n", encoding=encoding)
    assert read_config(config) == {"gamma": "3"}


def test_a_misspelt_variable_is_named_with_what_is_allowed() -> None:
    with pytest.raises(SettingError) as error:
        resolve({}, {"SPECDEC_TUI_GAMA": "3"}, Path("/none"))
    message = str(error.value)
    assert "'SPECDEC_TUI_GAMA' is not valid, perhaps SPECDEC_TUI_GAMMA is meant: allowed are" in message
    assert all(name.upper() in message for name in FIELDS) and "DATA_DIR" in message and "\n" not in message


NEARLY = ["SPECDEC_GAMMA", "SPECTUI_GAMMA", "SPEC_TUI_GAMMA", "SPEDEC_TUI_GAMMA", "SPECDEC-TUI_GAMMA", "SPECDEC_top_k"]


@pytest.mark.parametrize("name", NEARLY)
def test_a_variable_whose_beginning_is_nearly_ours_is_named_with_what_is_meant(name: str) -> None:
    with pytest.raises(SettingError) as refused:
        resolve({}, {name: "3"}, Path("/none"))
    assert f"'{name}' is not valid, perhaps SPECDEC_TUI_{'TOP_K' if 'top' in name else 'GAMMA'} is" in str(
        refused.value
    )


def test_variables_of_others_are_theirs() -> None:
    others = ["SPEC_SEED", "MY_GAMMA", "GAMMA", "DEVICE", "SPECTRUM_DEVICE", "TORCH_DEVICE", "SPECDEC_HOME"]
    assert resolve({}, dict.fromkeys(others, "x"), Path("/none"))[0] == Settings()


@pytest.mark.parametrize("name", ["specdec_tui_gamma", "SPECDEC_TUIGAMMA", "SPECDECTUI_GAMMA", "SPECDEC_TUI_"])
def test_a_variable_whose_beginning_is_misspelt_is_named_too(name: str) -> None:
    with pytest.raises(SettingError, match=f"'{name}' is not valid"):
        resolve({}, {name: "3"}, Path("/none"))
    assert resolve({}, {"SPECDEC_TUI": "1", "SPECDEC_HOME": "x"}, Path("/none"))[0] == Settings()


def test_variables_that_name_places_and_the_palettes_words_are_no_mistakes() -> None:
    places = {f"SPECDEC_TUI_{name}": "x" for name in PLACES}
    settings, _ = resolve({}, places | {"SPECDEC_TUI_LENGTH": "7", "OTHER_SPECDEC_TUI_X": "1"}, Path("/none"))
    assert settings.max_new_tokens == 7


def test_the_key_to_a_server_is_a_variable_and_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDEC_TUI_API_KEY", raising=False)
    assert api_key() == ""
    monkeypatch.setenv("SPECDEC_TUI_API_KEY", " sk-secret\n")
    assert api_key() == "sk-secret"
    assert resolve({}, {"SPECDEC_TUI_API_KEY": "sk-secret"}, Path("/none"))[0] == Settings()
    for name in ("SPECDEC_API_KEY", "SPECDEC_TUI_API_KEYS", "specdec_tui_api_key", "SPECTUI_API_KEY"):
        with pytest.raises(SettingError, match="perhaps SPECDEC_TUI_API_KEY is meant") as refused:
            resolve({}, {name: "sk-secret"}, Path("/none"))
        assert "sk-secret" not in str(refused.value)
    others = ["OPENAI_API_KEY", "API_KEY", "ANTHROPIC_API_KEY", "SPECTRUM_API_KEY", "HF_API_KEY"]
    assert resolve({}, dict.fromkeys(others, "x"), Path("/none"))[0] == Settings()


def test_what_needs_no_setting_leaves_wrong_ones_out_and_tells_each(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('gamma = 99\ngama = 3\nseed = 5\n[top-k]\ntheme = "x"\n')
    environment = {"SPECDEC_TUI_RULE": "x", "SPECDEC_TUI_SED": "1", "SPECDEC_TUI_TEMPERATURE": "0.5"}
    settings, _, problems = resolve_rest({}, environment, config)
    assert (settings.gamma, settings.seed, settings.temperature) == (Settings().gamma, 5, 0.5)
    assert len(problems) == 5
    for words in ("gamma (in", "unknown setting 'gama'", "top-k: a table", "SPECDEC_TUI_SED", "rule (environment)"):
        assert sum(words in problem for problem in problems) == 1
    with pytest.raises(SettingError, match="gamma"):
        resolve_rest({"gamma": "x"}, {}, config)


def test_words_with_dashes_and_palette_names_mean_their_settings() -> None:
    assert name_of("top-k") == "top_k"
    assert name_of("length") == "max_new_tokens"
    with pytest.raises(SettingError, match="unknown setting"):
        name_of("nothing")


@pytest.mark.parametrize(
    ("flags", "processor"),
    [
        ({}, "greedy"),
        ({"temperature": "0.5"}, "multinomial"),
        ({"top_k": "5"}, "topk"),
        ({"top_p": "0.5"}, "nucleus"),
        ({"top_k": "5", "top_p": "0.5", "temperature": "1"}, "topknucleus"),
        ({"temperature": "0.5", "processor": "greedy"}, "greedy"),
    ],
)
def test_sampling_flags_alone_choose_the_processor_that_uses_them(
    flags: dict[str, str], processor: str, tmp_path: Path
) -> None:
    assert resolve(flags, {}, tmp_path / "none.toml")[0].processor == processor


def test_flags_that_a_chosen_processor_has_no_use_for_bring_one_that_uses_them_and_its_own(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for before, flags, after in (
        ("multinomial", {"top_k": "5"}, "topk"),
        ("multinomial", {"top_p": "0.5"}, "nucleus"),
        ("topk", {"top_p": "0.5"}, "topknucleus"),
        ("nucleus", {"top_k": "5", "temperature": "1"}, "topknucleus"),
        ("topknucleus", {"top_k": "5"}, "topknucleus"),
        ("multinomial", {"processor": "multinomial", "top_k": "5"}, "multinomial"),
        ("multinomial", {"gamma": "3"}, "multinomial"),
    ):
        config.write_text(f'processor = "{before}"\n')
        assert resolve(flags, {}, config)[0].processor == after


def test_a_processor_already_chosen_is_kept_when_only_its_temperature_changes(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('processor = "nucleus"\n')
    assert resolve({"temperature": "0.5"}, {}, config)[0].processor == "nucleus"


def test_a_processor_line_sets_its_arguments_in_the_order_of_the_field() -> None:
    assert parse_processor("topknucleus 0.7 40 0.9") == {
        "processor": "topknucleus",
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.9,
    }
    assert parse_processor("nucleus 0.7 0.9") == {"processor": "nucleus", "temperature": 0.7, "top_p": 0.9}
    assert parse_processor("greedy") == {"processor": "greedy"}
    for bad in ("", "greedy 1", "nucleus 0.7 2", "multinomial x", "topk 1 2 3"):
        with pytest.raises(SettingError):
            parse_processor(bad)


def test_sampling_values_of_the_config_file_do_not_change_the_processor(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("temperature = 0.5\ntop-k = 7\n")
    settings, _ = resolve({}, {}, config)
    assert (settings.processor, settings.temperature, settings.top_k) == ("greedy", 0.5, 7)


def test_numbers_of_the_config_file_keep_all_their_digits(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("top-p = 0.123456789\n")
    assert resolve({}, {}, config)[0].top_p == 0.123456789


def test_a_list_of_numbers_and_an_unknown_word_name_the_file(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for text in ("strategies = [1, 2]\n", "colour = 3\n"):
        config.write_text(text)
        with pytest.raises(SettingError, match=r"config\.toml"):
            resolve({}, {}, config)


def test_a_message_stays_one_line_whatever_the_value() -> None:
    for bad in ("a\nb", "\x1b[2J"):
        with pytest.raises(SettingError) as error:
            parse_value("gamma", bad)
        assert str(error.value).isprintable()
    with pytest.raises(SettingError):
        parse_value("device", "cuda:²")


@pytest.mark.parametrize(
    "address",
    [
        "host:8000",
        "ftp://host/v1",
        "http://",
        "http://host:0/v1",
        "http://host:99999",
        "http://[",
        "http://host/v1?key=s",
    ],
)
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(SettingError, match="give http://HOST:PORT/v1"):
        parse_value("target_url", address)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingError) as refused:
        parse_value("target_url", "http://user:pass@word@host:1/v1")
    assert "user" not in str(refused.value).split("give")[0] and "word" not in str(refused.value).split("without")[0]
    assert "//…@host:1/v1" in str(refused.value)


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:8000/v1", "https://host/v1/", "http://[::1]:8000"])
def test_an_address_of_a_server_is_taken_as_it_is(address: str) -> None:
    assert parse_value("target_url", address) == address
