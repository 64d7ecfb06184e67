"""The answer to "can N users be served?" as text of one screen."""

import re
from collections.abc import Iterator

from kvspill.report.numbers import volume
from kvspill.report.reply.asked import settings_text, target_text, targets_ms
from kvspill.report.reply.evidence import (
    also_late,
    decided,
    each_answer,
    evidence,
    few_requests,
    measured_time,
    no_user,
    not_judged,
    operations,
    partly_covered,
    remedy_of_unjudged,
    shared_device,
    uncovered,
    unjudged,
    unjudged_text,
    without_users,
    worst,
    written_bytes,
)
from kvspill.report.reply.held import (
    against,
    differ,
    enough_seconds,
    headroom,
    is_at_the_limit,
    limit,
    model_is_refuted,
    near_limit,
    no_gain,
    of_capacity,
)
from kvspill.report.reply.lateness import by_target
from kvspill.report.short import figures_of_tiers
from kvspill.report.unused import unused_storage
from kvspill.result.answer import Status, answer, in_memory, seen_with, standstill
from kvspill.result.bottleneck import io_limited, others_used_device
from kvspill.result.chosen import with_chosen
from kvspill.result.schema import Question, Result
from kvspill.result.warnings.certainty import (
    AUTOSCALING_INCONCLUSIVE,
    FEW_TRIALS,
    LIMIT_NOT_EXACT,
    NO_VERDICT,
    NOT_JUDGED,
    NOT_STEADY,
    STAGE_NOT_SETTLED,
    TOO_SHORT,
)
from kvspill.result.warnings.devices import DEVICE_EXCESS, IO_LIMITED, SIMULATED
from kvspill.result.warnings.faults import INCOMPLETE
from kvspill.result.warnings.known import said as said_of
from kvspill.result.warnings.loads import HALF_DONE, UNFINISHED
from kvspill.run.asking import MODEL_SECONDS_MAX, Reply, beyond, replays
from kvspill.run.calibrated import calibration_cautions
from kvspill.run.drawn import classes_without_users
from kvspill.storage.profiles import Calibrated
from kvspill.texts import about, counted, listed, target_time

_FEWER = re.compile(",? or (use )?fewer --users")
_TWO_LEFT = re.compile(", (?=more DRAM)")
NEAR = 2.0
"""A p95 within this factor of its target, above or below, may come out otherwise with other users."""
_OF_THE_DEVICE = (DEVICE_EXCESS, IO_LIMITED)
"""Reasons of an answer; a run that ended early or failed has others, and these warnings beside them."""
_SAID = {kind.code for kind in (SIMULATED, *_OF_THE_DEVICE, AUTOSCALING_INCONCLUSIVE, NO_VERDICT, NOT_JUDGED)}
"""Warnings that the text itself says, in words of its own."""
_OF_A_WINDOW = {
    kind.code for kind in (FEW_TRIALS, HALF_DONE, NOT_STEADY, STAGE_NOT_SETTLED, TOO_SHORT, UNFINISHED)
}
"""Notes on rates and waits of a window that the search chose: the answer rests on neither."""


def lines(reply: Reply) -> Iterator[str]:
    """The text, the verdict first."""
    yield _sentence(reply)
    yield from _reasons(reply)
    judged = reply.status in (Status.NO, Status.YES) or is_at_the_limit(reply)
    if reply.result.requests_completed and judged:
        found, seen = answer(reply.result), seen_with(answered(reply))
        yield f"Bottleneck{seen}: {found.because}"
        if reply.status is not Status.YES:
            yield f"What would help: {_helps(reply)}"
        yield from (f"{name}{seen}: {figures}." for name, figures in figures_of_tiers(reply.result))
        yield from filter(None, [operations(reply)])
    yield f"Target: {target_text(reply.config)}."
    yield f"Asked with: {settings_text(reply.config)}{_other_seed(reply)}."
    if reply.probe is not None:
        read, write = reply.probe.texts
        yield f"The directory before the load: read {read}, write {write}, by {reply.probe.source}."
    written = written_bytes(reply)
    if written is not None:
        yield f"The load wrote {volume(written)} to the storage in all."
    if reply.calibrated is not None:
        yield _calibrated(reply, reply.calibrated)
    yield from _warnings(reply)


