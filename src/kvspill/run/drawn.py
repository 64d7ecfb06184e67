"""Which service classes have users: the seed draws each user's class."""

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.texts import listed
from kvspill.workload.synthetic import SyntheticWorkload
from kvspill.world import World


def classes_without_users(config: Config, users: int, seed: int) -> tuple[str, ...]:
    """The judged classes of which this seed draws nobody among the first so many users.

    Of a recording nothing is said: its users are known only once it has been read.
    """
    if config.recording is not None:
        return ()
    workload = SyntheticWorkload(config, World(seed))
    missing = set(config.slo_classes)
    # A class without a share has nobody among however many users.
    wanted = {name for name in missing if getattr(config.qos, name).share}
    for user in range(users):
        if not wanted:
            break
        name = next(workload.session(user)).qos.name.lower()
        missing.discard(name)
        wanted.discard(name)
    return tuple(name for name in config.slo_classes if name in missing)


def refuse_without_users(config: Config) -> None:
    """A question of classes without users has no answer, however long it is measured."""
    users, classes = config.num_users, list(config.slo_classes)
    if len(classes_without_users(config, users, config.seed)) < len(classes):
        return
    if not any(getattr(config.qos, name).share for name in classes):
        raise UsageError(f"--slo-classes {','.join(classes)}: no user is of these; their share is 0")
    raise UsageError(
        f"--slo-classes {','.join(classes)}: seed {config.seed} draws no {listed(classes, 'or')} user among "
        f"{users:,}, so there is nothing to judge; give another --seed or more --users"
    )
