"""What holds for the proposals of every policy in every situation."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from monitor.balancing.draining import DrainFirst
from monitor.balancing.policy import PastMove, Policy, Situation
from monitor.balancing.predictive import PredictiveOptions, PredictivePolicy
from monitor.balancing.restraint import RestraintOptions
from monitor.balancing.thesis import ThesisPolicy
from monitor.load.samples import ConfiguratorSample, PartitionSample, Sample

NOW = 1_000_000.0
CONFIGURATORS = [f"c{n}" for n in range(5)]
PARTITIONS = [f"p{n}" for n in range(9)]

POLICIES: list[Policy] = [ThesisPolicy(), DrainFirst(ThesisPolicy()), PredictivePolicy()]
ALL = pytest.mark.parametrize("policy", POLICIES, ids=["thesis", "drain-first", "predictive"])

configurators = st.sampled_from(CONFIGURATORS)
partitions = st.sampled_from(PARTITIONS)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Any situation; loads often grow, so that policies have something to do."""
    owners = draw(st.dictionaries(partitions, configurators))
    lengths = draw(st.sampled_from([0, 1, 10, 21, 40]))
    seed = draw(st.integers(0, 1 << 16))
    history = _history(owners, lengths, random.Random(seed))
    past = draw(
        st.lists(
            st.builds(
                PastMove,
                at=st.floats(NOW - 4000, NOW),
                partition=partitions,
                source=configurators,
                target=configurators,
                done=st.booleans(),
            ),
            max_size=8,
        )
    )
    return Situation(
        now=NOW,
        history=history,
        owners=owners,
        targets=draw(st.lists(configurators, unique=True)),
        past=sorted(past, key=lambda move: move.at),
        moving=draw(st.dictionaries(st.sampled_from(sorted(owners)), configurators, max_size=3))
        if owners
        else {},
    )


def _history(owners: dict[str, str], seconds: int, draw: random.Random) -> list[Sample]:
    work = {name: draw.choice([0.0, 0.01, 0.2, 0.9]) for name in PARTITIONS}
    grows = {name: draw.choice([0, 0, 5, 100]) for name in PARTITIONS}
    undefined = {name: draw.random() < 0.1 for name in PARTITIONS}
    absent = draw.choice([*CONFIGURATORS, *[None] * 5])
    before = {name: draw.choice([owner, "c0"]) for name, owner in owners.items()}
    history = []
    for age in range(seconds - 1, -1, -1):
        owned = before if age > 25 else owners
        reports = [
            PartitionSample(
                partition=name,
                configurator=owner,
                epoch=1 if age > 25 else 2,
                queued=1000 + grows[name] * (seconds - age),
                oldest_s=0.0,
                arrived=50,
                done=50,
                waited_s=0.0,
                decided_s=work[name],
                pushed_s=0.0,
                slices=1,
                flow_ops=0,
                undefined=int(undefined[name]),
                active=100,
                entries=100,
            )
            for name, owner in owned.items()
            if owner != absent
        ]
        processes = [ConfiguratorSample(name, 0, 0.1) for name in CONFIGURATORS if name != absent]
        history.append(Sample(NOW - age, 1.0, tuple(reports), tuple(processes)))
    return history


@ALL
@given(situation=situations())
def test_proposals_fit_the_situation(policy: Policy, situation: Situation) -> None:
    proposals = policy.propose(situation)
    names = [move.partition for move in proposals]
    assert len(names) == len(set(names))
    for move in proposals:
        assert move.partition not in situation.moving
        assert situation.owners[move.partition] == move.source
        assert move.target in situation.targets
        assert move.target != move.source
        assert move.reason


@ALL
@given(situation=situations(), seed=st.integers(0, 1000))
def test_proposals_depend_on_nothing_but_the_situation(
    policy: Policy, situation: Situation, seed: int
) -> None:
    draw = random.Random(seed)

    def shuffled(items: list[str]) -> list[str]:
        return draw.sample(items, len(items))

    other = replace(
        situation,
        owners={name: situation.owners[name] for name in shuffled(list(situation.owners))},
        targets=shuffled(list(situation.targets)),
        moving={name: situation.moving[name] for name in shuffled(list(situation.moving))},
    )
    assert policy.propose(other) == policy.propose(situation)


@given(situation=situations(), most=st.integers(0, 4))
def test_our_policy_respects_rests_and_the_moves_per_minute(
    situation: Situation, most: int
) -> None:
    restraint = RestraintOptions(rest=300.0, moves_per_minute=most)
    policy = PredictivePolicy(PredictiveOptions(restraint=restraint))
    proposals = [
        move for move in policy.propose(situation) if move.source in situation.targets
    ]  # all others drain
    recent = [move for move in situation.past if move.at > NOW - 60]
    assert len(proposals) <= max(0, most - len(recent) - len(situation.moving))
    rested = {move.partition for move in situation.past if move.at > NOW - 300}
    assert not rested & {move.partition for move in proposals}