def _warnings(reply: Reply) -> Iterator[str]:
    """Warnings, the gravest first, with their remedies; not what the text says or itself caused."""
    found, said = answer(answered(reply)), _SAID
    if reply.status is Status.NO:
        said = said | {LIMIT_NOT_EXACT.code}
    elif reply.status is Status.INVALID:
        said = said - {kind.code for kind in _OF_THE_DEVICE}
        # The first line says it, and no figure is shown.
        said = said if reply.result.faulty else said | {INCOMPLETE.code}
    for item in found.grave:
        if item.code not in said:
            yield f"! {said_of(item)} {_as_asked(item.remedy)}"
    for item in found.notes:
        if item.code not in said:
            yield f"! {said_of(item)} {_as_asked(item.remedy)}"


def _as_asked(remedy: str) -> str:
    """With the flag of this command."""
    return remedy.replace("--num-users", "--users")


def answered(reply: Reply) -> Result:
    """The result with the answer in it, so that no view of it says otherwise."""
    result, few = reply.result, not_judged(reply)
    has_answer = reply.status in (Status.YES, Status.NO)
    replaced = (AUTOSCALING_INCONCLUSIVE.code, *([NO_VERDICT.code] if has_answer else []))
    warnings = by_target(reply, (item for item in result.warnings if item.code not in replaced))
    if any(item.code == AUTOSCALING_INCONCLUSIVE.code for item in result.warnings):
        # The search's own estimate knows only its stages: the figure of the question stands in all texts.
        kind = LIMIT_NOT_EXACT if has_answer else AUTOSCALING_INCONCLUSIVE
        reason = _bounds(reply) if has_answer else _known(result)
        warnings.append(kind.of(reason=reason, remedy=f"Give --duration {enough_seconds(reply)}."))
    if has_answer and few:
        warnings.append(NOT_JUDGED.of(classes=unjudged_text(reply), remedy=remedy_of_unjudged(reply)))
    basis = decided(reply)
    question = Question(
        answer=reply.status.value,
        users=reply.users,
        sentence=_sentence(reply),
        reasons=list(_reasons(reply)),
        helps=_helps(reply),
        not_judged=few,
        judged=None if basis is None else dict(basis),
    )
    steps = result.autoscaling_stats
    steps = [*steps[:-1], {**steps[-1], "reason": _known(result)}] if steps else steps
    changed = {"question": question, "warnings": warnings, "autoscaling_stats": steps}
    return with_chosen(result.model_copy(update=changed), _OF_A_WINDOW)


def _known(result: Result) -> str:
    """What the search knows by its end, without its own words on the time that it lacked."""
    last = result.autoscaling_stats[-1] if result.autoscaling_stats else {}
    return str(last.get("known", last.get("reason", "")))


def _bounds(reply: Reply) -> str:
    """Between which numbers of users the limit lies: shares of late requests are the answer's evidence."""
    passed, failed = reply.bracket.passed, reply.bracket.failed
    parts = []
    if passed is not None:
        parts.append(f"{counted(passed, 'user')} {'keeps' if passed == 1 else 'keep'} the target")
    if failed is not None:
        what = "the target" if passed is None else "it"
        parts.append(f"{counted(failed, 'user')} {'does' if failed == 1 else 'do'} not keep {what}")
    return f"{' and '.join(parts)}." if parts else _known(reply.result)


def _sentence(reply: Reply) -> str:
    return f"{reply.status.value.upper()}{label(reply)}{_seed_label(reply)}: {headline(reply)}"


def _seed_label(reply: Reply) -> str:
    """Beside the verdict, the only users that it is of, or where another draw of them answers otherwise."""
    only = _only(reply) if reply.status is Status.YES else ""
    if only and not reply.by_seed:
        return only
    others = [str(seed) for seed in against(reply)]
    if others:
        opposite = Status.NO if reply.status is Status.YES else Status.YES
        seeds = f"{'seed' if len(others) == 1 else 'seeds'} {listed(others)}"
        mine = f" for the users that seed {reply.result.seed} draws"
        return f"{mine}, {opposite.value.upper()} by a model for those of {seeds}"
    answers = list(reply.by_seed.values())
    if len(set(answers)) < 2 or reply.status is Status.UNDECIDED:
        return only
    return f"{only}, by {answers.count(reply.status)} of {len(answers)} seeds"


