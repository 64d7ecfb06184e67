"""Flags made from Config's fields, so that no flag can differ from what the configuration knows."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from kvspill.config import Config
from kvspill.config.fields import GROUPS, extra_of, flag_of
from kvspill.config.load import flag_fields, load_config
from kvspill.config.messages import choices, shown, unit_of
from kvspill.config.origins import ENVIRONMENT_PREFIX
from kvspill.config.plugged import (
    NOTHING,
    PREFIX,
    help_text,
    names,
    option_flag,
    option_key,
    options_of,
    usable_plugins,
)
from kvspill.errors import UsageError
from kvspill.outputs import StrPath
from kvspill.plugins import Declared, Kind, Option, Plugin
from kvspill.refusals import check_place, missing_folders, refuse_clashes, will_be_made
from kvspill.texts import near, one_line, put

_UNRECOGNIZED = "unrecognized arguments: "
"""How argparse begins its message about flags that it does not know."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of printing usage and leaving."""

    declared: Declared = NOTHING
    """The plug-ins whose names and options its flags take."""

    def __init__(self, prog: str, **options: Any):
        super().__init__(
            prog, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> NoReturn:
        words = message.removeprefix(_UNRECOGNIZED).split()
        if message.startswith(_UNRECOGNIZED) and any(word.startswith("-") for word in words):
            raise UsageError(_unknown(self, words))
        text = message.removeprefix("argument ")
        raise UsageError(f"{text}; `{self.prog} --help` lists all flags")


_REPEATED = ("cache_dir", "gpu_device")
"""Fields whose flag may stand several times, each for one more."""


class _Note(argparse.Action):
    """Keeps a value together with the flag as the user typed it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        del parser
        value: Any = True if self.nargs == 0 else values
        if self.const == "repeat":
            before: list[Any] = getattr(namespace, self.dest, (None, []))[1]
            # The very same words again mean the same thing, as where two pasted commands overlap.
            value = before if value in before else [*before, value]
        else:
            _check_other_name(getattr(namespace, self.dest, None), option_string, value)
        setattr(namespace, self.dest, (option_string, value))


def _check_other_name(before: tuple[str | None, Any] | None, flag: str | None, value: Any) -> None:
    """The same flag again replaces what it said, as everywhere; another name of it must say the same."""
    if before is not None and before[0] != flag and before[1] != value:
        first, second = f"{before[0]} {shown(before[1])}", f"{flag} {shown(value)}"
        raise UsageError(f"{second}: contradicts {first}, which means the same; leave one of them out")


def config_parser(
    prog: str,
    summary: str,
    examples: str,
    fixed: Sequence[str] = (),
    full: bool = False,
    defaults: Mapping[str, Any] | None = None,
    shown: Sequence[str] | None = None,
) -> Parser:
    """A parser with a flag for every field of Config but the fixed ones; full shows the rare ones too.

    The defaults are those of the command that differ from Config's own. What a command's short help
    shows can be named; otherwise it is what no field declares as rare.
    """
    more = "" if full else f"`{prog} --help-all` shows the remaining flags.\n\n"
    parser = Parser(prog=prog, usage=f"{prog} [FLAGS]", description=summary, epilog=more + examples)
    parser.add_argument("--help-all", action="store_true", help="show every flag and exit")
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file; flags and KVSPILL_* variables win over it"
    )
    parser.add_argument("--print-config", action="store_true", help="print the settings as YAML and exit")
    parser.declared = usable_plugins()
    sections = {name: parser.add_argument_group(title) for name, title in GROUPS.items()}
    for name in flag_fields():
        if name not in fixed:
            default = (defaults or {}).get(name, Config.model_fields[name].default)
            rare = _extra(name)["advanced"] if shown is None else name not in shown
            _add_flag(sections[_section(name)], name, default, rare and not full, parser.declared)
    # A command that chooses no plug-in of a kind has no use for the options of any.
    kinds = {_extra(name)["plugin"] for name in flag_fields() if name not in fixed}
    choosable = {kind: found for kind, found in parser.declared.items() if kind in kinds}
    for plugin, options in groupby(options_of(choosable), key=lambda pair: pair[0]):
        add_options(parser, plugin, [option for _, option in options], hidden=plugin.is_ours and not full)
    return parser


def _section(name: str) -> str:
    return str(_extra(name)["group"])


def _extra(name: str) -> dict[str, Any]:
    return extra_of(Config.model_fields[name])


def add_options(parser: Parser, plugin: Plugin, options: Sequence[Option], hidden: bool = False) -> None:
    """A section of --help for the options of one plug-in; hidden options are taken, but not shown."""
    title = None if hidden else f"Plug-in {plugin.name}, from {plugin.origin}: {plugin.help}"
    section = parser.add_argument_group(title)
    for option in options:
        shown_default = "" if option.default is None or option.secret else f" [{option.default}]"
        kinds = {int: "N", float: "N", bool: "true|false"}
        section.add_argument(
            option_flag(plugin.name, option.name),
            dest=option_key(plugin, option),
            action=_Note,
            default=argparse.SUPPRESS,
            metavar="|".join(option.choices) or kinds.get(option.kind, "TEXT"),
            help=argparse.SUPPRESS if hidden else f"{option.help}{shown_default}".replace("%", "%%"),
        )


def add_backends(parser: Parser, wanted: Callable[[Plugin], bool]) -> None:
    """The options of these backends, for a command that takes their addresses."""
    parser.declared = usable_plugins()
    for plugin in parser.declared[Kind.BACKEND].plugins.values():
        if wanted(plugin):
            add_options(parser, plugin, plugin.options)


def refuse_on_directory(namespace: argparse.Namespace) -> None:
    """Refuse options of backends where no address was named."""
    for flag, _value in given_options(namespace).values():
        raise UsageError(f"{flag}: no effect on a directory; leave it out, or name an address")


def _add_flag(section: Any, name: str, default: Any, hidden: bool, declared: Declared) -> None:
    extra = _extra(name)
    is_switch = Config.model_fields[name].annotation is bool
    section.add_argument(
        flag_of(name),
        *extra["alias_flags"],
        dest=name,
        action=_Note,
        nargs=0 if is_switch else None,
        const="repeat" if name in _REPEATED else None,
        default=argparse.SUPPRESS,
        metavar=None if is_switch else extra["metavar"] or _metavar(name, declared),
        help=argparse.SUPPRESS if hidden else _help(name, help_text(declared, name), default),
    )


def _metavar(name: str, declared: Declared) -> str:
    words = choices((name,)) or names(declared, name)
    if words:
        return "|".join(words)
    return unit_of(name).upper() or "N"


def _help(name: str, text: str, default: Any) -> str:
    if name == "io_size":
        default = "4MiB"
    if default is not None and not isinstance(default, bool):
        default = ", ".join(map(str, default)) if isinstance(default, tuple) else default
        text += f" [{default:g}]" if isinstance(default, float) else f" [{default}]"
    return text.replace("%", "%%")


def given_options(namespace: argparse.Namespace) -> dict[str, tuple[str, Any]]:
    """Options of backends that were given, each with its flag."""
    return {name: noted for name, noted in vars(namespace).items() if name.startswith(PREFIX)}


def asks_for_help(argv: Sequence[str]) -> str | None:
    """The help flag on a command line, if there is one; it wins over everything else there."""
    return next((word for word in argv if word in ("-h", "--help", "--help-all")), None)


def helped(argv: Sequence[str], parser: Parser, own: argparse.ArgumentParser | None = None) -> bool:
    """Print the help of a command where its command line asks for it; own: what takes flags of its own."""
    if asks_for_help(argv) is None:
        return False
    print(parser.format_help() if own is None else help_with(parser, own), end="")
    return True


def prints_config(argv: Sequence[str], config: Config) -> bool:
    """Print the settings where that is asked for instead of a run."""
    if "--print-config" not in argv:
        return False
    from kvspill.config.load import to_yaml

    print(to_yaml(config), end="")
    return True


def parse_config(
    parser: Parser,
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration that a command line, the environment and a YAML file give together."""
    namespace, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise UsageError(_unknown(parser, unknown))
    given = vars(namespace)
    for name in ("help_all", "print_config"):
        given.pop(name, None)
    config_file = given.pop("config", None)
    environ = os.environ if environ is None else environ
    config = load_config(given, environ, config_file, defaults, parser.declared)
    _refuse_clashes(config, config_file or environ.get(f"{ENVIRONMENT_PREFIX}CONFIG"))
    return config


def _refuse_clashes(config: Config, config_file: str | None) -> None:
    outputs: dict[str, StrPath | None] = {
        f"--output {config.output}": config.output,
        f"--xlsx-output {config.xlsx_output}": config.xlsx_output,
    }
    if config.io_trace_log is not None:
        from kvspill.measure.oplog import trial_paths

        for path in trial_paths(Path(config.io_trace_log), config.trials):
            outputs[f"--io-trace-log {path}"] = path
    inputs = [config_file or None, *config.input_files]
    if config.log_ops is None:
        refuse_clashes(outputs, inputs)
        return
    from kvspill.machine.launcher import launched
    from kvspill.measure.oplog import log_paths

    given, launch = Path(config.log_ops), None if config.ranks == "off" else launched()
    # Every rank looks at the files of all, so that all of them refuse.
    ranks: Iterable[int | None] = [None] if launch is None or launch.size == 1 else range(launch.size)
    for rank in ranks:
        logs: dict[str, StrPath | None] = {
            f"--log-ops {config.log_ops}" + ("" if path == given else f": its {path.name}"): path
            for path in log_paths(given, config.trials, rank)
        }
        refuse_clashes({**outputs, **logs}, inputs)


def check_outputs(
    outputs: Mapping[str, StrPath | None],
    inputs: Iterable[StrPath | None],
    *,
    page: str | None = None,
    quiet: bool = False,
) -> None:
    """Refuse, before anything is done, files that could not be written, or would replace what is to be kept.

    outputs: by flag. page: the flag that names a page, which replaces nothing but an older page. Directories
    that will be made are named, unless quiet.
    """
    named = {flag: path for flag, path in outputs.items() if path is not None}
    refuse_clashes({f"{flag} {path}": path for flag, path in named.items()}, inputs)
    for flag, path in named.items():
        check_place(path, f"{flag} {path}")
    if page is not None:
        from kvspill.result.reading import refuse_replacing

        refuse_replacing(outputs[page], page)
    for folder in [] if quiet else missing_folders(named.values()):
        put(one_line(will_be_made(folder)), sys.stderr)


def help_with(parser: Parser, own: argparse.ArgumentParser) -> str:
    """The help of a command that has flags of its own: the summary, those, then the common ones."""
    summary, title, flags = parser.format_help().partition("\noptions:\n")
    return f"{summary}\n{own.format_help()}{title}{flags}"


def _unknown(parser: Parser, unknown: Sequence[str]) -> str:
    first = next((word for word in unknown if word.startswith("-")), unknown[0])
    word = first.split("=", 1)[0]
    if not word.startswith("-"):
        return f"{shown(word)}: unexpected; values follow a flag, as in --num-users 50"
    flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    # Without the dashes, which all flags have in common.
    bare = word.lstrip("-").replace("_", "-")
    meant = near(bare, [flag[2:] for flag in flags], cutoff=0.7) if len(bare) > 1 else []
    hint = f"did you mean --{meant[0]}?" if meant else f"`{parser.prog} --help` lists all flags"
    if word == "--simulate":
        hint = "`kvspill simulate` runs in virtual time"
    return f"{shown(word)}: unknown flag; {hint}"