def _only(reply: Reply) -> str:
    """The only classes that a yes covers; empty where it covers all of them."""
    nobody, partly = uncovered(reply), partly_covered(reply)
    if partly:
        return " for some classes only"
    covered = [name for name in reply.config.slo_classes if name not in nobody]
    return f" for {listed(covered)} users only" if nobody else ""


def _reasons(reply: Reply) -> Iterator[str]:
    """What the answer rests on: how many are held, the class that decided, those that were not judged."""
    others, limited = others_used_device(reply.result), io_limited(reply.result)
    if reply.status is Status.INVALID:
        others = limited = None
    held = (limit(reply), headroom(reply))
    draws = (" ".join(filter(None, (no_user(reply), _missed_by_model(reply)))), _seeds(reply))
    said = (
        near_limit(reply),
        unused_storage(reply.result),
        others,
        shared_device(reply),
        limited,
        *draws,
        *held,
        " ".join(filter(None, (evidence(reply), measured_time(reply)))),
    )
    yield from filter(None, (*said, *also_late(reply), _open(reply)))
    for name, requests in few_requests(reply).items():
        yield unjudged(reply, name, requests)


def _missed_by_model(reply: Reply) -> str:
    """Users of the classes that a yes does not cover, where by the model these would miss the target."""
    nobody, limits_ms = without_users(reply), targets_ms(reply.config)
    for seed in against(reply) if reply.status is Status.YES else ():
        lacking = classes_without_users(reply.config, reply.users, seed)
        drawn = [f"{name} ({target_time(limits_ms[name])})" for name in nobody if name not in lacking]
        if drawn:
            who = f"{counted(reply.users, 'user')} with {listed(drawn)} ones among them"
            return f"By a model, {who} would miss the target (--seed {seed} draws such)."
    return ""


def _open(reply: Reply) -> str:
    """Where there is no verdict, what the search knows so far."""
    known = _known(reply.result).rstrip(".")
    if reply.status is not Status.UNDECIDED or is_at_the_limit(reply):
        return ""
    return f"{known}." if known else ""


def _other_seed(reply: Reply) -> str:
    """The seed whose figures are printed, where it is not the one that was asked with."""
    seed = reply.result.seed
    return "" if seed in (None, reply.config.seed) else f" (the figures are of seed {seed})"


def _calibrated(reply: Reply, known: Calibrated) -> str:
    """Where the model's figures come from; on a drive, what it had predicted before the search."""
    text = f"The model was calibrated on {known.device}, {known.date[:10]}"
    if reply.result.simulated:
        return f"{text}."
    if reply.modelled_users is not None:
        users = int(reply.modelled_users)
        most = f"at least {users:,}" if users >= beyond(reply.users) else about(users)
        text += f"; it had predicted {most} users"
    return " ".join(
        [f"{text}.", *(item.message for item in calibration_cautions(reply.config, reply.result))]
    )


def label(reply: Reply) -> str:
    """What kind of storage the verdict is of, where it is no drive that was measured."""
    if reply.result.simulated:
        return " (simulated)"
    return " (in memory, not a drive)" if in_memory(reply.result) else ""


def place(reply: Reply) -> str:
    if reply.config.storage_tier == "off":
        return "memory alone (--storage-tier off)"
    if reply.result.simulated:
        return f"device profile {reply.config.device_profile or 'nvme-gen4'}"
    return ", ".join(reply.config.cache_dir or ("the current directory",))


def headline(reply: Reply) -> str:
    who, one = f"{counted(reply.users, 'user')} of {reply.config.model}", reply.users == 1
    if reply.status is Status.YES:
        nobody, partly = uncovered(reply), partly_covered(reply)
        thin = not_judged(reply) | dict.fromkeys(partly, 0)
        if nobody:
            who += f", {'not' if one else 'none of them'} {listed(nobody, 'or')},"
        kept = [name for name in targets_ms(reply.config) if name not in thin]
        of = f" of {listed(kept)}" if thin and kept else ""
        some = "".join(
            f"; of {name} users only {'seed' if len(seeds) == 1 else 'seeds'} {listed([*map(str, seeds)])} "
            f"{'has' if len(seeds) == 1 else 'have'} any"
            for name, seeds in partly.items()
        )
        return f"{who} {'keeps' if one else 'keep'} the latency target{of} on {place(reply)}{some}."
    if reply.status is Status.NO:
        return f"{who} {'does' if one else 'do'} not keep the latency target on {place(reply)}."
    if reply.status is Status.INVALID:
        why, ended = answer(reply.result).verdict.partition(": ")[2], reply.result.warning(INCOMPLETE.code)
        return why if ended is None or reply.result.faulty else f"{why} {ended.remedy}"
    still = standstill(reply.result)
    if still is not None:
        return f"{who} on {place(reply)}: {still}; run it again."
    if differ(reply):
        told = "as many seeds say yes as no; give a longer --duration or another --seed"
        return f"{who} on {place(reply)}: {told}."
    seconds = enough_seconds(reply)
    if is_at_the_limit(reply):
        return f"{who} on {place(reply)}: {_chance(reply, seconds)}."
    why = _lone_seed(reply) or "the time was too short for a verdict"
    return f"{who} on {place(reply)}: {why}; give --duration {seconds}."


def _chance(reply: Reply, seconds: int) -> str:
    """Where the windows of the users that were asked about say different things: why, and what to do."""
    found = decided(reply) or {}
    kept = f"{found.get('windows_passed', 0)} of {found.get('windows', 0)} windows kept the target"
    if others_used_device(reply.result) is not None:
        return f"{kept} beside other programs that used the device; stop them and ask again"
    return f"at the limit, where chance decides ({kept}); ask about fewer, or give --duration {seconds}"


def _lone_seed(reply: Reply) -> str:
    """Where too few seeds have an answer for a verdict: how many, and which."""
    answers = [status for status in reply.by_seed.values() if status in (Status.YES, Status.NO)]
    if not answers:
        return ""
    said = f"{len(answers)} of {counted(len(reply.by_seed), 'seed')}"
    return f"only {said} says {answers[0].value}, and the others have no verdict"


def _seeds(reply: Reply) -> str:
    """How far the answer hangs on the seed, which draws the users."""
    if reply.modelled_by_seed or reply.seeds_not_modelled:
        return _seeds_by_model(reply)
    if not reply.by_seed:
        near, far = 1 / NEAR < (worst(reply) or (0.0,))[0] < NEAR, _far_from_limit(reply)
        how = "simulated" if reply.result.simulated else "measured"
        said = f"One draw of users was {how}{' and the target is near' if near else ''}"
        has_answer = reply.status in (Status.YES, Status.NO)
        alone = has_answer and (how == "simulated" or bool(without_users(reply)))
        return f"{said}: another --seed may answer otherwise." if (near or alone) and not far else ""
    each = each_answer(reply, reply.by_seed)
    if not differ(reply):
        return f"Results by seed (each draws other users): {each}."
    figures = f" The figures are of seed {reply.result.seed}."
    return f"The answer depends on the seed, which draws the users: {each}.{figures}"


def _seeds_by_model(reply: Reply) -> str:
    """What a model says of draws that were not measured, and whether it agrees about the one that was."""
    seed, each = reply.result.seed, each_answer(reply, reply.modelled_by_seed)
    few = f"{'others' if each else 'other seeds'} were not modelled within {MODEL_SECONDS_MAX:.0f} s"
    if not each:
        return f"The seed draws the users, and only seed {seed} was measured; {few}."
    text = f"The seed draws the users, and only seed {seed} was measured; a model of this storage says {each}"
    if model_is_refuted(reply):
        wrong = Status.NO if reply.status is Status.YES else Status.YES
        text += f", but also {wrong.value} with seed {seed}, which the measurement refutes"
    return f"{text}; {few}." if reply.seeds_not_modelled else f"{text}."


def _far_from_limit(reply: Reply) -> bool:
    """Whether so few or so many others decided that no draw of the users asked about answers otherwise."""
    found = decided(reply)
    if found is None or replays(reply.config):
        return False
    return not 1 / NEAR < found["level"] / reply.users < NEAR


def _helps(reply: Reply) -> str:
    text = _as_asked(answer(reply.result).helps)
    if no_gain(reply):
        text = text.replace("Use a faster device,", "Use a higher target (--slo-target-ms),")
    if reply.bracket.about == 0:
        # Fewer than one user is no advice: two things are left, or one.
        text = _TWO_LEFT.sub(" or ", _FEWER.sub("", text))
    return of_capacity(reply, text)
